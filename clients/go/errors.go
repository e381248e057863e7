package storeclient

import (
	"errors"
	"fmt"
)

// Errors other than a refusal of the node, for [errors.Is].
var (
	// ErrOutcomeUnknown means that a request was sent and its answer will not come. The request may have
	// been done in full, in part or not at all. The node's code [UnknownOutcome] matches it too.
	ErrOutcomeUnknown = errors.New("storeclient: outcome unknown")
	// ErrUnreachable means that no connection could be made in time. Nothing was sent.
	ErrUnreachable = errors.New("storeclient: unreachable")
	// ErrProtocolBroken means that the peer does not speak the wire protocol.
	ErrProtocolBroken = errors.New("storeclient: protocol broken")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("storeclient: the client has been closed")
)

// Code is the stable name of a refusal. It is a target of [errors.Is]:
//
//	if errors.Is(err, storeclient.AlreadyExists) { … }
type Code string

// Error returns the code's name.
func (c Code) Error() string { return string(c) }

// Error is a refusal of the node.
type Error struct {
	Code    Code
	Message string
	// Status is the HTTP status of the same error.
	Status int
	// Retry is true if the same request may succeed later.
	Retry bool
	// Detail has keys that are stable for a code.
	Detail Object
	// Request names the request in the node's log.
	Request string
	// Statement, Line and Column locate the refusal in the script, from 1; 0 means nowhere.
	Statement, Line, Column int
	// Results are those of the statements before the refused one.
	Results []Result
}

// Error returns the code and the message.
func (e *Error) Error() string {
	said := e.Message
	if e.Line > 0 {
		said = fmt.Sprintf("%s (statement %d, line %d, column %d)", firstLine(said), e.Statement, e.Line, e.Column)
	}
	return fmt.Sprintf("storeclient: %s: %s", e.Code, said)
}

func firstLine(text string) string {
	for n, one := range text {
		if one == '\n' {
			return text[:n]
		}
	}
	return text
}

// Is reports whether target is the code of e. [ErrOutcomeUnknown] matches [UnknownOutcome] too.
func (e *Error) Is(target error) bool {
	if code, ok := target.(Code); ok {
		return e.Code == code
	}
	return target == ErrOutcomeUnknown && e.Code == UnknownOutcome
}

// Committed returns the newest sequence that the script committed before it was refused. 0 means that it
// changed nothing and can be sent again as a whole.
func (e *Error) Committed() int64 {
	seq, _ := e.Detail["committed"].(int64)
	return seq
}

// refusalOf returns the refusal that an error is; nil: it is another. One that a refusal is only the
// cause of, such as an outcome that is unknown since the node's last word ended the connection, is none.
func refusalOf(err error) *Error {
	found, _ := err.(*Error)
	return found
}

// isBehind reports whether a node did not show in time what the request was to come after.
func (e *Error) isBehind() bool {
	_, late := e.Detail["after"]
	return e.Code == StatementTimeout && late
}

// failure is one of the Err… above, with what it came of.
type failure struct {
	kind  error
	said  string
	cause error
}

func (f *failure) Error() string {
	text := f.kind.Error()
	if f.said != "" {
		text += ": " + f.said
	}
	if f.cause != nil {
		text += ": " + f.cause.Error()
	}
	return text
}

func (f *failure) Is(target error) bool { return target == f.kind }

func (f *failure) Unwrap() error { return f.cause }

func broken(format string, args ...any) error {
	return &failure{kind: ErrProtocolBroken, said: fmt.Sprintf(format, args...)}
}

// errNotSent ends a request of which nothing was written: it is sent on another connection.
var errNotSent = errors.New("storeclient: not sent")

// isOutage reports whether an error goes away with time: a node that is away, stops, is full, only
// reads, or is behind.
func isOutage(err error) bool {
	if refusal := refusalOf(err); refusal != nil && refusal.Code != UnknownOutcome {
		return refusal.Retry || refusal.isBehind() || refusal.Code == NotWritable
	}
	return errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrUnreachable)
}

// readError reads the error of a refusal; whatever it is, it is an error.
func readError(body Object) error {
	told, ok := body["error"].(Object)
	if !ok {
		return broken("the node sent an error without its fields")
	}
	code, isCode := told["code"].(string)
	message, isMessage := told["message"].(string)
	status, isStatus := told["status"].(int64)
	retry, isRetry := told["retry"].(bool)
	if !(isCode && isMessage && isStatus && isRetry) {
		return broken("the node sent an error without its fields")
	}
	found := &Error{Code: Code(code), Message: message, Status: int(status), Retry: retry}
	var err error
	if found.Detail, err = optional[Object](told, "detail"); err != nil {
		return err
	}
	if found.Request, err = optional[string](told, "request"); err != nil {
		return err
	}
	for name, field := range map[string]*int{
		"statement": &found.Statement, "line": &found.Line, "column": &found.Column,
	} {
		number, err := optional[int64](told, name)
		if err != nil {
			return err
		}
		*field = int(number)
	}
	results, err := readResults(body["results"])
	if err != nil {
		return err
	}
	found.Results = results
	return found
}
