package storeclient

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The rules of docs/clients.md that a real node shows by nothing, or only where it fails, before a peer.
// tests/docs/test_pages.py holds the numbers in the names of tests against that page.

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

func TestC1C51OneConnectionForAllAndAnotherBehindIt(t *testing.T) {
	node := newPeer(t)
	events := make(chan ConnectionEvent, 16)
	client := clientOf(t, node.address, OnConnection(func(e ConnectionEvent) { events <- e }))
	ctx := patient(t)
	for _, change := range []ConnectionChange{Connected, Reconnected} {
		var asked []<-chan outcome
		for range 20 {
			asked = append(asked, client.runs(ctx, "RETURN 1"))
		}
		one := node.greet()
		for range asked {
			one.answer(one.wants(kindRun).id, int64(1), 1)
		}
		for _, each := range asked {
			if found := <-each; found.value != int64(1) {
				t.Fatal(found)
			}
		}
		if e := <-events; e.Change != change || e.Address != node.address || e.Version != "0" {
			t.Fatal(e)
		}
		one.refuse(0, Busy, nil)
		if e := <-events; e.Change != Lost || e.Address != node.address || !errors.Is(e.Err, Busy) {
			t.Fatal(e)
		}
	}
	client.Close()
	select {
	case e := <-events:
		t.Error(e)
	default:
	}
}

func TestC7WhatANodeIsTooOldForIsNotSent(t *testing.T) {
	node := newPeer(t)
	node.minor = 0
	client := clientOf(t, node.address)
	ctx := patient(t)
	asked := client.runs(ctx, "SELECT 1", After(7))
	one := node.accept()
	if hello := one.wants(kindHello); !reflect.DeepEqual(hello.body["minor"], []any{int64(0), int64(10)}) {
		t.Error(hello.body)
	}
	one.welcome(0, node)
	refusals := []error{(<-asked).err}
	refusals = append(refusals, (<-client.runs(ctx, "SELECT 1", Current())).err)
	_, err := client.StoreSeal().Unseal(ctx, "secret")
	refusals = append(refusals, err)
	for _, err := range client.Database("a", "b").Watch("c").Commits(ctx) {
		refusals = append(refusals, err)
	}
	for n, minor := range []int{minorOfAfter, minorOfSequences, minorOfVaults, minorOfFeeds} {
		if err := refusals[n]; !errors.Is(err, VersionNotSupported) || !strings.Contains(err.Error(), fmt.Sprint("came with ", minor)) ||
			!strings.Contains(err.Error(), "version 0") {
			t.Error(n, err)
		}
	}
	asked = client.runs(ctx, "RETURN 1")
	if run := one.wants(kindRun); run.body["script"] != "RETURN 1" {
		t.Error(run.body)
	}
	one.answer(1, nil, 1)
	<-asked
	ends(client, one)
}

func TestC9C47NothingThatIsPrintedHoldsASecret(t *testing.T) {
	const secret = "open-sesame"
	node := newPeer(t)
	client := clientOf(t, node.address, WithUser("root", secret))
	other, err := Open(node.address, WithToken(secret))
	if err != nil {
		t.Fatal(err)
	}
	texts := []any{client, other, client.Database("a", "b"), client.Database("a", "b").Vault("c"), client.StoreSeal()}
	unsealing := later(func() (any, error) { return client.StoreSeal().Unseal(patient(t), secret) })
	one := node.greet()
	if asked := one.wants(kindVault); asked.body["passphrase"] != secret {
		t.Error(asked.body)
	}
	one.conn.Close() // a VAULT that was sent is sent again by nobody
	found := <-unsealing
	if !errors.Is(found.err, ErrOutcomeUnknown) {
		t.Error(found)
	}
	texts = append(texts, found.err, Revealed{ID: "k", Value: secret})
	writing := later(func() (any, error) {
		return client.Database("a", "b").Vault("c").Write(patient(t), "my id", secret)
	})
	two := node.greet()
	run := two.wants(kindRun)
	if params, _ := run.body["params"].(Object); params["id"] != "my id" || params["value"] != secret ||
		strings.Contains(run.body["script"].(string), "my id") {
		t.Error(run.body)
	}
	two.refuse(run.id, Sealed, nil)
	_, wrong := client.StoreSeal().Unseal(patient(t), secret+"\xff")
	texts = append(texts, (<-writing).err, wrong)
	for _, one := range texts {
		if text := fmt.Sprintf("%v %+v %#v", one, one, one); strings.Contains(text, secret) {
			t.Errorf("%T is printed with a secret", one)
		}
	}
	ends(client, two)
	other.Close()
}

