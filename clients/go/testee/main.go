// Command testee makes the calls of the conformance suite with this client: clients/conformance/README.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	store "storenode/clients/go"
	"storenode/clients/go/internal/times"
)

// call is a line of the suite, or one of several in it.
type call map[string]any

func (c call) text(name string) string {
	found, _ := c[name].(string)
	return found
}

func (c call) is(name string) bool {
	found, _ := c[name].(bool)
	return found
}

func (c call) has(name string) bool { return c[name] != nil }

func (c call) number(name string, usual float64) float64 {
	if found, ok := c[name].(float64); ok {
		return found
	}
	return usual
}

func (c call) time(name string) time.Duration {
	return time.Duration(c.number(name, 0) * float64(time.Millisecond))
}

func (c call) texts(name string) []string {
	given, _ := c[name].([]any)
	found := make([]string, len(given))
	for n, one := range given {
		found[n] = one.(string)
	}
	return found
}

func (c call) params() store.Params {
	given, _ := c["params"].(map[string]any)
	return readObject(given)
}

// iteration is what goes on for ever, one item after the other.
type iteration struct {
	next  func(ctx context.Context) (item any, ok bool, err error)
	stop  func(ctx context.Context) error
	watch *store.Watch
}

type testee struct {
	mu         sync.Mutex
	out        *bufio.Writer
	names      map[string]any
	events     map[string][]any
	copies     map[string][]any
	deliveries map[string]*store.Delivery
	lets       map[string]chan struct{}
	running    map[int64]context.CancelFunc
	all        sync.WaitGroup
}

type misuse string

func (m misuse) Error() string { return "testee: " + string(m) }

func (t *testee) clear() {
	t.names, t.events, t.copies = map[string]any{}, map[string][]any{}, map[string][]any{}
	t.deliveries, t.lets = map[string]*store.Delivery{}, map[string]chan struct{}{}
}

// begin begins a call, which is answered when it ends.
func (t *testee) begin(asked call) {
	id := int64(asked.number("id", 0))
	ctx, cancel := context.WithCancel(context.Background())
	t.mu.Lock()
	t.running[id] = cancel
	t.mu.Unlock()
	isReset := asked.text("call") == "reset"
	if !isReset {
		t.all.Add(1)
	}
	go func() {
		if !isReset {
			defer t.all.Done()
		}
		answer := map[string]any{"id": id}
		value, err := t.make(ctx, asked)
		if errors.As(err, new(unsupported)) {
			answer["skip"] = err.Error()
		} else if err != nil {
			answer["error"] = errorOf(err)
		} else {
			answer["value"] = write(value)
		}
		cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, id)
		line, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		_, _ = t.out.Write(append(line, '\n'))
		_ = t.out.Flush()
	}()
}

// make makes a call. What panics about an argument is its error.
func (t *testee) make(ctx context.Context, asked call) (value any, err error) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case error:
			value, err = nil, found
		default:
			value, err = nil, misuse(fmt.Sprint(found))
		}
	}()
	work, known := calls[asked.text("call")]
	if !known {
		return nil, misuse("no such call: " + asked.text("call"))
	}
	return work(t, ctx, asked)
}

func named[T any](t *testee, asked call) T {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.names[asked.text("on")].(T)
	if !ok {
		panic(misuse("nothing is named " + asked.text("on")))
	}
	return found
}

func (t *testee) name(asked call, thing any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[asked.text("as")] = thing
}

func (t *testee) letting(name string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lets[name] == nil {
		t.lets[name] = make(chan struct{})
	}
	return t.lets[name]
}

func (t *testee) keep(d *store.Delivery) store.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deliveries[d.Receipt] = d
	return deliveryOf(d)
}

func (t *testee) client(asked call) *store.Client { return named[*store.Client](t, asked) }

func (t *testee) database(asked call) *store.Database {
	return t.client(asked).Database(asked.text("ns"), asked.text("db"))
}

func (t *testee) cache(asked call) *store.Cache { return t.database(asked).Cache(asked.text("space")) }

func (t *testee) topic(asked call) *store.Topic { return t.database(asked).Topic(asked.text("topic")) }

func (t *testee) group(asked call) *store.Group { return t.topic(asked).Group(asked.text("group")) }

