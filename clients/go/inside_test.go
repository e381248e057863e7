package storeclient

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// What the conformance suite, clients/conformance, cannot see: queues inside, goroutines, races.

// until waits for a condition that other goroutines bring about.
func until(t *testing.T, met func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to pass")
		}
	}
}

// ends closes a client behind a peer that answers what is left.
func ends(client *Client, with ...*spoken) {
	for _, one := range with {
		go one.serve(nil)
	}
	client.Close()
}

func (c *Client) connectionTo(n int) *connection { return c.nodes.standing(c.nodes.all[n]) }

// A peer that reads nothing: what stands in the buffers of both systems is much less than one request.
func TestC13C14C18WhatIsNotWritten(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx := patient(t)
	welcomed := later(func() (any, error) { return client.Connect(ctx) })
	first := node.greet()
	if found := <-welcomed; found.err != nil {
		t.Fatal(found)
	}
	conn := client.connectionTo(0)
	for _, one := range []net.Conn{conn.conn, first.conn} {
		_ = one.(*net.TCPConn).SetWriteBuffer(4 << 10)
		_ = one.(*net.TCPConn).SetReadBuffer(4 << 10)
	}
	long := strings.Repeat(" ", 8<<20)
	written := client.runs(ctx, "CREATE written"+long)
	until(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return len(conn.calls) == 1 && len(conn.unsent) == 0
	})
	queued := client.runs(ctx, "CREATE queued"+long)
	until(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return len(conn.unsent) == 1
	})
	waiting := client.runs(ctx, "CREATE waiting")
	until(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.room != nil && conn.last == 2 // it has no id
	})
	leaving, cancel := context.WithCancel(ctx)
	cancelled := client.runs(leaving, "CREATE cancelled")
	cancel()
	if found := <-cancelled; found.err != context.Canceled {
		t.Error(found)
	}
	first.conn.Close()
	if found := <-written; !errors.Is(found.err, ErrOutcomeUnknown) {
		t.Error(found)
	}
	second := node.greet()
	for range 2 {
		run := second.wants(kindRun)
		second.answer(run.id, strings.TrimSpace(run.body["script"].(string)), 1)
	}
	if one, other := (<-queued).value, (<-waiting).value; one != "CREATE queued" || other != "CREATE waiting" {
		t.Error(one, other)
	}
	ends(client, second)
}

// BeforeExamples opens what the examples of example_test.go run on, and returns what closes it.
var BeforeExamples func() (after func())

// No goroutine of a client outlives it, whatever ended it. It is told from those of other tests by its
// functions, so this waits for theirs as well. Examples need a node.
func TestMain(m *testing.M) {
	afterExamples := func() {}
	if os.Getenv("STORENODE_ADDRESS") != "" {
		afterExamples = BeforeExamples()
	} else if err := flag.Set("test.skip", "^Example"); err != nil {
		panic(err)
	}
	code := m.Run()
	afterExamples()
	var left string
	for end := time.Now().Add(patience); code == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if left = ownGoroutines(); left == "" {
			break
		}
	}
	if left != "" {
		fmt.Println("goroutines are left:\n" + left)
		code = 1
	}
	os.Exit(code)
}

func ownGoroutines() string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for _, one := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(one, "clients/go.(*") {
			found = append(found, one)
		}
	}
	return strings.Join(found, "\n\n")
}

// Goroutines that share a client, its handles and its end: for the race detector.
func TestManyCallersOfOneClient(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx := patient(t)
	connected := later(func() (any, error) { return client.Connect(ctx) })
	one := node.greet()
	<-connected
	go func() {
		for {
			asked, err := one.read()
			switch {
			case err != nil || asked.kind == kindBye:
				one.conn.Close()
				return
			case asked.kind == kindRun:
				one.answer(asked.id, asked.body["script"], 7)
			case asked.kind == kindKV || asked.kind == kindTopic:
				one.say(kindValue, asked.id, Object{"position": 1, "value": asked.body["key"]})
			}
		}
	}()
	db := client.Database("a", "b")
	var all sync.WaitGroup
	for n := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 10 {
				within, cancel := context.WithCancel(ctx)
				if n == 0 {
					go cancel()
				}
				text := fmt.Sprint("RETURN ", n)
				if found, err := Query[string](within, db, text, nil); err == nil && found != text || err != nil && n != 0 {
					t.Error(found, err)
				}
				if found, ok, err := Get[string](ctx, db.Cache("c"), text); found != text || !ok || err != nil {
					t.Error(found, ok, err)
				}
				if found, err := db.Topic("d").Publish(ctx, n); found.Position != 1 || err != nil {
					t.Error(found, err)
				}
				cancel()
			}
		}()
	}
	all.Wait()
	client.Close()
}
