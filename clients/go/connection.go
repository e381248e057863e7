package storeclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"storenode/clients/go/internal/times"
)

const (
	magic = "STORE"
	major = 1
	// minorMost is the newest minor that this client speaks.
	minorMost = 10

	minorOfFeeds     = 1
	minorOfStreams   = 5
	minorOfVaults    = 6
	minorOfAfter     = 7
	minorOfSequences = 8

	// largeFrame is the size of a frame beside which a node may hear no PING.
	largeFrame = 4 << 10
	// outMost are bytes that wait to be written; past them requests wait.
	outMost = 1 << 20
)

var keepAlive = net.KeepAliveConfig{
	Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3,
}

// Welcome is what a node reports of itself and of the signed-in user.
type Welcome struct {
	Version string
	Node    string
	Minor   int
	Limits  Object
	// User has name, role and space; nil without a sign-in.
	User Object
	// Writable is true if the node accepts writes, and of nodes before minor 7, which do not tell.
	Writable bool
	// Leader has the known addresses of the node that accepts writes if this one does not.
	Leader []string
}

// credential is how a client signs in. Neither password nor token is ever printed.
type credential struct{ user, password, token string }

func (c credential) fields() []field {
	switch {
	case c.token != "":
		return []field{{"token", c.token}}
	case c.user != "":
		return []field{{"user", c.user}, {"password", c.password}}
	}
	return []field{}
}

// settings are those of every connection.
type settings struct {
	credential credential
	tls        *tls.Config
	pulse      times.Times
}

// reply is how a request was settled: an *Answer, the Object of a VALUE, a Welcome, or nothing.
type reply struct {
	value any
	err   error
}

// sink is told what comes of a WATCH or a stream. Its methods are called by the reader of the connection, one at a time.
type sink interface {
	told(body Object, size int)
	ended(reply)
}

// call is a request under way.
type call struct {
	kind  kind
	id    int64
	waits bool // for something to come: close ends it
	sink  sink
	reply chan reply
}

func (c *call) settle(r reply) {
	if c.sink != nil {
		c.sink.ended(r)
	} else {
		c.reply <- r
	}
}

// unsent is a frame in the buffer of what is to be written.
type unsent struct {
	id         int64
	start, end int
}

// connection is one connection: a goroutine that reads, one that writes, and the requests between.
type connection struct {
	conn    net.Conn
	welcome Welcome
	pulse   times.Times
	onEnd   func(error)
	wake    chan struct{} // there is something to write
	done    chan struct{} // closed when it has ended
	born    time.Time
	heard   atomic.Int64  // since born, when a byte came for the last time
	stalled atomic.Bool   // nothing is read: what comes of a backup is not taken
	session atomic.Int64  // counts the AUTHs that were answered
	signing chan struct{} // taken by the one that signs in again
	signIn  error         // how the last AUTH was refused; guarded by signing

	mu       sync.Mutex
	out      []byte
	unsent   []unsent
	room     chan struct{} // closed when out has been taken; nil: nobody waits
	calls    map[int64]*call
	large    map[int64]int // bytes of the frames of open requests that have many
	last     int64
	leaving  bool // nothing new is begun: the node has said BYE, or the client closes
	saidBye  bool
	over     bool
	cause    error
	quiet    []chan struct{} // closed when nothing is open
	timer    *time.Timer
	pingedAt time.Duration // since born; 0: something has come since
}

// dial makes a connection that has been welcomed.
func dial(ctx context.Context, host, port string, s *settings, onEnd func(error)) (*connection, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c := &connection{
		conn: conn, pulse: s.pulse, onEnd: onEnd, born: time.Now(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), signing: make(chan struct{}, 1),
		calls: map[int64]*call{}, large: map[int64]int{},
	}
	reader := bufio.NewReaderSize(heardReader{c}, 64<<10)
	err = c.greet(ctx, host, s, reader)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	go c.write()
	go c.read(reader)
	return c, nil
}