func (t *testee) reader(asked call) *store.Reader { return t.topic(asked).Reader(asked.text("reader")) }

func (t *testee) vault(asked call) *store.Vault { return t.database(asked).Vault(asked.text("vault")) }

func (t *testee) seal(asked call) *store.Seal {
	if asked.has("vault") {
		return &t.vault(asked).Seal
	}
	return t.client(asked).StoreSeal()
}

func (t *testee) delivery(asked call) *store.Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deliveries[asked.text("receipt")]
}

// reset ends all clients without waiting for anything.
func (t *testee) reset() {
	t.mu.Lock()
	for _, cancel := range t.running {
		cancel()
	}
	var ends sync.WaitGroup
	for _, one := range t.names {
		switch known := one.(type) {
		case *store.Client:
			ends.Add(1)
			go func() { known.Close(); ends.Done() }()
		case *store.Mirror:
			go known.Close()
		case *iteration:
			if known.stop != nil {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				go func() { _ = known.stop(ctx) }()
			}
		}
	}
	for _, one := range t.lets {
		select {
		case <-one:
		default:
			close(one)
		}
	}
	t.mu.Unlock()
	t.all.Wait()
	ends.Wait()
	times.Set(times.Usual)
	t.mu.Lock()
	t.clear()
	t.mu.Unlock()
}

