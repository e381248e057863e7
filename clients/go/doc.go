// Package storeclient is the Go client of storenode. It speaks the wire protocol and needs the standard
// library alone.
//
// A [Client] serves a whole program: it is safe for concurrent use, and multiplexes the requests of all
// goroutines on one connection to each node. It connects on first use and reconnects by itself.
//
//	client, err := storeclient.Open("127.0.0.1:8001", storeclient.WithUser("root", password))
//	db := client.Database("shop", "main")
//	lamps, err := storeclient.Query[[]Item](ctx, db, "SELECT * FROM item WHERE name = $n", storeclient.Params{"n": "lamp"})
//
// # Errors
//
// A refusal of the node is an [*Error]. Its code is a target of [errors.Is]:
//
//	if errors.Is(err, storeclient.AlreadyExists) { … }
//
// Other errors are [ErrOutcomeUnknown] (the request was sent and its answer will not come: it may have
// been done), [ErrUnreachable] (no connection in time: nothing was sent), [ErrProtocolBroken] and
// [ErrClosed]. The client never sends a request again that may have been done, unless it only reads or is
// [Repeatable].
//
// # Contexts
//
// A call returns as soon as its context ends. The node is asked to cancel the request, and the connection
// stays open. If the call may have changed something, its error matches both [ErrOutcomeUnknown] and the
// context's error.
//
// # Values
//
// The types of the language are, in Go:
//
//	none, null                              None, nil
//	bool, int, float, string, bytes         bool, int64, float64, string, []byte
//	decimal, datetime, duration             Decimal, time.Time (UTC), Duration
//	uuid, record                            UUID, RecordID
//	array, object                           []any, map[string]any
//
// Arguments may also be structs, named types, pointers, slices and maps with string keys, and a
// [time.Duration]. [Decode], [Query], [Rows] and [Get] store values in them. The name of a struct field
// starts in lower case (id of ID, createdAt of CreatedAt), or is that of its tag `store:"name,omitempty"`.
// A value that does not fit is reported with its path, such as [3].price, by a [*DecodeError] or, before
// anything is sent, a [*ValueError].
package storeclient