func TestC10RequestsOfOneSessionSignInAgainTogether(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	const count = 8
	all := make(chan outcome, count)
	for range count {
		go func() { all <- <-client.runs(patient(t), "RETURN 1") }()
	}
	one := node.greet()
	for range count {
		one.refuse(one.wants(kindRun).id, SessionEnded, nil)
	}
	one.welcome(one.wants(kindAuth).id, node)
	for range count {
		one.answer(one.wants(kindRun).id, int64(1), 3)
	}
	for range count {
		if found := <-all; found.err != nil {
			t.Error(found)
		}
	}
	ends(client, one)
}

func TestC11IdsAreCountedOnEachConnection(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	cache := client.Database("a", "b").Cache("c")
	for range 2 {
		first := client.runs(patient(t), "RETURN 1")
		one := node.greet()
		run := one.wants(kindRun)
		one.answer(run.id, nil, 1)
		<-first
		got := later(func() (any, error) { _, _, err := cache.Get(patient(t), "k"); return nil, err })
		get := one.wants(kindKV)
		one.say(kindValue, get.id, nil)
		<-got
		if run.id != 1 || get.id != 2 {
			t.Error(run.id, get.id)
		}
		conn := client.connectionTo(0)
		one.conn.Close()
		<-conn.done
	}
	client.Close()
}

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

func TestC14WhatWasCancelledBeforeIsNotSent(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	first := client.runs(patient(t), "RETURN 1")
	one := node.greet()
	one.answer(one.wants(kindRun).id, nil, 1)
	<-first
	ctx, cancel := context.WithCancel(patient(t))
	cancel()
	if found := <-client.runs(ctx, "CREATE a"); found.err != context.Canceled {
		t.Error(found)
	}
	next := client.runs(patient(t), "RETURN 2")
	if run := one.wants(kindRun); run.body["script"] != "RETURN 2" {
		t.Error(run.body)
	}
	one.answer(2, nil, 1)
	<-next
	ends(client, one)
}

func TestC16NoPingBehindALargeRequest(t *testing.T) {
	c := &connection{pulse: usualPulse, calls: map[int64]*call{1: {}}, large: map[int64]int{1: largeFrame + 1}, wake: make(chan struct{}, 1)}
	if next := c.nextLook(time.Hour, 0); next != 20*time.Second || len(c.out) != 0 || c.pingedAt != 0 {
		t.Error(next, c.out)
	}
	c.saidBye = true
	if next := c.nextLook(time.Hour, 0); next != 60*time.Second || len(c.out) != 0 {
		t.Error(next, c.out)
	}
	c.saidBye, c.large = false, nil
	if next := c.nextLook(time.Hour, 0); next != 20*time.Second || len(c.out) == 0 || c.pingedAt != time.Hour {
		t.Error(next, c.out)
	}
	if next := c.nextLook(time.Hour, time.Hour-time.Second); next != 19*time.Second || c.pingedAt != 0 {
		t.Error(next)
	}
}

func TestC17CloseEndsWhatOnlyWaits(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	reading := later(func() (any, error) { return client.Database("a", "b").Topic("c").Read(patient(t), 0, 1, time.Minute) })
	one := node.greet()
	read := one.wants(kindRun)
	slow := client.runs(patient(t), "CREATE slow")
	run := one.wants(kindRun)
	closed := later(func() (any, error) { return nil, client.Close() })
	if cancel := one.wants(kindCancel); cancel.id != read.id {
		t.Error(cancel)
	}
	one.refuse(read.id, Cancelled, nil)
	if found := <-reading; !errors.Is(found.err, ErrClosed) {
		t.Error(found)
	}
	if found := <-client.runs(patient(t), "RETURN 1"); !errors.Is(found.err, ErrClosed) {
		t.Error(found)
	}
	one.answer(run.id, "done", 3)
	if found := <-slow; found.value != "done" {
		t.Error(found)
	}
	one.wants(kindBye)
	one.conn.Close()
	<-closed
	client.Close()
}