func (t *testee) open(asked call) (any, error) {
	addresses, ok := asked["addresses"].(string)
	if !ok {
		addresses = strings.Join(asked.texts("addresses"), ",")
	}
	as := asked.text("as")
	opts := []store.Option{store.OnConnection(func(e store.ConnectionEvent) {
		var cause any
		if e.Err != nil {
			cause = e.Err.Error()
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.events[as] = append(t.events[as], store.Object{"change": string(e.Change), "address": e.Address, "cause": cause})
	})}
	if asked.has("user") {
		opts = append(opts, store.WithUser(asked.text("user"), asked.text("password")))
	}
	if asked.has("token") {
		opts = append(opts, store.WithToken(asked.text("token")))
	}
	if asked.has("timeout") {
		opts = append(opts, store.WithTimeout(asked.time("timeout")))
	}
	if asked.has("connect_timeout") {
		opts = append(opts, store.WithConnectTimeout(asked.time("connect_timeout")))
	}
	if asked.text("reads") == "any" {
		opts = append(opts, store.WithReadsAnywhere())
	}
	if trust, ok := asked["tls"].(map[string]any); ok {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(must(os.ReadFile(trust["ca"].(string))))
		opts = append(opts, store.WithTLS(&tls.Config{RootCAs: pool}))
	}
	if given, ok := asked["times"].(map[string]any); ok {
		found := times.Usual
		for name, field := range map[string]*time.Duration{
			"quiet": &found.Quiet, "answer": &found.Answer, "leaving": &found.Leaving, "grace": &found.Grace,
		} {
			if given[name] != nil {
				*field = call(given).time(name)
			}
		}
		times.Set(found)
	}
	client, err := store.Open(addresses, opts...)
	if err == nil {
		t.name(asked, client)
	}
	return nil, err
}

func (t *testee) run(ctx context.Context, asked call) (*store.Answer, error) {
	t.mu.Lock()
	runner, _ := t.names[asked.text("on")].(store.Runner)
	t.mu.Unlock()
	if runner == nil {
		return nil, misuse("nothing is named " + asked.text("on"))
	}
	opts := runOptions(asked)
	if asked.has("ns") || asked.has("db") {
		opts = append(opts, store.In(asked.text("ns"), asked.text("db")))
	}
	return runner.Run(ctx, asked.text("script"), asked.params(), opts...)
}

// runOptions returns the options of a script that a call has, but for its place.
func runOptions(asked call) []store.RunOption {
	var opts []store.RunOption
	if asked.has("timeout") {
		opts = append(opts, store.Timeout(asked.time("timeout")))
	}
	if asked.has("reason") {
		opts = append(opts, store.Reason(asked.text("reason")))
	}
	if asked.is("repeatable") {
		opts = append(opts, store.Repeatable())
	}
	if asked.is("record") {
		opts = append(opts, store.Record())
	}
	if asked.has("after") {
		opts = append(opts, store.After(int64(asked.number("after", 0))))
	}
	if asked.is("current") {
		opts = append(opts, store.Current())
	}
	return opts
}

func (t *testee) rows(ctx context.Context, asked call) (any, error) {
	t.mu.Lock()
	on := t.names[asked.text("on")]
	t.mu.Unlock()
	var runner store.Runner
	if moment, ok := on.(*store.Moment); ok {
		runner = moment
	} else {
		runner = t.database(asked)
	}
	var opts []store.RowsOption
	if asked.has("page") {
		opts = append(opts, store.Page(int(asked.number("page", 0))))
	}
	found := []any{}
	for row, err := range store.Rows[store.Object](ctx, runner, asked.text("select"), asked.params(), opts...) {
		if err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, nil
}

func (t *testee) setOptions(asked call) []store.SetOption {
	var opts []store.SetOption
	if asked.has("ttl") {
		opts = append(opts, store.TTL(asked.time("ttl")))
	}
	if asked.is("keep_ttl") {
		opts = append(opts, store.KeepTTL())
	}
	return opts
}

func (t *testee) getOrSet(ctx context.Context, asked call) (any, error) {
	load, loads := asked["load"].(map[string]any), 0
	value, err := store.GetOrSet(ctx, t.cache(asked), asked.text("key"), asked.time("ttl"), func(ctx context.Context) (any, error) {
		loads++
		if name, waits := load["after"].(string); waits {
			select {
			case <-t.letting(name):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if load["fail"] == true {
			return nil, errLoader
		}
		return read(load["value"]), nil
	})
	return store.Object{"value": value, "loads": loads}, err
}

func (t *testee) lock(ctx context.Context, asked call) (any, error) {
	var opts []store.LockOption
	if asked.has("holder") {
		opts = append(opts, store.Holder(asked.text("holder")))
	}
	if asked.is("renew") {
		opts = append(opts, store.Renew())
	}
	lease, ok, err := t.cache(asked).Lock(ctx, asked.text("key"), asked.time("ttl"), opts...)
	if err != nil || !ok {
		return nil, err
	}
	t.name(asked, lease)
	return store.Object{"fence": lease.Fence(), "until": lease.Until()}, nil
}

func isLost(lease *store.Lease) bool {
	select {
	case <-lease.Lost():
		return true
	default:
		return false
	}
}

func publishOptions(asked call) []store.PublishOption {
	var opts []store.PublishOption
	if asked.has("key") {
		opts = append(opts, store.Key(asked.text("key")))
	}
	if asked.has("message_id") {
		opts = append(opts, store.ID(asked.text("message_id")))
	}
	if given, ok := asked["headers"].(map[string]any); ok {
		headers := map[string]string{}
		for name, text := range given {
			headers[name] = text.(string)
		}
		opts = append(opts, store.Headers(headers))
	}
	if asked.has("delay") {
		opts = append(opts, store.Delay(asked.time("delay")))
	}
	if asked.has("at") {
		opts = append(opts, store.At(read(asked["at"]).(time.Time)))
	}
	if asked.has("expect") {
		opts = append(opts, store.Expect(int64(asked.number("expect", 0))))
	}
	return opts
}

func place(asked call) []store.Place {
	switch at := asked["at"].(type) {
	case nil:
		return nil
	case string:
		return []store.Place{store.TheEnd()}
	case float64:
		return []store.Place{store.Behind(int64(at))}
	}
	return []store.Place{store.Since(read(asked["at"]).(time.Time))}
}

func settleOptions(asked call) []store.SettleOption {
	var opts []store.SettleOption
	if asked.has("error") {
		opts = append(opts, store.Because(asked.text("error")))
	}
	if asked.has("delay") {
		opts = append(opts, store.RetryAfter(asked.time("delay")))
	}
	return opts
}

// iterate names what yields one item after the other. `of` makes an item a value.
func iterate[T any](t *testee, asked call, over func(context.Context) iter.Seq2[T, error], of func(T) any) *iteration {
	ctx, cancel := context.WithCancel(context.Background())
	next, leave := iter.Pull2(over(ctx))
	found := &iteration{
		next: func(within context.Context) (any, bool, error) {
			defer context.AfterFunc(within, cancel)()
			item, err, ok := next()
			if !ok || err != nil {
				leave() // the loop over it ends
				return nil, ok, err
			}
			return of(item), true, nil
		},
		stop: func(context.Context) error { cancel(); return nil },
	}
	t.name(asked, found)
	return found
}

func (t *testee) messages(asked call) (any, error) {
	var opts []store.TakeOption
	if asked.has("prefetch") {
		opts = append(opts, store.Prefetch(int(asked.number("prefetch", 0))))
	}
	if asked.has("member") {
		opts = append(opts, store.Member(asked.text("member")))
	}
	if asked.is("extend") {
		opts = append(opts, store.Extending())
	}
	consumer := t.group(asked).Messages(opts...)
	t.name(asked, &iteration{
		next: func(ctx context.Context) (any, bool, error) {
			found, err := consumer.Next(ctx)
			if err == io.EOF {
				return nil, false, nil
			}
			if err != nil {
				return nil, false, err
			}
			return t.keep(found), true, nil
		},
		stop: consumer.Stop,
	})
	return nil, nil
}

func watchOptions(asked call) []store.WatchOption {
	var opts []store.WatchOption
	switch from := asked["from"].(type) {
	case float64:
		opts = append(opts, store.From(store.Position{Seq: int64(from)}))
	case map[string]any:
		at := store.Position{Seq: int64(from["seq"].(float64))}
		at.Store, _ = from["store"].(string)
		epoch, _ := from["epoch"].(float64)
		at.Epoch = int64(epoch)
		opts = append(opts, store.From(at))
	}
	if asked.has("actions") {
		opts = append(opts, store.Actions(asked.texts("actions")...))
	}
	if asked.has("where") {
		opts = append(opts, store.Where(asked.text("where")))
	}
	if asked.is("before") {
		opts = append(opts, store.WithBefore())
	}
	return opts
}

func (t *testee) mirror(ctx context.Context, asked call) (any, error) {
	as := asked.text("as")
	opts := append(watchOptions(asked), store.OnCopy(func(c store.Copied) {
		var refusal *store.Error
		var why any
		if errors.As(c.Why, &refusal) {
			why = string(refusal.Code)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.copies[as] = append(t.copies[as], store.Object{"rows": c.Rows, "why": why})
	}))
	if asked.has("page") {
		opts = append(opts, store.CopyPage(int(asked.number("page", 0))))
	}
	found, err := t.database(asked).Mirror(ctx, asked.text("table"), opts...)
	if err == nil {
		t.name(asked, found)
	}
	return nil, err
}

func vaultOptions(asked call) []store.VaultOption {
	var opts []store.VaultOption
	if asked.is("if_absent") {
		opts = append(opts, store.IfAbsent())
	}
	if asked.has("expect") {
		opts = append(opts, store.ExpectVersion(int64(asked.number("expect", 0))))
	}
	if asked.has("version") {
		opts = append(opts, store.OfVersion(int64(asked.number("version", 0))))
	}
	if asked.has("reason") {
		opts = append(opts, store.For(asked.text("reason")))
	}
	return opts
}

func (t *testee) backup(ctx context.Context, asked call) (any, error) {
	progress := []any{}
	opts := []store.BackupOption{store.Progress(func(done, total int64) { progress = append(progress, done) })}
	if asked.has("ns") {
		opts = append(opts, store.Of(asked.text("ns"), asked.text("db")))
	}
	if asked.has("reason") {
		opts = append(opts, store.BackupReason(asked.text("reason")))
	}
	found, err := t.client(asked).BackupFile(ctx, asked.text("path"), opts...)
	return store.Object{
		"bytes": found.Bytes, "form": found.Form, "records": found.Records, "version": found.Version, "progress": progress,
	}, err
}

func main() {
	// A call asks before the next one begins, as in a language without threads.
	runtime.GOMAXPROCS(1)
	t := &testee{out: bufio.NewWriter(os.Stdout), running: map[int64]context.CancelFunc{}}
	t.clear()
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var calls []call
		if !bytes.HasPrefix(line, []byte("[")) {
			line = append(append([]byte("["), line...), ']')
		}
		if err := json.Unmarshal(line, &calls); err != nil {
			panic(err)
		}
		for _, one := range calls {
			t.begin(one)
		}
		go func() {}()    // the newest goroutine runs first; all others in their order,
		runtime.Gosched() // each until it has asked
	}
	t.reset()
}