func (c *connection) greet(ctx context.Context, host string, s *settings, reader *bufio.Reader) error {
	if s.tls != nil {
		config := s.tls.Clone()
		if config.ServerName == "" {
			config.ServerName = host
		}
		secured := tls.Client(c.conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		c.conn = secured
	}
	hello := append([]field{
		{"magic", magic}, {"major", major}, {"minor", []any{0, minorMost}},
		{"client", "storeclient-go/" + Version},
	}, s.credential.fields()...)
	body, err := appendBody(nil, hello)
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(appendFrame(nil, kindHello, 0, body)); err != nil {
		return err
	}
	var buf []byte
	found, err := readMessage(reader, &buf)
	if err != nil {
		return err
	}
	switch found.kind {
	case kindWelcome:
		c.welcome, err = readWelcome(found.body)
		return err
	case kindRefused, kindError:
		return readError(found.body)
	}
	return broken("the node answered HELLO with %v", found.kind)
}

func readWelcome(body Object) (Welcome, error) {
	var found Welcome
	var errs [5]error
	var minor int64
	found.Version, errs[0] = needed[string](body, "version")
	found.Node, errs[1] = needed[string](body, "node")
	minor, errs[2] = needed[int64](body, "minor")
	found.Limits, errs[3] = needed[Object](body, "limits")
	found.User, errs[4] = optional[Object](body, "user")
	if err := errors.Join(errs[:]...); err != nil {
		return found, err
	}
	found.Minor, found.Writable = int(minor), true
	if body["writable"] != nil {
		var err error
		if found.Writable, err = needed[bool](body, "writable"); err != nil {
			return found, err
		}
	}
	if leader, isTold := body["leader"]; isTold && leader != nil {
		if err := Decode(leader, &found.Leader); err != nil {
			return found, broken("the node names no leader: %v", err)
		}
	}
	return found, nil
}

// heardReader reads a connection, and keeps when something came.
type heardReader struct{ c *connection }

func (r heardReader) Read(b []byte) (int, error) {
	n, err := r.c.conn.Read(b)
	if n > 0 {
		r.c.heard.Store(int64(r.c.now()))
	}
	return n, err
}

func (c *connection) now() time.Duration { return time.Since(c.born) }

// --- asking --------------------------------------------------------------------------------------

func (c *connection) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isUsable()
}

func (c *connection) isUsable() bool { return !c.over && !c.leaving }

func (c *connection) isLeaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving
}

func (c *connection) endCause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// request is what is asked on a connection.
type request struct {
	kind kind
	body []field
	// timeout is the time after which the request is given up; 0: none. The node has its own.
	timeout time.Duration
	// waits: it may wait at the node for something to come.
	waits bool
	// stop, once closed, has the node end the request; its answer is waited for all the same.
	stop <-chan struct{}
}

// bodies are buffers that requests are packed in.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// ask sends a request and waits for its reply. What is given up comes back as the context's error where
// nothing was written, or else as ErrOutcomeUnknown.
func (c *connection) ask(ctx context.Context, r request) (any, error) {
	within := ctx
	if r.timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	asked := &call{reply: make(chan reply, 1)}
	if err := c.begin(within, r, asked); err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			err = &failure{kind: ErrUnreachable, said: fmt.Sprintf("the connection took nothing within %v", r.timeout)}
		}
		return nil, err
	}
	stop := r.stop
	for {
		select {
		case found := <-asked.reply:
			return found.value, found.err
		case <-stop:
			stop = nil
			c.cancel(asked)
		case <-within.Done():
			return c.gaveUp(ctx, asked, r.timeout)
		}
	}
}

// gaveUp ends a request whose context or time is over.
func (c *connection) gaveUp(ctx context.Context, asked *call, timeout time.Duration) (any, error) {
	wasOpen, wasWritten := c.giveUp(asked)
	why := ctx.Err()
	switch {
	case !wasOpen: // the reply has come in this moment
		found := <-asked.reply
		return found.value, found.err
	case why == nil && !wasWritten:
		return nil, &failure{kind: ErrUnreachable, said: fmt.Sprintf("the connection took nothing within %v", timeout)}
	case !wasWritten:
		return nil, why
	case why == nil:
		why = fmt.Errorf("no answer within %v", timeout)
	}
	return nil, &failure{kind: ErrOutcomeUnknown, said: "the request was given up", cause: why}
}

// begin sends a request. What comes of it is told to asked.
func (c *connection) begin(ctx context.Context, r request, asked *call) error {
	packed := bodies.Get().(*[]byte)
	defer func() {
		if cap(*packed) <= 1<<20 {
			bodies.Put(packed)
		}
	}()
	var err error
	if *packed, err = appendBody((*packed)[:0], r.body); err != nil {
		return err
	}
	if len(*packed) > frameMost-32 {
		return noValue("a request has at most %d bytes, this one has %d", frameMost, len(*packed))
	}
	asked.kind, asked.waits = r.kind, r.waits
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > outMost && c.isUsable() {
		if err := c.waitForRoom(ctx, r.stop); err != nil {
			return err
		}
	}
	if !c.isUsable() {
		return errNotSent
	}
	c.last++
	asked.id = c.last
	c.calls[asked.id] = asked
	c.send(r.kind, asked.id, *packed)
	if size := len(*packed); size > largeFrame {
		c.large[asked.id] = size
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(c.pulse.Quiet, c.look)
	}
	return nil
}