func TestC22C49ARefusalIsToldWithAllThatItSays(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "CREATE a; CREATE b", Repeatable())
	one := node.greet()
	one.say(kindError, one.wants(kindRun).id, Object{
		"error": Object{
			"code": "OfALaterVersion", "message": "no", "status": 418, "retry": true, "detail": Object{"committed": 7},
			"request": "r-1", "statement": 2, "line": 3, "column": 4,
		},
		"results": []any{Object{"value": "a", "kind": "value", "rows": 0, "took": Duration(5), "changed": 1}},
	})
	found := <-asked
	var refusal *Error
	want := &Error{
		Code: "OfALaterVersion", Message: "no", Status: 418, Retry: true, Detail: Object{"committed": int64(7)},
		Request: "r-1", Statement: 2, Line: 3, Column: 4, Results: []Result{{"a", "value", 0, 5 * time.Microsecond, 1}},
	}
	if !errors.As(found.err, &refusal) || !reflect.DeepEqual(refusal, want) || !errors.Is(found.err, Code("OfALaterVersion")) ||
		refusal.Committed() != 7 || errors.Is(found.err, ErrOutcomeUnknown) {
		t.Errorf("%#v", found.err)
	}
	ends(client, one)
}

// The node's last word is why a connection has ended, and no answer to what was open on it.
func TestC23TheLastWordRefusesNothing(t *testing.T) {
	for _, code := range []Code{Draining, NotWritable, SessionEnded} {
		node := newPeer(t)
		client := clientOf(t, node.address)
		asked := client.runs(patient(t), "CREATE a")
		one := node.greet()
		one.wants(kindRun)
		one.say(kindBye, 0, nil)
		one.refuse(0, code, nil)
		if found := <-asked; !errors.Is(found.err, ErrOutcomeUnknown) {
			t.Error(code, found)
		}
		repeatable := client.runs(patient(t), "SELECT 1", Repeatable())
		two := node.greet()
		two.wants(kindRun)
		two.refuse(0, code, nil)
		three := node.greet()
		three.answer(three.wants(kindRun).id, "again", 2)
		if found := <-repeatable; found.value != "again" {
			t.Error(code, found)
		}
		ends(client, three)
	}
}

func TestC28AMomentIsReadWhereItWasMade(t *testing.T) {
	maker, lead := newPeer(t), newPeer(t)
	client := clientOf(t, maker.address+","+lead.address)
	ctx := patient(t)
	type made struct {
		moment *Moment
		err    error
	}
	making := make(chan made, 1)
	go func() {
		moment, err := client.Database("a", "b").Moment(ctx, 0)
		making <- made{moment, err}
	}()
	one := maker.greet()
	run := one.wants(kindRun)
	if run.body["moment"] != "new" || run.body["keep"] != Minute {
		t.Error(run.body)
	}
	one.say(kindAnswer, run.id, Object{"results": []any{}, "seq": int64(4), "store": "s", "epoch": int64(1), "moment": "m-1"})
	then := <-making
	if then.err != nil {
		t.Fatal(then.err)
	}
	written := client.runs(ctx, "CREATE a")
	one.refuse(one.wants(kindRun).id, NotWritable, Object{"leader": []any{lead.address}})
	two := lead.greet()
	two.answer(two.wants(kindRun).id, nil, 5)
	<-written
	read := later(func() (any, error) { _, err := then.moment.Run(ctx, "SELECT 1", nil); return nil, err })
	if run = one.wants(kindRun); run.body["moment"] != "m-1" {
		t.Error(run.body)
	}
	one.answer(run.id, nil, 4)
	if found := <-read; found.err != nil {
		t.Error(found)
	}
	ends(client, one, two)
}

func TestC29ANodeOfAnotherStoreIsReadNoMore(t *testing.T) {
	lead, other := newPeer(t), newPeer(t)
	other.writable = false
	client := clientOf(t, lead.address+","+other.address, WithReadsAnywhere())
	ctx := patient(t)
	written := client.runs(ctx, "CREATE a")
	one := lead.greet()
	one.answer(one.wants(kindRun).id, nil, 4)
	<-written
	go one.serve("lead")
	go func() {
		two := other.greet()
		run := two.wants(kindRun)
		two.say(kindAnswer, run.id, Object{"results": []any{}, "seq": int64(4), "store": "another", "epoch": int64(1)})
		two.serve("other")
	}()
	for {
		found := <-client.runs(ctx, "SELECT 1")
		if found.err != nil {
			if !errors.Is(found.err, ErrProtocolBroken) {
				t.Error(found)
			}
			break
		}
	}
	for range 4 {
		if found := <-client.runs(ctx, "SELECT 1"); found.value != "lead" {
			t.Error(found)
		}
	}
	client.Close()
}

