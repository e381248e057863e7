package storeclient

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"storenode/clients/go/internal/times"
)

// Option configures a [Client].
type Option func(*options)

type options struct {
	credential     credential
	tls            *tls.Config
	timeout        time.Duration
	connectTimeout time.Duration
	readsAny       bool
	onConnection   func(ConnectionEvent)
	log            *slog.Logger
	trace          Trace
	pulse          times.Times
}

// WithUser signs in with a user and password.
func WithUser(user, password string) Option {
	return func(o *options) { o.credential.user, o.credential.password = user, password }
}

// WithToken signs in with a token of POST /session. A token is valid at the node that issued it.
func WithToken(token string) Option { return func(o *options) { o.credential.token = token } }

// WithTLS secures the connections. The certificate must be of the host of the address, unless config
// names another. A nil config trusts the certificate authorities of the system.
func WithTLS(config *tls.Config) Option {
	if config == nil {
		config = &tls.Config{}
	}
	return func(o *options) { o.tls = config }
}

// WithTimeout limits the time of each script and operation at the node. Without it only the script's own
// TIMEOUT and the context of a call do.
func WithTimeout(timeout time.Duration) Option { return func(o *options) { o.timeout = timeout } }

// WithConnectTimeout limits the time of making a connection, all attempts together. The default is 10 s.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(o *options) { o.connectTimeout = timeout }
}

// WithReadsAnywhere spreads scripts that only read over all nodes. A node answers once it shows
// everything that this client has read or written.
func WithReadsAnywhere() Option { return func(o *options) { o.readsAny = true } }

// OnConnection calls a function when a connection is made, made again or lost: in order, in a goroutine
// of its own.
func OnConnection(call func(ConnectionEvent)) Option {
	return func(o *options) { o.onConnection = call }
}

// WithLogger logs connections that are made or lost.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Trace is called at the start of each call with its message and operation, such as "RUN" or "KV get".
// The function that it returns is called with the result.
type Trace func(ctx context.Context, call string) (context.Context, func(error))

// WithTrace traces each call.
func WithTrace(trace Trace) Option { return func(o *options) { o.trace = trace } }

// RunOption configures one run of a script.
type RunOption func(*runOptions)

type runOptions struct {
	ns, db     string
	timeout    time.Duration
	reason     string
	repeatable bool
	record     bool
	after      int64
	current    bool
	moment     string
	keep       *Duration
	stop       <-chan struct{}
	waits      bool
}

// In sets the namespace and database that the script starts in.
func In(ns, db string) RunOption { return func(o *runOptions) { o.ns, o.db = ns, db } }

// Timeout limits the time of the script at the node, in place of [WithTimeout].
func Timeout(timeout time.Duration) RunOption { return func(o *runOptions) { o.timeout = timeout } }

// Reason is kept with the statements in the statement log.
func Reason(reason string) RunOption { return func(o *runOptions) { o.reason = reason } }

// Repeatable declares that running the script twice does no harm. It is sent again after a broken
// connection, up to 8 times.
func Repeatable() RunOption { return func(o *runOptions) { o.repeatable = true } }

// Record keeps a script that only reads in the statement log too.
func Record() RunOption { return func(o *runOptions) { o.record = true } }

// After makes the node wait until it shows sequence seq, such as the Seq of another client's answer.
func After(seq int64) RunOption { return func(o *runOptions) { o.after = seq } }

// Current makes the script see every commit of any node that precedes it: a linearizable read.
func Current() RunOption { return func(o *runOptions) { o.current = true } }

func gather[T any, F ~func(*T)](given []F) T {
	var found T
	for _, one := range given {
		one(&found)
	}
	return found
}