// waitForRoom waits until what is to be written has been taken. The lock is held before and behind it.
func (c *connection) waitForRoom(ctx context.Context, stop <-chan struct{}) error {
	if c.room == nil {
		c.room = make(chan struct{})
	}
	room := c.room
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-room:
		return nil
	case <-stop:
		return &Error{Code: Cancelled, Status: 408, Message: "it was ended before it was sent"}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *connection) send(k kind, id int64, body []byte) {
	start := len(c.out)
	c.out = appendFrame(c.out, k, id, body)
	c.unsent = append(c.unsent, unsent{id, start, len(c.out)})
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// signInAgain opens another session with a password. All requests that found one session ended share one
// AUTH: each would end the session of the one before, and checking a password is slow.
func (c *connection) signInAgain(ctx context.Context, with credential, ended int64) error {
	select {
	case c.signing <- struct{}{}:
		defer func() { <-c.signing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.session.Load() != ended {
		return c.signIn
	}
	_, err := c.ask(ctx, request{kind: kindAuth, body: with.fields(), timeout: c.pulse.Grace})
	if refusalOf(err) == nil && err != nil {
		return ctx.Err() // the connection has gone, or is no more of use: the next one signs in by itself
	}
	c.signIn = err
	c.session.Add(1)
	return err
}

var noBody = []byte{0xc0}

// cancel asks the node to end a request early. Its answer is waited for.
func (c *connection) cancel(asked *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendEnd(asked)
}

func (c *connection) sendEnd(asked *call) {
	if c.over || c.saidBye || c.calls[asked.id] != asked {
		return
	}
	switch asked.kind {
	case kindRun, kindTopic:
		c.send(kindCancel, asked.id, noBody)
	case kindWatch:
		c.send(kindUnwatch, asked.id, noBody)
	}
}

// giveUp ends a request that nobody waits for any more. Its answer is dropped.
func (c *connection) giveUp(asked *call) (wasOpen, wasWritten bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[asked.id] != asked {
		return false, true
	}
	at := slices.IndexFunc(c.unsent, func(one unsent) bool { return one.id == asked.id })
	if at >= 0 {
		gone := c.unsent[at]
		c.out = slices.Delete(c.out, gone.start, gone.end)
		c.unsent = slices.Delete(c.unsent, at, at+1)
		for n := at; n < len(c.unsent); n++ {
			c.unsent[n].start -= gone.end - gone.start
			c.unsent[n].end -= gone.end - gone.start
		}
		delete(c.large, asked.id)
	} else {
		c.sendEnd(asked)
	}
	delete(c.calls, asked.id)
	c.lookQuiet()
	return true, at < 0
}

// --- the writer and the reader -------------------------------------------------------------------

// write hands over what there is to say. What goroutines ask for at one time leaves in one write.
func (c *connection) write() {
	var spare []byte
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		runtime.Gosched() // others that are about to ask come along
		c.mu.Lock()
		data := c.out
		c.out, c.unsent = spare[:0], c.unsent[:0]
		if c.room != nil {
			close(c.room)
			c.room = nil
		}
		c.mu.Unlock()
		if len(data) > 0 {
			if _, err := c.conn.Write(data); err != nil {
				c.end(err)
				return
			}
		}
		if spare = data; cap(spare) > 2*outMost {
			spare = nil
		}
	}
}

func (c *connection) read(reader *bufio.Reader) {
	var buf []byte
	for {
		found, err := readMessage(reader, &buf)
		if err == nil {
			err = c.take(found)
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			c.end(err)
			return
		}
	}
}

func (c *connection) take(found message) error {
	switch {
	case found.kind == kindBye:
		c.mu.Lock()
		c.leaving = true
		c.sayBye()
		c.mu.Unlock()
		go c.part()
		return nil
	case (found.kind == kindError || found.kind == kindRefused) && found.id == 0:
		return readError(found.body)
	case found.kind == kindChange || found.kind == kindPart:
		c.mu.Lock()
		asked := c.calls[found.id]
		c.mu.Unlock()
		if asked == nil {
			return nil // it was given up
		}
		if asked.sink == nil || (asked.kind == kindWatch) != (found.kind == kindChange) {
			return broken("the node says %v to a %v", found.kind, asked.kind)
		}
		asked.sink.told(found.body, found.size)
		return nil
	}
	c.mu.Lock()
	asked := c.calls[found.id]
	delete(c.calls, found.id)
	delete(c.large, found.id)
	c.lookQuiet()
	c.mu.Unlock()
	if asked != nil { // else it was given up, and its answer has crossed that
		value, err := readReply(asked.kind, found)
		asked.settle(reply{value, err})
	}
	return nil
}

func readReply(asked kind, found message) (any, error) {
	switch {
	case found.kind == kindError:
		return nil, readError(found.body)
	case found.kind == kindAnswer && asked == kindRun:
		answer, err := readAnswer(found.body)
		if err != nil {
			return nil, err
		}
		return answer, nil
	case found.kind == kindAnswer && asked == kindWatch:
		return nil, nil
	case found.kind == kindValue && (asked == kindKV || asked == kindTopic || asked == kindVault):
		return found.body, nil
	case found.kind == kindWelcome && asked == kindAuth:
		return readWelcome(found.body)
	case found.kind == kindPong && asked == kindPing:
		return nil, nil
	}
	return nil, broken("the node answered %v with %v", asked, found.kind)
}

// --- whether the peer is there -------------------------------------------------------------------

// look judges a peer that says nothing while something is open.
func (c *connection) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, heard := c.now(), time.Duration(c.heard.Load())
	switch {
	case c.over:
	case len(c.calls) == 0:
		c.timer, c.pingedAt = nil, 0
	case c.pingedAt > 0 && heard < c.pingedAt:
		why := "nothing came any more, not in answer to a PING either"
		if c.saidBye {
			why = "nothing came any more behind the node's BYE"
		}
		go c.end(errors.New(why))
	default:
		c.timer.Reset(c.nextLook(now, heard))
	}
}

func (c *connection) nextLook(now, heard time.Duration) time.Duration {
	c.pingedAt = 0
	if left := heard + c.pulse.Quiet - now; left > 0 {
		return left
	}
	switch {
	case c.stalled.Load() || (len(c.large) > 0 && !c.saidBye):
		// A node may read on only once a large request is answered, and hears no PING meanwhile.
		return c.pulse.Quiet
	case c.saidBye:
		c.pingedAt = now
		return c.pulse.Leaving
	}
	c.last++
	ping := &call{kind: kindPing, id: c.last, reply: make(chan reply, 1)}
	c.calls[ping.id] = ping
	c.send(kindPing, ping.id, noBody)
	c.pingedAt = now
	return c.pulse.Answer
}

// --- the end -------------------------------------------------------------------------------------

func (c *connection) sayBye() {
	if !c.saidBye && !c.over {
		c.saidBye = true
		c.send(kindBye, 0, noBody)
	}
}

func (c *connection) lookQuiet() {
	if len(c.calls) == 0 {
		for _, one := range c.quiet {
			close(one)
		}
		c.quiet = nil
	}
}

func (c *connection) whenQuiet() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := make(chan struct{})
	c.quiet = append(c.quiet, one)
	c.lookQuiet()
	return one
}