func TestC32C33ARequestNamesItsPlaceAndItsValues(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	db := client.Database("shop", "main")
	asked := later(func() (any, error) { return db.Run(patient(t), "RETURN $n", Params{"n": "'; DELETE item"}) })
	one := node.greet()
	run := one.wants(kindRun)
	if want := (Object{"script": "RETURN $n", "ns": "shop", "db": "main", "params": Object{"n": "'; DELETE item"}}); !reflect.DeepEqual(run.body, want) {
		t.Error(run.body)
	}
	one.answer(run.id, nil, 1)
	<-asked
	got := later(func() (any, error) { _, _, err := db.Cache("sessions").Get(patient(t), "k"); return nil, err })
	get := one.wants(kindKV)
	if want := (Object{"op": "get", "ns": "shop", "db": "main", "space": "sessions", "key": "k"}); !reflect.DeepEqual(get.body, want) {
		t.Error(get.body)
	}
	one.say(kindValue, get.id, nil)
	<-got
	ends(client, one)
}

func TestC35KeysAndLeases(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	cache, ctx := client.Database("a", "b").Cache("c"), patient(t)
	set := later(func() (any, error) { return nil, cache.Set(ctx, "k", nil, TTL(0)) })
	one := node.greet()
	asks := func(want Object) int64 {
		t.Helper()
		asked := one.wants(kindKV)
		for name, value := range want {
			if found, ok := asked.body[name]; !ok || !reflect.DeepEqual(found, value) {
				t.Errorf("%s is %v", name, asked.body)
			}
		}
		return asked.id
	}
	one.refuse(asks(Object{"op": "set", "value": nil, "expire": Duration(0)}), ExpireRefused, nil) // none is meant otherwise
	if found := <-set; !errors.Is(found.err, ExpireRefused) {
		t.Error(found)
	}
	made := later(func() (any, error) {
		return GetOrSet(ctx, cache, "k", time.Minute, func(context.Context) (string, error) { return "made", nil })
	})
	one.say(kindValue, asks(Object{"op": "get"}), nil)
	ifAbsent := Object{"op": "set", "value": "made", "if": "absent", "expire": Minute}
	one.say(kindValue, asks(ifAbsent), Object{"written": false})
	one.say(kindValue, asks(Object{"op": "get"}), nil) // it has gone by
	one.say(kindValue, asks(ifAbsent), Object{"written": false})
	one.say(kindValue, asks(Object{"op": "get"}), Object{"value": "theirs", "ttl": nil})
	if found := <-made; found.value != "theirs" {
		t.Error(found)
	}

	locking := make(chan *Lease, 1)
	go func() {
		lease, _, err := cache.Lock(ctx, "k", 3*time.Millisecond, Renew())
		if err != nil {
			t.Error(err)
		}
		locking <- lease
	}()
	asked := one.wants(kindKV)
	holder, _ := asked.body["holder"].(string)
	if name, err := hex.DecodeString(holder); err != nil || len(name) != 16 || asked.body["fence"] != nil {
		t.Error(asked.body)
	}
	held := Object{"held": true, "fence": int64(9), "until": time.Unix(1, 0)}
	one.say(kindValue, asked.id, held)
	lease := <-locking
	extends := Object{"op": "lock", "holder": holder, "fence": int64(9), "expire": 3 * Millisecond}
	one.say(kindValue, asks(extends), held)
	asks(extends)
	one.conn.Close() // it goes on through an outage
	one = node.greet()
	one.say(kindValue, asks(extends), Object{"held": false, "fence": nil, "until": nil})
	<-lease.Lost()
	ok, err := lease.Release(ctx) // asks nobody
	if ok || err != nil {
		t.Error(ok, err)
	}
	ends(client, one)
}

