package storeclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"storenode/clients/go/internal/times"
)

// Client is a handle on a store. It is safe for concurrent use by any number of goroutines.
type Client struct {
	options options
	nodes   *nodes
	seen    seen

	mu     sync.Mutex
	makers []maker
}

// maker is the node that has made a moment: another knows nothing of it.
type maker struct {
	moment string
	node   *node
}

const makersKept = 1024

// Open returns a client of the node at address, or of the nodes of one store at comma-separated
// addresses. It does not connect: the first call does, or [Client.Connect].
func Open(address string, opts ...Option) (*Client, error) {
	given := options{connectTimeout: 10 * time.Second, pulse: times.Current()}
	for _, one := range opts {
		one(&given)
	}
	switch {
	case given.credential.user != "" && given.credential.token != "":
		return nil, errors.New("storeclient: sign in with user and password, or with a token, not with both")
	case given.connectTimeout <= 0:
		return nil, fmt.Errorf("storeclient: the time to connect is longer than nothing, not %v", given.connectTimeout)
	}
	found, err := newNodes(address, &settings{given.credential, given.tls, given.pulse})
	if err != nil {
		return nil, err
	}
	found.connectTimeout, found.onConnection, found.log = given.connectTimeout, given.onConnection, given.log
	found.ctx, found.stop = context.WithCancel(context.Background())
	given.credential = credential{} // it stands with the connections alone: nothing that is printed shows it
	return &Client{options: given, nodes: found}, nil
}

// String returns the addresses of the client, without its credentials.
func (c *Client) String() string { return "storeclient to " + c.nodes.where() }

// GoString returns the same as [Client.String].
func (c *Client) GoString() string { return c.String() }

// Connect connects if the client is not connected yet, and returns the node's welcome.
func (c *Client) Connect(ctx context.Context) (Welcome, error) {
	_, conn, err := c.nodes.findHome(ctx)
	if err != nil {
		return Welcome{}, err
	}
	return conn.welcome, nil
}

// Ping sends a round trip to the node.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, request{kind: kindPing, timeout: c.nodes.connectTimeout}, asking{repeatable: true})
	return err
}

// Close waits for the calls in flight, backups included, and closes the connections. Calls that only
// wait for messages or changes end with [ErrClosed], and so does every later call. Closing twice is
// safe. Close always returns nil.
func (c *Client) Close() error {
	c.nodes.close()
	return nil
}

// Run runs a script and returns the results of all its statements. A script that is one BEGIN … COMMIT
// is a transaction.
func (c *Client) Run(ctx context.Context, script string, params Params, opts ...RunOption) (*Answer, error) {
	return c.run(ctx, script, params, gather(opts))
}

func (c *Client) run(ctx context.Context, script string, params Params, o runOptions) (*Answer, error) {
	timeout := c.options.timeout
	if o.timeout != 0 {
		timeout = o.timeout
	}
	body := append(make([]field, 0, 8), field{"script", script})
	if len(params) > 0 {
		body = append(body, field{"params", params})
	}
	for _, one := range []struct{ name, value string }{
		{"ns", o.ns}, {"db", o.db}, {"reason", o.reason}, {"moment", o.moment},
	} {
		if one.value != "" {
			body = append(body, field{one.name, one.value})
		}
	}
	if o.record {
		body = append(body, field{"record", true})
	}
	if o.current {
		body = append(body, field{"current", true})
	}
	if o.after != 0 {
		body = append(body, field{"after", o.after})
	}
	if o.keep != nil {
		body = append(body, field{"keep", *o.keep})
	}
	asked := request{kind: kindRun, waits: o.waits, stop: o.stop}
	if timeout != 0 {
		body, asked.timeout = append(body, field{"timeout", timeout}), timeout+c.options.pulse.Grace
	}
	asked.body = body
	how := asking{repeatable: o.repeatable, at: c.makerOf(o.moment), stop: o.stop}
	how.spread = c.readsAnywhere() && seemsToRead(script) &&
		o.moment == "" && o.reason == "" && !o.record && !o.current
	found, err := c.ask(ctx, asked, how)
	if err != nil {
		switch refusal := refusalOf(err); {
		case refusal != nil && refusal.Committed() != 0:
			c.seen.reached(refusal.Committed(), 0)
		case errors.Is(err, ErrOutcomeUnknown) || ctx.Err() != nil:
			c.seen.missed()
		}
		return nil, err
	}
	return found.(*Answer), nil
}

