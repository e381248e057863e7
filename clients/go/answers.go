package storeclient

import (
	"errors"
	"time"
)

// Result is what one statement answered.
type Result struct {
	Value any
	Kind  string // rows, value, none or info
	Rows  int    // how many rows Value holds
	Took  time.Duration
	// Changed is how many records the statement has written. A node before minor 10 does not say.
	Changed int
}

// Answer is what a script answered: one result for each statement, in their order.
type Answer struct {
	Results []Result
	// Seq is the committed sequence after the script's last write, or the one it read at.
	Seq int64
	// Store and Epoch name the history that Seq is of.
	Store string
	Epoch int64
	// moment is that of the store which it read, if the node keeps it.
	moment string
}

// Value returns that of the last statement; nil of a script that has none.
func (a *Answer) Value() any {
	if len(a.Results) == 0 {
		return nil
	}
	return a.Results[len(a.Results)-1].Value
}

// Decode stores the value of the last statement in what into points to; see [Decode].
func (a *Answer) Decode(into any) error { return Decode(a.Value(), into) }

// Position returns where to follow tables from: what comes behind this answer, of this history.
func (a *Answer) Position() Position { return Position{a.Seq, a.Store, a.Epoch} }

func readResults(found any) ([]Result, error) {
	wrong := broken("an answer of the node has no results")
	if found == nil {
		return nil, nil
	}
	items, ok := found.([]any)
	if !ok {
		return nil, wrong
	}
	results := make([]Result, len(items))
	for n, item := range items {
		one, _ := item.(Object)
		value, isThere := one["value"]
		kind, isKind := one["kind"].(string)
		rows, isCount := one["rows"].(int64)
		took, isTime := one["took"].(Duration)
		if !(isThere && isKind && isCount && isTime) {
			return nil, wrong
		}
		changed, err := optional[int64](one, "changed")
		if err != nil {
			return nil, err
		}
		results[n] = Result{value, kind, int(rows), took.Std(), int(changed)}
	}
	return results, nil
}

func readAnswer(body Object) (*Answer, error) {
	results, err := readResults(body["results"])
	if err != nil {
		return nil, err
	}
	seq, ok := body["seq"].(int64)
	if !ok {
		return nil, broken("an answer of the node has no seq")
	}
	answer := &Answer{Results: results, Seq: seq}
	var errs []error
	answer.Store, err = optional[string](body, "store")
	errs = append(errs, err)
	answer.Epoch, err = optional[int64](body, "epoch")
	errs = append(errs, err)
	answer.moment, err = optional[string](body, "moment")
	return answer, errors.Join(append(errs, err)...)
}

// optional returns a field of a body that may be absent.
func optional[T any](body Object, name string) (T, error) {
	found, ok := body[name].(T)
	if !ok && body[name] != nil {
		return found, broken("the node tells %s as a %s", name, kindOf(body[name]))
	}
	return found, nil
}

// needed returns a field of a body that must be there.
func needed[T any](body Object, name string) (T, error) {
	found, ok := body[name].(T)
	if !ok {
		return found, broken("the node tells no %s", name)
	}
	return found, nil
}
