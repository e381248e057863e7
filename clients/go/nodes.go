package storeclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultPort = "8001"
	backoffMin  = 20 * time.Millisecond
	backoffMost = 500 * time.Millisecond
	// awayTime is how long a node is left alone that could not be reached, or was too far behind.
	awayTime = 5 * time.Second
	// nodesMost bounds the nodes that a client knows.
	nodesMost = 64

	retryMin  = 50 * time.Millisecond
	retryMost = 5 * time.Second
)

// backoff is the pause between attempts: longer each time, and somewhat at random.
type backoff struct{ next, least, most time.Duration }

func retryBackoff() backoff { return backoff{retryMin, retryMin, retryMost} }

func (b *backoff) step() time.Duration {
	now := time.Duration(float64(b.next) * (0.5 + rand.Float64()/2))
	b.next = min(2*b.next, b.most)
	return now
}

func (b *backoff) reset() { b.next = b.least }

// wait pauses until the next attempt, or until somebody stops. It returns the context's error.
func (b *backoff) wait(ctx context.Context, stop <-chan struct{}) error {
	timer := time.NewTimer(b.step())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// ConnectionChange is the kind of a [ConnectionEvent].
type ConnectionChange string

// Kinds of connection events.
const (
	Connected   ConnectionChange = "connected"
	Reconnected ConnectionChange = "reconnected"
	Lost        ConnectionChange = "lost"
)

// ConnectionEvent reports that a connection was made, made again, or lost.
type ConnectionEvent struct {
	Change  ConnectionChange
	Address string
	Version string // of the node, once connected
	Err     error  // cause of the loss; nil if the node or this client closed it
}

// node is one of a store: its address, and the connection to it.
type node struct {
	host, port string

	// What follows is guarded by nodes.mu.
	conn         *connection
	takesChanges *bool // nil: not known
	isForeign    bool  // it is of another store
	restsUntil   time.Time
	wasConnected bool
	opening      *opening
}

func (n *node) where() string { return net.JoinHostPort(n.host, n.port) }

// opening is an attempt to connect that several may wait for.
type opening struct {
	done chan struct{}
	conn *connection
	err  error
}

// nodes are all of them. One is home: all is asked there that is not asked elsewhere on purpose.
type nodes struct {
	settings       *settings
	connectTimeout time.Duration
	onConnection   func(ConnectionEvent)
	log            *slog.Logger
	given          []string
	events         events
	isClosing      atomic.Bool
	ctx            context.Context // ends when the client is closed
	stop           context.CancelFunc
	work           sync.WaitGroup

	mu      sync.Mutex
	all     []*node
	home    *node
	named   []*node // said to take changes by a node that does not: asked first
	finding *search
	turn    int
	closed  bool
}

// search is one for a home.
type search struct {
	done chan struct{}
	node *node
	conn *connection
	err  error
}

// splitAddress reads host:port, host, :port or [::1]:port.
func splitAddress(address string) (host, port string, err error) {
	wrong := func() (string, string, error) {
		return "", "", fmt.Errorf("storeclient: %.80q is no address: write host:port or [host]:port", address)
	}
	if rest, found := strings.CutPrefix(address, "["); found {
		var after string
		if host, after, found = strings.Cut(rest, "]"); !found || (after != "" && after[0] != ':') {
			return wrong()
		}
		port = strings.TrimPrefix(after, ":")
	} else {
		host, port, _ = strings.Cut(address, ":")
		if strings.Contains(port, ":") {
			return wrong()
		}
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = defaultPort
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return wrong()
	}
	return host, port, nil
}

func newNodes(address string, s *settings) (*nodes, error) {
	found := &nodes{settings: s}
	for one := range strings.SplitSeq(address, ",") {
		host, port, err := splitAddress(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if found.at(host, port) == nil {
			one := &node{host: host, port: port}
			found.all, found.given = append(found.all, one), append(found.given, one.where())
		}
	}
	if len(found.all) > nodesMost {
		return nil, fmt.Errorf("storeclient: a client knows at most %d nodes, not %d", nodesMost, len(found.all))
	}
	if s.credential.token != "" && len(found.all) > 1 {
		return nil, errors.New("storeclient: a token is of one node: with several addresses, give user and password")
	}
	return found, nil
}

func (ns *nodes) at(host, port string) *node {
	for _, one := range ns.all {
		if one.host == host && one.port == port {
			return one
		}
	}
	return nil
}

func (ns *nodes) where() string { return strings.Join(ns.given, ", ") }

func (ns *nodes) areSeveral() bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return len(ns.all) > 1
}

func (ns *nodes) isHome(n *node) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.home == n
}

