package storeclient

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// peer is a node that does what the test says.
type peer struct {
	t        *testing.T
	listener net.Listener
	address  string
	writable bool
	leader   []string
	minor    int
}

// spoken is one connection to a peer.
type spoken struct {
	t      *testing.T
	conn   net.Conn
	reader *bufio.Reader
}

// patience is what a test waits for what has to come: a failure, and never a measure.
const patience = 2 * time.Minute

func newPeer(t *testing.T) *peer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return &peer{t, listener, listener.Addr().String(), true, nil, minorMost}
}

// greet accepts a connection and welcomes it.
func (p *peer) greet() *spoken {
	p.t.Helper()
	found := p.accept()
	if asked := found.next(); asked.kind != kindHello || asked.body["magic"] != "STORE" || asked.body["user"] != "root" {
		p.t.Errorf("the first message is %v %v", asked.kind, asked.body)
	}
	found.welcome(0, p)
	return found
}

func (p *peer) accept() *spoken {
	p.t.Helper()
	conn, err := p.listener.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &spoken{p.t, conn, bufio.NewReader(conn)}
}

func (s *spoken) welcome(id int64, p *peer) {
	s.say(kindWelcome, id, Object{
		"major": 1, "minor": p.minor, "version": "0", "node": p.address, "limits": Object{},
		"user": Object{"name": "root"}, "writable": p.writable, "leader": p.leader,
	})
}