// asking says how a request is asked.
type asking struct {
	repeatable bool
	spread     bool  // any node may be asked, that shows all that this client has seen
	at         *node // to be asked while its connection stands
	stop       <-chan struct{}
}

func (c *Client) ask(ctx context.Context, r request, how asking) (found any, err error) {
	if c.options.trace != nil {
		name := r.kind.String()
		if len(r.body) > 0 && r.body[0].name == "op" {
			name += " " + r.body[0].value.(string)
		}
		var over func(error)
		ctx, over = c.options.trace(ctx, name)
		defer func() { over(err) }()
	}
	tries := &attempts{client: c, repeatable: how.repeatable, spread: how.spread, at: how.at, stop: how.stop}
	found, err = tries.do(ctx, func(n *node, conn *connection) (any, error) {
		sent := r
		if tries.spread {
			sent.body = c.behindWhatWasSeen(r.body, conn)
		}
		if err := checkKnown(conn, sent); err != nil {
			return nil, err
		}
		mark := c.seen.mark()
		found, err := conn.ask(ctx, sent)
		if err != nil {
			return nil, err
		}
		if answer, ok := found.(*Answer); ok {
			return answer, c.answered(n, answer, mark)
		}
		return found, nil
	})
	if refusal := refusalOf(err); refusal != nil && refusal.Code == Cancelled && r.waits && c.nodes.isClosed() {
		err = ErrClosed
	}
	return found, err
}

// behindWhatWasSeen returns the request of a read for a node that may be behind.
func (c *Client) behindWhatWasSeen(body []field, conn *connection) []field {
	after := c.seen.after()
	at := slices.IndexFunc(body, func(one field) bool { return one.name == "after" })
	if after == 0 || conn.welcome.Minor < minorOfAfter {
		return body
	}
	body = slices.Clone(body)
	if at < 0 {
		return append(body, field{"after", after})
	}
	if given, ok := body[at].value.(int64); ok {
		body[at].value = max(given, after)
	}
	return body
}

// answered keeps what an answer tells of how far the store has come.
func (c *Client) answered(n *node, answer *Answer, asked mark) error {
	if answer.moment != "" && c.nodes.areSeveral() {
		c.rememberMaker(answer.moment, n)
	}
	switch {
	case c.nodes.isHome(n) && c.nodes.mayTakeChanges(n):
		c.seen.told(answer.Position(), &asked)
	case !c.nodes.isHome(n) && c.seen.isForeign(answer):
		c.nodes.isForeign(n)
		return broken("%s is a node of another store, %s: it is not read any more", n.where(), answer.Store)
	default:
		c.seen.told(answer.Position(), nil)
	}
	return nil
}

// change does one operation that may change something. Its answer says at which commit it was done,
// if it was; that of an operation on a seal does not, nor do those of nodes before minor 8.
func (c *Client) change(ctx context.Context, r request) (Object, error) {
	found, err := c.ask(ctx, r, asking{stop: r.stop})
	if err != nil {
		if errors.Is(err, ErrOutcomeUnknown) || ctx.Err() != nil {
			c.seen.missed()
		}
		return nil, err
	}
	fields := found.(Object)
	if seq, isTold := fields["seq"].(int64); isTold {
		c.seen.reached(seq, 0)
	} else if r.kind == kindVault || !c.tellsSequences() {
		c.seen.missed()
	}
	return fields, nil
}

func (c *Client) tellsSequences() bool {
	c.nodes.mu.Lock()
	defer c.nodes.mu.Unlock()
	home := c.nodes.home
	return home != nil && home.conn != nil && home.conn.welcome.Minor >= minorOfSequences
}

func (c *Client) readsAnywhere() bool {
	return c.options.readsAny && c.nodes.areSeveral() && c.seen.isWhole()
}