func TestC36AReaderThatFollowsOutlivesAnOutage(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	read := make(chan outcome)
	go func() {
		for message, err := range client.Database("a", "b").Topic("jobs").Messages(patient(t), 0, true) {
			read <- outcome{message.Position, err}
		}
		close(read)
	}()
	told := func(one *spoken, id, position int64) {
		one.answer(id, []any{Object{"position": position, "at": time.Unix(1, 0), "headers": Object{}, "value": 1, "bytes": 9}}, 1)
	}
	one := node.greet()
	one.say(kindError, one.wants(kindRun).id, Object{"error": Object{ // before the first answer: it says that it passes
		"code": "Busy", "message": "no", "status": 503, "retry": true,
	}})
	run := one.wants(kindRun)
	if params := run.body["params"].(Object); params["after"] != int64(0) || params["limit"] != int64(1000) || params["wait"] != Minute {
		t.Error(run.body)
	}
	told(one, run.id, 1)
	if found := <-read; found.value != int64(1) {
		t.Error(found)
	}
	one.refuse(one.wants(kindRun).id, NotWritable, nil)
	one.wants(kindRun)
	one.conn.Close()
	two := node.greet()
	run = two.wants(kindRun)
	if params := run.body["params"].(Object); params["after"] != int64(1) {
		t.Error(run.body)
	}
	told(two, run.id, 2)
	if found := <-read; found.value != int64(2) {
		t.Error(found)
	}
	two.refuse(two.wants(kindRun).id, Unknown, nil)
	if found := <-read; !errors.Is(found.err, Unknown) {
		t.Error(found)
	}
	if _, more := <-read; more {
		t.Error("it goes on behind its end")
	}
	ends(client, two)
}

func delivered(first, count int64) []any {
	var found []any
	for n := range count {
		found = append(found, Object{
			"position": first + n, "at": time.Unix(1, 0), "headers": Object{}, "value": first + n, "bytes": 9,
			"receipt": fmt.Sprint("r", first+n), "attempt": 1, "deadline": time.Unix(2, 0), "member": nil,
		})
	}
	return found
}