// part waits until the node has answered what is open and has closed. One that has answered all and
// does not close is not waited for.
func (c *connection) part() {
	<-c.whenQuiet()
	timer := time.NewTimer(c.pulse.Grace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.end(nil)
	}
}

// close waits until what is open has been answered, says BYE, and ends the connection. What only
// waits for something to come is ended.
func (c *connection) close() {
	c.mu.Lock()
	c.leaving = true
	for _, asked := range c.calls {
		if asked.waits || asked.kind == kindWatch {
			c.sendEnd(asked)
		}
	}
	c.mu.Unlock()
	<-c.whenQuiet()
	c.mu.Lock()
	c.sayBye()
	c.mu.Unlock()
	c.part()
}

// end ends the connection now. What is open and was written has an unknown outcome.
func (c *connection) end(cause error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over, c.cause = true, cause
	notSent := map[int64]bool{}
	for _, one := range c.unsent {
		notSent[one.id] = true
	}
	calls := c.calls
	c.calls, c.out, c.unsent, c.large = map[int64]*call{}, nil, nil, nil
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	c.lookQuiet()
	close(c.done)
	c.mu.Unlock()
	c.conn.Close()
	for id, asked := range calls {
		if notSent[id] {
			asked.settle(reply{nil, errNotSent})
			continue
		}
		asked.settle(reply{nil, &failure{
			kind: ErrOutcomeUnknown, cause: cause,
			said: fmt.Sprintf("the connection ended before %v was answered", asked.kind),
		}})
	}
	if c.onEnd != nil {
		c.onEnd(cause)
	}
}
