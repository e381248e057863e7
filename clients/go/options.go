package storeclient

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"
)

// Option is one of a client.
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
	pulse          pulse
}

// WithUser signs in with a user and password.
func WithUser(user, password string) Option {
	return func(o *options) { o.credential.user, o.credential.password = user, password }
}

// WithToken signs in with a token of POST /session, which is of one node.
func WithToken(token string) Option { return func(o *options) { o.credential.token = token } }

// WithTLS has connections secured. The host of the address is the name that the certificate must have,
// unless the configuration names another. nil: a certificate that the system trusts.
func WithTLS(config *tls.Config) Option {
	if config == nil {
		config = &tls.Config{}
	}
	return func(o *options) { o.tls = config }
}

// WithTimeout bounds each script and operation at the node. Without it the script itself says, and
// the context of a call.
func WithTimeout(timeout time.Duration) Option { return func(o *options) { o.timeout = timeout } }

// WithConnectTimeout is the time in which a connection must stand, all attempts together: 10 s by default.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(o *options) { o.connectTimeout = timeout }
}

// WithReadsAnywhere has what only reads asked of all nodes in turn, each of which first waits until
// it shows all that this client has seen or done.
func WithReadsAnywhere() Option { return func(o *options) { o.readsAny = true } }

// OnConnection is called when a connection has come to stand, again too, or is lost: in order, and in
// a goroutine of its own.
func OnConnection(call func(ConnectionEvent)) Option {
	return func(o *options) { o.onConnection = call }
}

// WithLogger logs connections that come to stand or are lost.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Trace is called when a call begins, named by its message and operation, such as "RUN" or "KV get".
// What it returns is called with what became of it.
type Trace func(ctx context.Context, call string) (context.Context, func(error))

// WithTrace has each call traced.
func WithTrace(trace Trace) Option { return func(o *options) { o.trace = trace } }

// RunOption is one of a script.
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

// In names the namespace and database that the script starts in.
func In(ns, db string) RunOption { return func(o *runOptions) { o.ns, o.db = ns, db } }

// Timeout bounds the script at the node, in place of the client's own.
func Timeout(timeout time.Duration) RunOption { return func(o *runOptions) { o.timeout = timeout } }

// Reason is kept with the statements in the statement log.
func Reason(reason string) RunOption { return func(o *runOptions) { o.reason = reason } }

// Repeatable says that running the script twice does no harm: after a broken connection it is sent
// again, until nine have ended under it.
func Repeatable() RunOption { return func(o *runOptions) { o.repeatable = true } }

// Record has the statement log keep the script though it only reads.
func Record() RunOption { return func(o *runOptions) { o.record = true } }

// After has the node wait until it shows that sequence, such as the Seq of another client's answer.
func After(seq int64) RunOption { return func(o *runOptions) { o.after = seq } }

// Current has the script show all that was committed on any node before it was asked for.
func Current() RunOption { return func(o *runOptions) { o.current = true } }

func gather[T any, F ~func(*T)](given []F) T {
	var found T
	for _, one := range given {
		one(&found)
	}
	return found
}