func (ns *nodes) isClosed() bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.closed
}

// findHome returns the node to ask, connected.
func (ns *nodes) findHome(ctx context.Context) (*node, *connection, error) {
	ns.mu.Lock()
	if ns.closed {
		ns.mu.Unlock()
		return nil, nil, ErrClosed
	}
	if home := ns.home; home != nil && home.conn != nil && home.conn.usable() {
		conn := home.conn
		ns.mu.Unlock()
		return home, conn, nil
	}
	finding := ns.finding
	if finding == nil {
		finding = &search{done: make(chan struct{})}
		ns.finding = finding
		ns.work.Add(1)
		go ns.search(finding)
	}
	ns.mu.Unlock()
	select {
	case <-finding.done:
		return finding.node, finding.conn, finding.err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (ns *nodes) search(finding *search) {
	defer ns.work.Done()
	ctx, cancel := context.WithTimeout(ns.ctx, ns.connectTimeout)
	defer cancel()
	found, conn, err := ns.find(ctx)
	ns.mu.Lock()
	ns.finding = nil
	if ns.closed && err != nil {
		err = ErrClosed
	}
	if err == nil {
		ns.home = found
	}
	ns.mu.Unlock()
	finding.node, finding.conn, finding.err = found, conn, err
	close(finding.done)
}

// find asks one after the other, and the named ones first.
func (ns *nodes) find(ctx context.Context) (*node, *connection, error) {
	deadline, _ := ctx.Deadline()
	pause := backoff{backoffMin, backoffMin, backoffMost}
	for {
		found, conn, errs := ns.askRound(ctx, deadline)
		if found != nil {
			return found, conn, nil
		}
		last := errs[len(errs)-1]
		if !slices.ContainsFunc(errs, mayGoAway) {
			return nil, nil, ns.whatEnds(last)
		}
		step := pause.step()
		if time.Until(deadline) <= step || ctx.Err() != nil {
			return nil, nil, &failure{
				ErrUnreachable, fmt.Sprintf("no connection to %s in %v", ns.where(), ns.connectTimeout), last,
			}
		}
		select {
		case <-time.After(step):
		case <-ctx.Done():
		}
	}
}

// mayGoAway reports whether there is use in another attempt.
func mayGoAway(err error) bool {
	if refusal := refusalOf(err); refusal != nil {
		return refusal.Retry
	}
	return !isUntrusted(err) && !speaksNoTLS(err) && !errors.Is(err, ErrProtocolBroken)
}

func isUntrusted(err error) bool {
	var found *tls.CertificateVerificationError
	return errors.As(err, &found)
}

func speaksNoTLS(err error) bool {
	var found tls.RecordHeaderError
	return errors.As(err, &found)
}

// whatEnds returns what the callers of a search are told that goes on no more.
func (ns *nodes) whatEnds(last error) error {
	switch {
	case isUntrusted(last):
		return &failure{ErrUnreachable, "the certificate of " + ns.where() + " is not trusted", last}
	case speaksNoTLS(last):
		return &failure{ErrUnreachable, "no TLS is spoken at " + ns.where() + ": connect without it, or to another port", last}
	case refusalOf(last) == nil:
		return &failure{ErrUnreachable, "no connection to " + ns.where(), last}
	}
	return last
}

// askRound returns the node that takes changes, or else one that answers, or what all have failed with.
func (ns *nodes) askRound(ctx context.Context, deadline time.Time) (*node, *connection, []error) {
	waiting := ns.inOrder()
	asked := map[*node]bool{}
	var second *node
	var secondConn *connection
	var errs []error
	for len(waiting) > 0 {
		one := waiting[0]
		waiting = waiting[1:]
		if asked[one] {
			continue
		}
		asked[one] = true
		share := max(time.Until(deadline), 0) / time.Duration(1+len(waiting))
		conn, err := ns.open(ctx, one, share)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ns.mu.Lock()
		if one.takesChanges == nil || *one.takesChanges {
			ns.named = nil
			ns.mu.Unlock()
			return one, conn, nil
		}
		waiting = append(ns.nodesAt(conn.welcome.Leader), waiting...)
		ns.mu.Unlock()
		if second == nil {
			second, secondConn = one, conn
		}
	}
	return second, secondConn, errs
}

// inOrder returns the named nodes, those that take changes or may, and the others.
func (ns *nodes) inOrder() []*node {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	order := slices.Clone(ns.named)
	for _, reads := range []bool{false, true} {
		for _, one := range ns.all {
			if (one.takesChanges != nil && !*one.takesChanges) == reads && !slices.Contains(order, one) {
				order = append(order, one)
			}
		}
	}
	return order
}

// nodesAt returns those at addresses that a node has named, made known if they are not. What is no address is passed over.
func (ns *nodes) nodesAt(endpoints []string) []*node {
	if len(ns.all) < 2 {
		return nil
	}
	var found []*node
	for _, endpoint := range endpoints {
		host, port, err := splitAddress(endpoint)
		if err != nil {
			continue
		}
		one := ns.at(host, port)
		if one == nil {
			if len(ns.all) >= nodesMost {
				continue
			}
			one = &node{host: host, port: port}
			ns.all = append(ns.all, one)
		}
		found = append(found, one)
	}
	return found
}

// open returns the connection of a node. Where there is none one attempt is made.
func (ns *nodes) open(ctx context.Context, n *node, within time.Duration) (*connection, error) {
	ns.mu.Lock()
	if n.conn != nil && n.conn.usable() {
		conn := n.conn
		ns.mu.Unlock()
		return conn, nil
	}
	if ns.closed {
		ns.mu.Unlock()
		return nil, ErrClosed
	}
	attempt := n.opening
	if attempt == nil {
		attempt = &opening{done: make(chan struct{})}
		n.opening = attempt
		ns.work.Add(1)
		go ns.connect(n, attempt, within)
	}
	ns.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-attempt.done:
		return attempt.conn, attempt.err
	case <-timer.C:
		return nil, context.DeadlineExceeded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (ns *nodes) connect(n *node, attempt *opening, within time.Duration) {
	defer ns.work.Done()
	ctx, cancel := context.WithTimeout(ns.ctx, within)
	defer cancel()
	where, told := n.where(), make(chan struct{})
	conn, err := dial(ctx, n.host, n.port, ns.settings, func(cause error) {
		if !ns.isClosing.Load() {
			<-told // a connection is lost after it was made, however soon
			ns.tell(ConnectionEvent{Change: Lost, Address: where, Err: cause})
		}
	})
	ns.mu.Lock()
	n.opening = nil
	if err != nil {
		n.restsUntil = time.Now().Add(awayTime)
	} else {
		if before := n.conn; before != nil {
			ns.work.Add(1)
			go func() { // it parts: what is open there is answered
				defer ns.work.Done()
				<-before.done
			}()
		}
		writable := conn.welcome.Writable
		n.conn, n.takesChanges, n.restsUntil = conn, &writable, time.Time{}
		change := Connected
		if n.wasConnected {
			change = Reconnected
		}
		n.wasConnected = true
		ns.tell(ConnectionEvent{Change: change, Address: where, Version: conn.welcome.Version})
	}
	close(told)
	closed := ns.closed
	ns.mu.Unlock()
	attempt.conn, attempt.err = conn, err
	close(attempt.done)
	if closed && conn != nil {
		conn.close()
	}
}

// tell tells of a connection, in order and in a goroutine of its own: a log or a callback that takes its
// time holds up no request.
func (ns *nodes) tell(event ConnectionEvent) {
	if ns.log != nil || ns.onConnection != nil {
		ns.events.add(event, ns.announce)
	}
}

func (ns *nodes) announce(event ConnectionEvent) {
	if ns.log != nil {
		level, told := slog.LevelInfo, []any{"address", event.Address}
		if event.Version != "" {
			told = append(told, "version", event.Version)
		}
		if event.Err != nil {
			level, told = slog.LevelWarn, append(told, "error", event.Err)
		}
		ns.log.Log(context.Background(), level, "storeclient: "+string(event.Change), told...)
	}
	if ns.onConnection != nil {
		ns.onConnection(event)
	}
}

// events are what is to be told, one by one and in order, by a goroutine that is there while there is something.
type events struct {
	mu      sync.Mutex
	waiting []ConnectionEvent
	telling bool
}

func (e *events) add(event ConnectionEvent, tell func(ConnectionEvent)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, event)
	if !e.telling {
		e.telling = true
		go e.run(tell)
	}
}

func (e *events) run(tell func(ConnectionEvent)) {
	for {
		e.mu.Lock()
		if len(e.waiting) == 0 {
			e.telling = false
			e.mu.Unlock()
			return
		}
		event := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.mu.Unlock()
		tell(event)
	}
}

// near returns a node to read from, connected: each in its turn, of those that stand and can wait
// for what is to be seen. The others are connected meanwhile.
func (ns *nodes) near(ctx context.Context) (*node, *connection, error) {
	home, conn, err := ns.findHome(ctx)
	if err != nil {
		return nil, nil, err
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	now := time.Now()
	ready := []*node{}
	for _, one := range ns.all {
		stands := one.conn != nil && one.conn.usable()
		rests := one.restsUntil.After(now)
		switch {
		case one == home:
			ready = append(ready, one)
		case one.isForeign || rests:
		case stands && one.conn.welcome.Minor >= minorOfAfter:
			ready = append(ready, one)
		case !stands && one.opening == nil && !ns.closed:
			one.opening = &opening{done: make(chan struct{})}
			ns.work.Add(1)
			go ns.connect(one, one.opening, ns.connectTimeout)
		}
	}
	ns.turn++
	chosen := ready[ns.turn%len(ready)]
	if chosen == home {
		return home, conn, nil
	}
	return chosen, chosen.conn, nil
}

// standing returns the connection of a node, if that stands.
func (ns *nodes) standing(n *node) *connection {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n != nil && n.conn != nil && n.conn.usable() {
		return n.conn
	}
	return nil
}

// rest leaves a node alone for a while.
func (ns *nodes) rest(n *node) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.restsUntil = time.Now().Add(awayTime)
}

func (ns *nodes) isForeign(n *node) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n.isForeign = true
}

func (ns *nodes) mayTakeChanges(n *node) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return n.takesChanges == nil || *n.takesChanges
}