func (s *spoken) next() message {
	s.t.Helper()
	found, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

func (s *spoken) read() (message, error) {
	var head [4]byte
	if _, err := io.ReadFull(s.reader, head[:]); err != nil {
		return message{}, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(s.reader, frame); err != nil {
		return message{}, err
	}
	value, err := unpacked(frame)
	if err != nil {
		return message{}, err
	}
	three := value.([]any)
	body, _ := three[2].(Object)
	return message{kind(three[0].(int64)), three[1].(int64), body, len(frame)}, nil
}

func (s *spoken) wants(k kind) message {
	s.t.Helper()
	found := s.next()
	if found.kind != k {
		s.t.Fatalf("%v %v came, not %v", found.kind, found.body, k)
	}
	return found
}

// wantsEnd: the client has closed, and said nothing more.
func (s *spoken) wantsEnd() {
	s.t.Helper()
	if found, err := s.read(); err != io.EOF {
		s.t.Fatalf("%v %v came, %v, in the place of the end", found.kind, found.body, err)
	}
}

func (s *spoken) say(k kind, id int64, body Object) {
	packed := noBody
	if body != nil {
		packed, _ = appendValue(nil, body, 1)
	}
	_, _ = s.conn.Write(appendFrame(nil, k, id, packed))
}

func (s *spoken) refuse(id int64, code Code, detail Object) {
	s.say(kindError, id, Object{
		"error": Object{"code": string(code), "message": "no", "status": 409, "retry": false, "detail": detail}, "results": []any{},
	})
}

func (s *spoken) answer(id int64, value any, seq int64) {
	s.say(kindAnswer, id, Object{
		"results": []any{Object{"value": value, "kind": "value", "rows": 0, "took": Duration(1)}},
		"seq":     seq, "store": "s", "epoch": 1,
	})
}

func (s *spoken) serve(value any) {
	for {
		found, err := s.read()
		switch {
		case err != nil || found.kind == kindBye:
			s.conn.Close()
			return
		case found.kind == kindRun:
			s.answer(found.id, value, 7)
		case found.kind == kindPing:
			s.say(kindPong, found.id, nil)
		}
	}
}

func clientOf(t *testing.T, address string, opts ...Option) *Client {
	t.Helper()
	unhurried := func(o *options) { o.connectTimeout, o.pulse.grace = patience, patience }
	client, err := Open(address, append([]Option{WithUser("root", "secret"), unhurried}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// outcome is what a call has come to, in a goroutine of its own.
type outcome struct {
	value any
	err   error
}

func later(call func() (any, error)) <-chan outcome {
	found := make(chan outcome, 1)
	go func() {
		value, err := call()
		found <- outcome{value, err}
	}()
	return found
}

func (c *Client) runs(ctx context.Context, script string, opts ...RunOption) <-chan outcome {
	return later(func() (any, error) {
		answer, err := c.Run(ctx, script, nil, opts...)
		if err != nil {
			return nil, err
		}
		return answer.Value(), nil
	})
}

func TestC19C20WhatWasSentIsSentAgainOnlyIfRepeatable(t *testing.T) {
	for name, repeatable := range map[string]bool{"a write": false, "repeatable": true} {
		t.Run(name, func(t *testing.T) {
			node := newPeer(t)
			client := clientOf(t, node.address)
			var opts []RunOption
			if repeatable {
				opts = append(opts, Repeatable())
			}
			asked := client.runs(patient(t), "CREATE a", opts...)
			first := node.greet()
			first.wants(kindRun)
			first.conn.Close()
			if !repeatable {
				if found := <-asked; !errors.Is(found.err, ErrOutcomeUnknown) {
					t.Fatal(found)
				}
				asked = client.runs(patient(t), "RETURN 2")
			}
			second := node.greet()
			run := second.wants(kindRun)
			if want := map[bool]string{false: "RETURN 2", true: "CREATE a"}[repeatable]; run.body["script"] != want {
				t.Error(run.body)
			}
			second.answer(run.id, int64(2), 3)
			if found := <-asked; found.err != nil || found.value != int64(2) {
				t.Fatal(found)
			}
			go second.serve(nil)
			client.Close()
		})
	}
}

func TestC20NineBreaksAreTold(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	defer client.Close()
	asked := client.runs(patient(t), "RETURN 1", Repeatable())
	for range breaksMost + 1 {
		one := node.greet()
		one.wants(kindRun)
		one.conn.Close()
	}
	if found := <-asked; !errors.Is(found.err, ErrOutcomeUnknown) {
		t.Fatal(found)
	}
}

func TestC21TheNodesGoodbye(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	slow := client.runs(patient(t), "SLOW")
	first := node.greet()
	held := first.wants(kindRun)
	crossing := client.runs(patient(t), "CROSSING")
	crossed := first.wants(kindRun)
	first.say(kindBye, 0, nil)
	first.refuse(crossed.id, Draining, nil)
	first.wants(kindBye)
	second := node.greet()
	again := second.wants(kindRun)
	if again.body["script"] != "CROSSING" {
		t.Error(again.body)
	}
	second.answer(again.id, "elsewhere", 4)
	if found := <-crossing; found.value != "elsewhere" {
		t.Error(found)
	}
	first.answer(held.id, "in time", 3)
	if found := <-slow; found.value != "in time" {
		t.Error(found)
	}
	first.conn.Close()
	go second.serve(nil)
	client.Close()
}

func TestC22DrainingWithoutAGoodbyeIsTheCallers(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "RETURN 1", Repeatable())
	one := node.greet()
	one.refuse(one.wants(kindRun).id, Draining, nil)
	if found := <-asked; !errors.Is(found.err, Draining) {
		t.Error(found)
	}
	go one.serve(nil)
	client.Close()
}

func TestC23TheNodesLastWord(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	defer client.Close()
	asked := client.runs(patient(t), "RETURN 1")
	one := node.greet()
	one.wants(kindRun)
	one.refuse(0, RequestTimeout, nil)
	found := <-asked
	if !errors.Is(found.err, ErrOutcomeUnknown) || !errors.Is(found.err, RequestTimeout) {
		t.Error(found)
	}
}

func TestC8WhatIsNotTheProtocolEndsTheConnection(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "RETURN 1")
	one := node.greet()
	one.say(kindChange, one.wants(kindRun).id, Object{"type": "beat"})
	found := <-asked
	if !errors.Is(found.err, ErrOutcomeUnknown) || !errors.Is(found.err, ErrProtocolBroken) {
		t.Error(found)
	}
	asked = client.runs(patient(t), "RETURN 1")
	other := node.greet()
	other.say(kindPong, other.wants(kindRun).id, nil) // the connection goes on: that request alone fails
	if found := <-asked; !errors.Is(found.err, ErrProtocolBroken) || errors.Is(found.err, ErrOutcomeUnknown) {
		t.Error(found)
	}
	go other.serve(int64(1))
	if found := <-client.runs(patient(t), "RETURN 1"); found.value != int64(1) {
		t.Error(found)
	}
	client.Close()
}

func TestC14ACancelledCall(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx, cancel := context.WithCancel(patient(t))
	asked := client.runs(ctx, "SLOW")
	one := node.greet()
	run := one.wants(kindRun)
	cancel()
	if found := <-asked; !errors.Is(found.err, context.Canceled) || !errors.Is(found.err, ErrOutcomeUnknown) {
		t.Error(found)
	}
	if cancelled := one.wants(kindCancel); cancelled.id != run.id {
		t.Error(cancelled)
	}
	one.refuse(run.id, Cancelled, nil) // dropped
	ctx, cancel = context.WithCancel(patient(t))
	asked = client.runs(ctx, "SLOW READ", Repeatable())
	one.wants(kindRun)
	cancel()
	if found := <-asked; !errors.Is(found.err, context.Canceled) || errors.Is(found.err, ErrOutcomeUnknown) {
		t.Error(found)
	}
	one.wants(kindCancel)
	got := later(func() (any, error) {
		_, ok, err := client.Database("a", "b").Cache("c").Get(patient(t), "k")
		return ok, err
	})
	one.say(kindValue, one.wants(kindKV).id, nil)
	if found := <-got; found.value != false || found.err != nil {
		t.Error(found)
	}
	go one.serve(nil)
	client.Close()
}

func TestC15ATimeoutIsTheNodesFirst(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address, WithTimeout(time.Hour))
	asked := client.runs(patient(t), "SLOW")
	one := node.greet()
	run := one.wants(kindRun)
	if run.body["timeout"] != Hour {
		t.Error(run.body)
	}
	one.refuse(run.id, StatementTimeout, nil)
	if found := <-asked; !errors.Is(found.err, StatementTimeout) {
		t.Error(found)
	}
	go one.serve(nil)
	client.Close()
}

func TestC10ASessionThatEnded(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "RETURN 1")
	one := node.greet()
	one.refuse(one.wants(kindRun).id, SessionEnded, nil)
	auth := one.wants(kindAuth)
	if auth.body["password"] != "secret" {
		t.Error(auth.body)
	}
	one.welcome(auth.id, node)
	one.answer(one.wants(kindRun).id, int64(1), 3)
	if found := <-asked; found.err != nil {
		t.Error(found)
	}
	asked = client.runs(patient(t), "CREATE a; RETURN 1")
	one.refuse(one.wants(kindRun).id, SessionEnded, Object{"committed": int64(4)})
	if found := <-asked; !errors.Is(found.err, SessionEnded) {
		t.Error(found)
	}
	asked = client.runs(patient(t), "RETURN 1")
	one.refuse(one.wants(kindRun).id, SessionEnded, nil)
	one.refuse(one.wants(kindAuth).id, SignInRefused, nil)
	if found := <-asked; !errors.Is(found.err, SignInRefused) {
		t.Error(found)
	}
	go one.serve(nil)
	client.Close()
	if text := client.String(); strings.Contains(text, "secret") {
		t.Error(text)
	}
}

func TestC4ARefusedSignInEndsTheSearch(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	defer client.Close()
	asked := client.runs(patient(t), "RETURN 1")
	one := node.accept()
	one.wants(kindHello)
	one.say(kindRefused, 0, Object{"error": Object{"code": "SignInRefused", "message": "no", "status": 401, "retry": false}})
	if found := <-asked; !errors.Is(found.err, SignInRefused) {
		t.Error(found)
	}
}

func TestC3ASearchGoesOnUntilANodeIsThere(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "RETURN 1")
	for range 3 {
		node.accept().conn.Close()
	}
	go node.greet().serve(int64(1))
	if found := <-asked; found.value != int64(1) {
		t.Error(found)
	}
	client.Close()
}

