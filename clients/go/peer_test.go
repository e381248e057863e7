package storeclient

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
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

func (s *spoken) say(k kind, id int64, body Object) {
	packed := noBody
	if body != nil {
		packed, _ = appendValue(nil, body, 1)
	}
	_, _ = s.conn.Write(appendFrame(nil, k, id, packed))
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
	unhurried := func(o *options) { o.connectTimeout, o.pulse.Grace = patience, patience }
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