// refusedBy has another home looked for: a node took no change.
func (ns *nodes) refusedBy(n *node, leader any) {
	var endpoints []string
	_ = Decode(leader, &endpoints) // what is no list names nobody
	ns.mu.Lock()
	defer ns.mu.Unlock()
	no := false
	n.takesChanges = &no
	ns.all = append(slices.DeleteFunc(ns.all, func(one *node) bool { return one == n }), n) // asked last
	ns.named = slices.DeleteFunc(ns.nodesAt(endpoints), func(one *node) bool { return one == n })
	for _, one := range ns.named {
		one.takesChanges = nil
	}
	if ns.home == n {
		ns.home = nil
	}
}

// own returns a connection to home that is nobody else's, and that nobody is told of. The client is not
// closed before over is called.
func (ns *nodes) own(ctx context.Context) (conn *connection, over func(), err error) {
	home, _, err := ns.findHome(ctx)
	if err != nil {
		return nil, nil, err
	}
	ns.mu.Lock()
	if ns.closed {
		ns.mu.Unlock()
		return nil, nil, ErrClosed
	}
	ns.work.Add(1)
	ns.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, ns.connectTimeout)
	defer cancel()
	conn, err = dial(within, home.host, home.port, ns.settings, nil)
	if err == nil {
		return conn, func() {
			conn.end(nil)
			ns.work.Done()
		}, nil
	}
	ns.work.Done()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case refusalOf(err) == nil:
		err = &failure{ErrUnreachable, "no connection to " + home.where(), err}
	}
	return nil, nil, err
}

// close waits for what is under way, then ends all connections.
func (ns *nodes) close() {
	ns.mu.Lock()
	ns.closed = true
	ns.isClosing.Store(true)
	ns.stop()
	var conns []*connection
	for _, one := range ns.all {
		if one.conn != nil {
			conns = append(conns, one.conn)
		}
	}
	ns.mu.Unlock()
	var parting sync.WaitGroup
	for _, conn := range conns {
		parting.Add(1)
		go func() {
			defer parting.Done()
			conn.close()
		}()
	}
	parting.Wait()
	ns.work.Wait()
}