func TestC3NoNodeIsUnreachable(t *testing.T) {
	node := newPeer(t)
	node.listener.Close()
	client := clientOf(t, node.address, WithConnectTimeout(50*time.Millisecond))
	if _, err := client.Connect(patient(t)); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	client.Close()
	client.Close()
	if _, err := client.Run(patient(t), "RETURN 1", nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestC16APeerThatVanished(t *testing.T) {
	node := newPeer(t)
	pulsing := func(quiet, answer time.Duration) *Client {
		return clientOf(t, node.address, func(o *options) { o.pulse = pulse{quiet, answer, answer, patience} })
	}
	client := pulsing(time.Millisecond, patience)
	asked := client.runs(patient(t), "SLOW")
	one := node.greet()
	run := one.wants(kindRun)
	one.say(kindPong, one.wants(kindPing).id, nil) // it is there as long as it answers
	one.answer(run.id, int64(1), 2)
	if found := <-asked; found.value != int64(1) {
		t.Error(found)
	}
	ends(client, one)
	client = pulsing(time.Millisecond, time.Millisecond)
	asked = client.runs(patient(t), "SLOW")
	node.greet()
	if found := <-asked; !errors.Is(found.err, ErrOutcomeUnknown) || !strings.Contains(found.err.Error(), "PING") {
		t.Error(found)
	}
	client.Close()
}

func TestC12RequestsDoNotWaitForEachOther(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	const count = 500
	var answered atomic.Int64
	done := make(chan struct{})
	for range count {
		go func() {
			if answer, err := client.Run(patient(t), "RETURN 1", nil); err == nil && answer.Value() == int64(1) {
				if answered.Add(1) == count {
					close(done)
				}
			}
		}()
	}
	one := node.greet()
	var runs []message
	for range count { // all of them are open at once; they are answered in another order
		runs = append(runs, one.wants(kindRun))
	}
	for n := range runs {
		one.answer(runs[count-1-n].id, int64(1), 2)
	}
	<-done
	go one.serve(nil)
	client.Close()
}

func TestC24C25TheLeaderIsFollowed(t *testing.T) {
	old, lead := newPeer(t), newPeer(t)
	old.writable, old.leader = false, []string{lead.address}
	var events []string
	client := clientOf(t, old.address+", "+lead.address, OnConnection(func(e ConnectionEvent) {
		events = append(events, string(e.Change)+" "+e.Address)
	}))
	asked := client.runs(patient(t), "CREATE a")
	go old.greet().serve(nil)
	one := lead.greet()
	one.answer(one.wants(kindRun).id, "led", 5)
	if found := <-asked; found.value != "led" {
		t.Error(found)
	}
	// The lead moves, for a moment to nobody.
	asked = client.runs(patient(t), "CREATE b")
	one.refuse(one.wants(kindRun).id, NotWritable, Object{"leader": []any{}})
	go one.serve("was the leader")
	if found := <-asked; found.value == "led" || found.err != nil {
		t.Error(found)
	}
	client.Close()
}

func TestC6CertificatesAreChecked(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{ // of 127.0.0.1, and not of localhost
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}},
	}
	signed, err := x509.CreateCertificate(nil, about, about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(signed)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(certificate)
	node := newPeer(t)
	node.listener = tls.NewListener(node.listener, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{signed}, PrivateKey: private}},
	})
	client := clientOf(t, node.address, WithTLS(&tls.Config{RootCAs: trusted}))
	asked := client.runs(patient(t), "RETURN 1")
	go node.greet().serve(int64(1))
	if found := <-asked; found.value != int64(1) {
		t.Error(found)
	}
	client.Close()
	_, port, _ := net.SplitHostPort(node.address)
	for name, client := range map[string]*Client{
		"another name":      clientOf(t, "localhost:"+port, WithTLS(&tls.Config{RootCAs: trusted})),
		"an unknown signer": clientOf(t, node.address, WithTLS(nil)),
	} {
		asked := client.runs(patient(t), "RETURN 1")
		go func() { _, _ = node.accept().read() }()
		if found := <-asked; !errors.Is(found.err, ErrUnreachable) || !strings.Contains(found.err.Error(), "is not trusted") {
			t.Error(name, found)
		}
		client.Close()
	}
}