func TestC38C39C41AConsumerTakesAheadAndAcknowledgesTogether(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx := patient(t)
	consumer := client.Database("a", "b").Topic("jobs").Group("workers").Messages(Prefetch(4))
	next := func() *Delivery {
		t.Helper()
		found, err := consumer.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	first := later(func() (any, error) { return consumer.Next(ctx) })
	one := node.greet()
	takes := func(count int64) int64 {
		t.Helper()
		take := one.wants(kindTopic)
		if take.body["op"] != "take" || take.body["count"] != count || take.body["wait"] != Minute {
			t.Fatal(take.body)
		}
		return take.id
	}
	one.say(kindValue, takes(4), Object{"messages": delivered(1, 4)})
	messages := []*Delivery{(<-first).value.(*Delivery), next()}
	take := takes(2) // half of them are left
	acks := func(want ...any) message {
		t.Helper()
		ack := one.wants(kindTopic)
		if ack.body["op"] != "ack" || !reflect.DeepEqual(ack.body["receipts"], want) {
			t.Fatal(ack.body)
		}
		return ack
	}
	acknowledge := func(d *Delivery) <-chan outcome {
		return later(func() (any, error) { return d.Ack(ctx) })
	}
	alone := acknowledge(messages[0])
	ack := acks("r1")
	var together []<-chan outcome
	for n, d := range []*Delivery{messages[1], messages[1], next()} { // while one is under way
		together = append(together, acknowledge(d))
		until(t, func() bool {
			consumer.mu.Lock()
			defer consumer.mu.Unlock()
			return len(consumer.acks) == n+1
		})
	}
	one.say(kindValue, ack.id, Object{"acked": 1, "stale": 0, "stale_receipts": []any{}})
	if found := <-alone; found.value != true {
		t.Error(found)
	}
	one.say(kindValue, acks("r2", "r2", "r3").id, Object{"acked": 1, "stale": 2, "stale_receipts": []any{"r2", "r3"}})
	for n, want := range []bool{true, false, false} { // of the one that stands there twice the first counts
		if found := <-together[n]; found.value != want || found.err != nil {
			t.Error(n, found)
		}
	}
	if consumer.Stale() != 2 {
		t.Error(consumer.Stale())
	}
	// A break under an acknowledgement: a stale one may be its own.
	broken := acknowledge(next())
	acks("r4")
	one.conn.Close()
	one = node.greet()
	for left := []string{"take", "ack"}; len(left) > 0; { // in no order
		asked := one.wants(kindTopic)
		op := asked.body["op"].(string)
		at := slices.Index(left, op)
		if at < 0 {
			t.Fatal(asked.body)
		}
		left = slices.Delete(left, at, at+1)
		if op == "take" {
			one.say(kindValue, asked.id, Object{"messages": delivered(5, 3)})
		} else {
			one.say(kindValue, asked.id, Object{"acked": 0, "stale": 1, "stale_receipts": []any{"r4"}})
		}
	}
	if found := <-broken; !errors.Is(found.err, ErrOutcomeUnknown) {
		t.Error(found)
	}
	next()
	take = takes(2)
	stopped := later(func() (any, error) { return nil, consumer.Stop(ctx) })
	if cancel := one.wants(kindCancel); cancel.id != take {
		t.Error(cancel)
	}
	one.say(kindValue, take, Object{"messages": delivered(8, 1)}) // it was quick enough
	back := one.wants(kindTopic)
	if want := []any{"r6", "r7", "r8"}; back.body["op"] != "nack" || back.body["delay"] != Duration(0) || !reflect.DeepEqual(back.body["receipts"], want) {
		t.Error(back.body)
	}
	one.say(kindValue, back.id, Object{"nacked": 3, "stale": 0, "stale_receipts": []any{}})
	if found := <-stopped; found.err != nil {
		t.Error(found)
	}
	ends(client, one)
}

func TestC40DoneIsOneTransaction(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	group := client.Database("a", "b").Topic("jobs").Group("workers")
	message := &Delivery{Receipt: "r1", owner: single{group}}
	done := later(func() (any, error) {
		answer, ok, err := message.Done(patient(t), "CREATE a;\nCREATE b", Params{"n": 1})
		if err != nil {
			return nil, err
		}
		return fmt.Sprint(ok, answer != nil && len(answer.Results) == 1), nil
	})
	want := "BEGIN; LET $storeclient_receipt_ack = ACK `jobs` AS `workers` RECEIPTS [$storeclient_receipt]; " +
		"IF $storeclient_receipt_ack.stale > 0 { THROW 'storeclient: the receipt is stale' }; CREATE a;\nCREATE b\n;COMMIT"
	one := node.greet()
	run := one.wants(kindRun)
	if run.body["script"] != want || !reflect.DeepEqual(run.body["params"], Object{"n": int64(1), "storeclient_receipt": "r1"}) {
		t.Error(run.body)
	}
	one.conn.Close() // twice does no harm
	two := node.greet()
	run = two.wants(kindRun)
	result := func(kind string) Object {
		return Object{"value": nil, "kind": kind, "rows": 0, "took": Duration(1)}
	}
	two.say(kindAnswer, run.id, Object{"results": []any{
		result("none"), result("none"), result("none"), result("rows"), result("none"),
	}, "seq": 1})
	if found := <-done; found.value != "true true" {
		t.Error(found)
	}
	_, _, err := message.Done(patient(t), "CREATE a", Params{"storeclient_receipt": "x"})
	if err == nil {
		t.Error("a parameter is taken that Done names its own")
	}
	ends(client, two)
}

func TestC41AConsumerExtendsWhatItHolds(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx := patient(t)
	consumer := client.Database("a", "b").Topic("jobs").Group("workers").Messages(Prefetch(2), Extending())
	first := later(func() (any, error) { return consumer.Next(ctx) })
	one := node.greet()
	var take int64
	for range 2 { // TAKE and INFO, in no order
		asked := one.next()
		if asked.kind == kindRun {
			if asked.body["script"] != "INFO FOR GROUP `workers` ON `jobs`" {
				t.Error(asked.body)
			}
			one.answer(asked.id, Object{"deadline": 3 * Millisecond}, 1)
		} else {
			take = asked.id
		}
	}
	one.say(kindValue, take, Object{"messages": delivered(1, 2)})
	if found := <-first; found.err != nil {
		t.Fatal(found)
	}
	for seen := 0; seen < 2; { // the one that was given out, and the one that was not
		asked := one.wants(kindTopic)
		if asked.body["op"] == "take" {
			continue
		}
		receipts, _ := asked.body["receipts"].([]any)
		if asked.body["op"] != "extend" || asked.body["by"] != 3*Millisecond {
			t.Fatal(asked.body)
		}
		stale := []any{}
		if len(receipts) == 2 {
			if seen++; seen == 2 {
				stale = receipts // they are let go
			}
		}
		one.say(kindValue, asked.id, Object{"extended": 2 - len(stale), "stale": len(stale), "stale_receipts": stale})
	}
	until(t, func() bool {
		consumer.mu.Lock()
		defer consumer.mu.Unlock()
		return len(consumer.ready)+len(consumer.held) == 0
	})
	go func() {
		for {
			asked, err := one.read()
			switch {
			case err != nil || asked.kind == kindBye:
				one.conn.Close()
				return
			case asked.kind == kindCancel:
				one.refuse(asked.id, Cancelled, nil)
			}
		}
	}()
	if err := consumer.Stop(ctx); err != nil {
		t.Error(err)
	}
	client.Close()
}

func TestC46AMirrorIsReadAnewWhereTheLogHasNoMore(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx := patient(t)
	copies := make(chan Copied, 2)
	mirrored := make(chan *Mirror, 1)
	go func() {
		mirror, err := client.Database("a", "b").Mirror(ctx, "item", OnCopy(func(c Copied) { copies <- c }))
		if err != nil {
			t.Error(err)
		}
		mirrored <- mirror
	}()
	one := node.greet()
	reads := func(seq int64, name string) {
		t.Helper()
		for range 3 { // a moment, a page of it, and its end
			run := one.wants(kindRun)
			rows := []any{}
			if run.body["script"] != "" {
				rows = append(rows, Object{"id": NewRecordID("item", 1), "name": name})
			}
			body := Object{
				"results": []any{Object{"value": rows, "kind": "rows", "rows": len(rows), "took": Duration(1)}},
				"seq":     seq, "store": "s", "epoch": int64(1),
			}
			if run.body["moment"] == "new" {
				body["moment"] = "m"
			}
			one.say(kindAnswer, run.id, body)
		}
	}
	reads(4, "lamp")
	mirror := <-mirrored
	if c := <-copies; c.Seq != 4 || c.Rows != 1 || c.Why != nil {
		t.Error(c)
	}
	watch := one.wants(kindWatch)
	if watch.body["from"] != int64(4) || watch.body["store"] != "s" || watch.body["epoch"] != int64(1) {
		t.Error(watch.body)
	}
	one.refuse(watch.id, LogPruned, nil)
	if row, ok := mirror.Get(NewRecordID("item", 1)); !ok || row["name"] != "lamp" { // meanwhile
		t.Error(row, ok)
	}
	reads(9, "desk")
	if c := <-copies; c.Seq != 9 || !errors.Is(c.Why, LogPruned) {
		t.Error(c)
	}
	if row, _ := mirror.Get(NewRecordID("item", 1)); row["name"] != "desk" || mirror.Seq() != 9 {
		t.Error(row)
	}
	watch = one.wants(kindWatch)
	one.say(kindChange, watch.id, Object{"type": "open", "seq": 9, "start": 9, "store": "s", "epoch": 1, "start_epoch": 1})
	one.say(kindChange, watch.id, Object{
		"type": "commit", "seq": 10, "epoch": 1, "at": time.Unix(1, 0), "by": nil, "reason": nil,
		"changes": []any{Object{"action": "delete", "id": NewRecordID("item", 1), "value": nil}},
	})
	if err := mirror.Reached(ctx, 10); err != nil || mirror.Len() != 0 {
		t.Error(err, mirror.Len())
	}
	go func() { // what is asked for behind the end of the mirror
		for {
			asked, err := one.read()
			switch {
			case err != nil || asked.kind == kindBye:
				one.conn.Close()
				return
			case asked.kind == kindUnwatch:
				one.say(kindAnswer, asked.id, Object{"seq": 10, "epoch": 1})
			}
		}
	}()
	mirror.Close()
	client.Close()
}

func TestC48ABackupIsWholeOrNoFile(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	folder := t.TempDir()
	path := filepath.Join(folder, "monday")
	home := later(func() (any, error) { return client.Connect(patient(t)) })
	first := node.greet()
	<-home
	part := func(n, done, total int64) Object {
		return Object{"n": n, "bytes": []byte("12345"), "done": done, "total": total}
	}
	whole := Object{
		"results": []any{Object{
			"value": Object{"form": "snapshot", "records": 3, "version": "0"}, "kind": "value", "rows": 0, "took": Duration(1),
		}},
		"seq": 1,
	}
	for name, says := range map[string]func(*spoken, int64){
		"a part is missing": func(one *spoken, id int64) {
			one.say(kindPart, id, part(1, 5, 15))
			one.say(kindPart, id, part(3, 15, 15))
			one.say(kindAnswer, id, whole)
		},
		"the last part is missing": func(one *spoken, id int64) {
			one.say(kindPart, id, part(1, 5, 10))
			one.say(kindAnswer, id, whole)
		},
		"it is refused": func(one *spoken, id int64) {
			one.say(kindPart, id, part(1, 5, 10))
			one.refuse(id, Busy, nil)
		},
		"it breaks off": func(one *spoken, id int64) {
			one.say(kindPart, id, part(1, 5, 10))
			one.conn.Close()
		},
		"": func(one *spoken, id int64) {
			one.say(kindPart, id, part(1, 5, 10))
			one.say(kindPart, id, part(2, 10, 10))
			one.say(kindAnswer, id, whole)
		},
	} {
		taken := later(func() (any, error) { return client.BackupFile(patient(t), path) })
		own := node.greet() // a connection of its own
		run := own.wants(kindRun)
		if run.body["script"] != "BACKUP" || run.body["stream"] != true {
			t.Error(run.body)
		}
		says(own, run.id)
		found := <-taken
		left, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		if name != "" && (found.err == nil || len(left) > 0) {
			t.Error(name, found, left)
		}
		if name == "" {
			if found.err != nil || found.value != (Backup{10, "snapshot", 3, "0"}) || len(left) != 1 || left[0].Name() != "monday" {
				t.Error(found, left)
			}
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
	}
	ends(client, first)
}

func TestC50TheNodesUnknownOutcomeIsOneToo(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	asked := client.runs(patient(t), "CREATE a")
	one := node.greet()
	one.refuse(one.wants(kindRun).id, UnknownOutcome, nil)
	if found := <-asked; !errors.Is(found.err, ErrOutcomeUnknown) || !errors.Is(found.err, UnknownOutcome) ||
		errors.Is(found.err, ErrUnreachable) || errors.Is(found.err, ErrProtocolBroken) || errors.Is(found.err, ErrClosed) {
		t.Error(found)
	}
	ends(client, one)
}

// What a hostile node may say in the place of numbers.
func TestC8FieldsOfOtherTypesEndARequestOrAFeed(t *testing.T) {
	node := newPeer(t)
	client := clientOf(t, node.address)
	ctx := patient(t)
	commits := make(chan outcome)
	go func() {
		for _, err := range client.Database("a", "b").Watch("c").Commits(ctx) {
			commits <- outcome{nil, err}
		}
	}()
	one := node.greet()
	watch := one.wants(kindWatch)
	one.say(kindChange, watch.id, Object{"type": "open", "seq": 9, "start": 9, "store": "s", "epoch": 1, "start_epoch": 1})
	one.say(kindChange, watch.id, Object{"type": "commit", "seq": 10, "epoch": 1, "part": []any{}, "of": []any{}, "changes": 1})
	if found := <-commits; !errors.Is(found.err, ErrProtocolBroken) {
		t.Error(found)
	}
	one.wants(kindUnwatch)
	for _, body := range []Object{
		{"results": 1, "seq": 1}, {"results": []any{1}, "seq": 1}, {"results": []any{}, "seq": "1"}, {"results": []any{}},
		{"results": []any{}, "seq": 1, "epoch": "x"}, {"results": []any{}, "seq": 1, "moment": 1},
		{"results": []any{Object{"value": 1, "kind": "value", "rows": 0, "took": Duration(1), "changed": "x"}}, "seq": 1},
	} {
		asked := client.runs(ctx, "RETURN 1")
		one.say(kindAnswer, one.wants(kindRun).id, body)
		if found := <-asked; !errors.Is(found.err, ErrProtocolBroken) {
			t.Error(body, found)
		}
	}
	one.say(kindAnswer, watch.id, Object{"seq": 9})
	ends(client, one)
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
