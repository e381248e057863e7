// Package storeclient is the Go client of storenode, over its wire protocol.
//
// A [Client] is one handle for a whole program: any number of goroutines use it at once, and their
// requests travel beside each other on one connection to each node. It connects when it is first
// used, and again whenever a connection breaks.
//
//	client, err := storeclient.Open("127.0.0.1:8001", storeclient.WithUser("root", password))
//	db := client.Database("shop", "main")
//	lamps, err := storeclient.Query[[]Item](ctx, db, "SELECT * FROM item WHERE name = $n", storeclient.Params{"n": "lamp"})
//
// # Errors
//
// A refusal of the node is an [*Error]; its code is asked for with [errors.Is]:
//
//	if errors.Is(err, storeclient.AlreadyExists) { … }
//
// Beside refusals there are [ErrOutcomeUnknown] (a request was sent and its answer will not come: it
// may have been done), [ErrUnreachable] (no connection in time: nothing was sent),
// [ErrProtocolBroken] and [ErrClosed]. Nothing that may have been done is ever sent again by the
// client itself, unless it is [Repeatable].
//
// # Contexts
//
// A context that ends takes its call back at once: the node is asked to end the request, and the
// connection goes on. The error of a call that may have changed something is [ErrOutcomeUnknown]
// and the context's own then.
//
// # Values
//
// null is nil, and none is [None]. bool, int64, float64, string, []byte, []any and map[string]any
// are what they are; [Decimal], [time.Time], [Duration], [UUID] and [RecordID] are exact in both
// directions. Structs go out as objects and come back by [Decode], [Query] and [Rows]: a field is
// named as it is with its first letters in lower case, or by its tag `store:"name,omitempty"`.
package storeclient