func TestC24OneNodeIsAskedWhateverItIs(t *testing.T) {
	node := newPeer(t)
	node.writable, node.leader = false, []string{"127.0.0.1:1"}
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "CREATE a")
	one := node.greet()
	one.refuse(one.wants(kindRun).id, NotWritable, Object{"leader": []any{"127.0.0.1:1"}})
	if found := <-asked; !errors.Is(found.err, NotWritable) {
		t.Error(found)
	}
	go one.serve(nil)
	client.Close()
}

func TestC26C27ReadsAnywhereComeBehindWhatWasSeen(t *testing.T) {
	lead, other := newPeer(t), newPeer(t)
	other.writable, other.leader = false, []string{lead.address}
	client := clientOf(t, lead.address+","+other.address, WithReadsAnywhere())
	written := client.runs(patient(t), "CREATE a")
	one := lead.greet()
	one.answer(one.wants(kindRun).id, nil, 41)
	<-written
	go one.serve("lead")
	var two *spoken
	var asked <-chan outcome
	for accepted := later(func() (any, error) { return other.greet(), nil }); two == nil; {
		asked = client.runs(patient(t), "SELECT 1")
		select {
		case found := <-accepted:
			two = found.value.(*spoken)
			<-asked
		case found := <-asked:
			if found.value != "lead" {
				t.Fatal(found)
			}
		}
	}
	reads := make(chan outcome, 4)
	go func() {
		for range 4 {
			reads <- <-client.runs(patient(t), "SELECT 1")
		}
	}()
	run := two.wants(kindRun)
	if run.body["after"] != int64(41) {
		t.Error(run.body)
	}
	two.refuse(run.id, StatementTimeout, Object{"after": int64(41), "seq": int64(40)}) // it is behind: home is asked
	for range 4 {
		if found := <-reads; found.value != "lead" {
			t.Error(found)
		}
	}
	go two.serve("other")
	client.Close()
}

