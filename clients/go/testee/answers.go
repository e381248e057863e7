package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	store "storenode/clients/go"
)

func positionOf(p store.Position) store.Object {
	return store.Object{"seq": p.Seq, "store": orNull(p.Store), "epoch": orNull(p.Epoch)}
}

func resultsOf(results []store.Result) []any {
	found := make([]any, len(results))
	for n, one := range results {
		found[n] = store.Object{"value": one.Value, "kind": one.Kind, "rows": one.Rows, "took": one.Took, "changed": orNull(one.Changed)}
	}
	return found
}

func answerOf(answer *store.Answer) store.Object {
	found := positionOf(answer.Position())
	found["results"] = resultsOf(answer.Results)
	return found
}

func messageOf(m *store.Message) store.Object {
	headers := store.Object{}
	for name, text := range m.Headers {
		headers[name] = text
	}
	return store.Object{
		"position": m.Position, "at": m.At, "key": orNull(m.Key), "id": orNull(m.ID), "headers": headers, "value": m.Value, "bytes": m.Bytes,
	}
}

func messagesOf(messages []store.Message) []any {
	found := make([]any, len(messages))
	for n := range messages {
		found[n] = messageOf(&messages[n])
	}
	return found
}

func deliveryOf(d *store.Delivery) store.Object {
	found := messageOf(&d.Message)
	found["receipt"], found["attempt"], found["deadline"], found["member"] = d.Receipt, d.Attempt, d.Deadline, orNull(d.Member)
	return found
}

func settledOf(settled store.Settled, err error) (any, error) {
	return store.Object{"done": settled.Done, "stale": settled.Stale, "stale_receipts": settled.StaleReceipts}, err
}

func commitOf(commit store.Commit) store.Object {
	changes := make([]any, len(commit.Changes))
	for n, one := range commit.Changes {
		change := store.Object{"action": one.Action, "id": one.ID, "value": nil, "before": nil, "missing": orNull(one.Missing)}
		if one.Value != nil {
			change["value"] = one.Value
		}
		if one.Before != nil {
			change["before"] = one.Before
		}
		changes[n] = change
	}
	return store.Object{
		"seq": commit.Seq, "at": commit.At, "by": orNull(commit.By), "reason": orNull(commit.Reason), "changes": changes,
		"position": positionOf(commit.Position),
	}
}

var errLoader = errors.New("the loader failed")

// errorOf returns the error of an answer.
func errorOf(err error) map[string]any {
	found := map[string]any{"kind": kindOf(err), "text": fmt.Sprintf("%v %+v %#v", err, err, err), "cause": nil}
	var refusal *store.Error
	isRefused := errors.As(err, &refusal)
	if own, _ := err.(*store.Error); own == nil {
		if isRefused {
			found["cause"] = string(refusal.Code)
		}
		var wrong *store.ValueError
		if errors.As(err, &wrong) {
			found["path"] = wrong.Path
		}
		if found["kind"] == "Testee" {
			fmt.Fprintf(os.Stderr, "%T %v\n", err, err)
		}
		return found
	}
	found["code"], found["message"], found["status"], found["retry"] = string(refusal.Code), refusal.Message, refusal.Status, refusal.Retry
	found["detail"], found["request"], found["results"] = write(refusal.Detail), orNull(refusal.Request), write(resultsOf(refusal.Results))
	if refusal.Detail == nil {
		found["detail"] = map[string]any{}
	}
	found["statement"], found["line"], found["column"] = orNull(refusal.Statement), orNull(refusal.Line), orNull(refusal.Column)
	return found
}

func kindOf(err error) string {
	var refusal *store.Error
	for _, one := range []struct {
		target error
		kind   string
	}{
		{context.Canceled, "Cancelled"}, {store.ErrClosed, "Closed"}, {errLoader, "Loader"}, {fs.ErrExist, "Exists"},
		{store.ErrOutcomeUnknown, "OutcomeUnknown"}, {store.ErrUnreachable, "Unreachable"}, {store.ErrProtocolBroken, "ProtocolBroken"},
	} {
		if errors.Is(err, one.target) {
			return one.kind
		}
	}
	if errors.As(err, &refusal) {
		return "Refused"
	}
	if strings.HasPrefix(err.Error(), "storeclient: ") { // an argument
		return "Invalid"
	}
	return "Testee"
}