func (c *Client) rememberMaker(moment string, n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makers = slices.DeleteFunc(c.makers, func(one maker) bool { return one.moment == moment })
	if len(c.makers) >= makersKept {
		c.makers = c.makers[1:]
	}
	c.makers = append(c.makers, maker{moment, n})
}

func (c *Client) makerOf(moment string) *node {
	if moment == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.makers {
		if one.moment == moment {
			return one.node
		}
	}
	return nil
}

// checkKnown refuses what the node is too old for.
func checkKnown(conn *connection, r request) error {
	has := func(name string) bool {
		return slices.ContainsFunc(r.body, func(one field) bool { return one.name == name })
	}
	switch {
	case r.kind == kindRun && has("after"):
		return conn.needs(minorOfAfter, "requests that come after a sequence")
	case r.kind == kindRun && has("current"):
		return conn.needs(minorOfSequences, "requests that read what is current")
	case r.kind == kindWatch:
		return conn.needs(minorOfFeeds, "feeds")
	case r.kind == kindVault:
		return conn.needs(minorOfVaults, "vaults")
	}
	return nil
}

func (c *connection) needs(minor int, what string) error {
	if c.welcome.Minor >= minor {
		return nil
	}
	return &Error{
		Code: VersionNotSupported, Status: 505,
		Message: fmt.Sprintf("node %s of version %s speaks minor %d of the wire, which has no %s: they came with %d",
			c.welcome.Node, c.welcome.Version, c.welcome.Minor, what, minor),
	}
}

// --- one database --------------------------------------------------------------------------------

// Database is a handle on one database of a [Client], so that namespace and database are named once.
type Database struct {
	client *Client
	ns, db string
	err    error
}

// Database returns a handle on a database. It sends nothing; an invalid name is the error of the first
// call.
func (c *Client) Database(ns, db string) *Database {
	return &Database{c, ns, db, checkNames(ns, db)}
}

// Run runs a script in this database; see [Client.Run].
func (d *Database) Run(ctx context.Context, script string, params Params, opts ...RunOption) (*Answer, error) {
	return d.run(ctx, script, params, gather(opts))
}

func (d *Database) run(ctx context.Context, script string, params Params, o runOptions) (*Answer, error) {
	if d.err != nil {
		return nil, d.err
	}
	o.ns, o.db = d.ns, d.db
	return d.client.run(ctx, script, params, o)
}

// Runner is the interface of [*Client], [*Database] and [*Moment] for running scripts.
type Runner interface {
	Run(ctx context.Context, script string, params Params, opts ...RunOption) (*Answer, error)
}

// Query runs a script and returns the value of its last statement, decoded as by [Decode].
func Query[T any](ctx context.Context, on Runner, script string, params Params, opts ...RunOption) (T, error) {
	answer, err := on.Run(ctx, script, params, opts...)
	if err != nil {
		var none T
		return none, err
	}
	return as[T](answer.Value())
}

// Rows iterates over the rows of a SELECT from one table in the order of their ids, reading page by
// page. The fields must include id, and the text must not have VALUE, SPLIT, GROUP, ORDER, LIMIT, START,
// FETCH or TIMEOUT. Each page shows what is committed when it is read; on a [*Moment] all pages are of
// that moment. An error ends the iteration.
func Rows[T any](ctx context.Context, on Runner, selects string, params Params, opts ...RowsOption) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		all, err := newPages(selects, params, gather(opts).page)
		for err == nil && !all.over {
			script, given := all.next()
			var rows []any
			if rows, err = Query[[]any](ctx, on, script, given, Repeatable()); err != nil {
				break
			}
			if err = all.took(rows); err != nil {
				break
			}
			for _, row := range rows {
				var one T
				if one, err = as[T](row); err != nil {
					break
				}
				if !yield(one, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(none, err)
		}
	}
}

// RowsOption configures [Rows].
type RowsOption func(*rowsOptions)

type rowsOptions struct{ page int }

// Page sets the number of rows in one request. The default is 1000.
func Page(rows int) RowsOption { return func(o *rowsOptions) { o.page = rows } }
