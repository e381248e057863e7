package storeclient

import (
	"errors"
	"time"
)

// Result is the result of one statement.
type Result struct {
	Value any
	Kind  string // rows, value, none or info
	Rows  int    // number of rows in Value
	Took  time.Duration
	// Changed is the number of records written; 0 of nodes before minor 10, which do not tell.
	Changed int
}

// Answer is the result of a script: one [Result] for each statement, in order.
type Answer struct {
	Results []Result
	// Seq is the sequence of the script's last commit, or the one that it read at.
	Seq int64
	// Store and Epoch identify the history of Seq.
	Store string
	Epoch int64
	// moment is that of the store which it read, if the node keeps it.
	moment string
}

// Value returns the value of the last statement, or nil of an empty script.
func (a *Answer) Value() any {
	if len(a.Results) == 0 {
		return nil
	}
	return a.Results[len(a.Results)-1].Value
}

// Decode stores the value of the last statement in the value that into points to; see [Decode].
func (a *Answer) Decode(into any) error { return Decode(a.Value(), into) }

// Position returns the position behind this answer, for [From].
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