func TestC42C43C44AFeedComesBackWhereItWas(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	watch := client.Database("shop", "main").Watch("item", Where("a > 1"))
	commits := make(chan outcome)
	go func() {
		for commit, err := range watch.Commits(patient(t)) {
			commits <- outcome{commit, err}
		}
		close(commits)
	}()
	opened := func(one *spoken, start int64) message {
		asked := one.wants(kindWatch)
		one.say(kindChange, asked.id, Object{
			"type": "open", "seq": int64(20), "start": start, "store": "s", "epoch": int64(2), "start_epoch": int64(1),
		})
		return asked
	}
	part := func(seq, number, of int64, name string) Object {
		return Object{
			"type": "commit", "seq": seq, "epoch": int64(1), "at": time.Unix(1, 0), "by": "ana", "reason": nil, "part": number, "of": of,
			"changes": []any{Object{"action": "update", "id": NewRecordID("item", name), "value": Object{"n": name}}},
		}
	}
	one := node.greet()
	asked := opened(one, 7)
	if asked.body["where"] != "a > 1" || asked.body["from"] != nil {
		t.Error(asked.body)
	}
	one.say(kindChange, asked.id, part(8, 1, 2, "a"))
	one.say(kindChange, asked.id, part(8, 2, 2, "b"))
	found := (<-commits).value.(Commit)
	if len(found.Changes) != 2 || found.Changes[0].Last || !found.Changes[1].Last || found.By != "ana" ||
		found.Position != (Position{8, "s", 1}) {
		t.Error(found)
	}
	one.say(kindChange, asked.id, part(9, 1, 2, "c")) // the other part never comes
	one.conn.Close()
	two := node.greet()
	again := opened(two, 8)
	if again.body["from"] != int64(8) || again.body["store"] != "s" || again.body["epoch"] != int64(1) {
		t.Error(again.body)
	}
	two.say(kindChange, again.id, Object{"type": "beat", "seq": int64(30), "epoch": int64(2)})
	two.refuse(again.id, TooSlow, nil)
	third := opened(two, 30)
	if third.body["from"] != int64(30) || third.body["epoch"] != int64(2) {
		t.Error(third.body)
	}
	two.refuse(third.id, LogPruned, nil)
	if ended := <-commits; !errors.Is(ended.err, LogPruned) || !strings.Contains(ended.err.Error(), "read the table anew") {
		t.Error(ended)
	}
	if _, more := <-commits; more {
		t.Error("a watch goes on behind its end")
	}
	go two.serve(nil)
	client.Close()
}

func TestC45AFeedThatNobodyReadsIsEndedAndOpenedAgain(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	watch := client.Database("shop", "main").Watch("item")
	go func() {
		one := node.greet()
		from := int64(0)
		for {
			asked := one.wants(kindWatch)
			if found, ok := asked.body["from"].(int64); ok {
				from = found
			}
			one.say(kindChange, asked.id, Object{"type": "open", "seq": int64(99), "start": from, "store": "s", "epoch": int64(1), "start_epoch": int64(1)})
			for seq := from + 1; seq <= from+6; seq++ {
				one.say(kindChange, asked.id, Object{
					"type": "commit", "seq": seq, "epoch": int64(1), "at": time.Unix(1, 0), "by": nil, "reason": nil,
					"changes": []any{Object{"action": "create", "id": NewRecordID("item", seq), "value": Object{"v": strings.Repeat("x", 1<<20)}}},
				})
			}
			if ended := one.wants(kindUnwatch); ended.id != asked.id {
				t.Error(ended)
			}
			one.say(kindAnswer, asked.id, Object{"seq": from + 6, "epoch": int64(1)})
			if from > 0 {
				break
			}
		}
		one.serve(nil)
	}()
	seq := int64(0)
	for commit, err := range watch.Commits(patient(t)) {
		if seq++; err != nil || commit.Seq != seq {
			t.Fatal(commit.Seq, seq, err)
		}
		if seq == 1 { // until more has come than is held
			until(t, client.connectionTo(0).saidUnwatch)
		}
		if seq == 12 {
			break
		}
	}
	if at, _ := watch.Position(); at.Seq != 11 {
		t.Error("the last commit counts as dealt with before the next is asked for:", at)
	}
	client.Close()
}

// saidUnwatch reports whether the one feed of a connection was asked to end.
func (c *connection) saidUnwatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, asked := range c.calls {
		if one, ok := asked.sink.(*feed); ok {
			one.mu.Lock()
			defer one.mu.Unlock()
			return one.ending
		}
	}
	return true
}
