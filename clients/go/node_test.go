package storeclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// realNode is a client of the node that STORENODE_ADDRESS names, and a database of it that is the test's own.
func realNode(t testing.TB, opts ...Option) (*Client, *Database, context.Context) {
	t.Helper()
	address := os.Getenv("STORENODE_ADDRESS")
	if address == "" {
		t.Skip("STORENODE_ADDRESS names no node: see README.md")
	}
	user, password := os.Getenv("STORENODE_USER"), os.Getenv("STORENODE_PASSWORD")
	client, err := Open(address, append([]Option{WithUser(user, password), WithConnectTimeout(patience)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ctx := patient(t)
	name, _, _ := strings.Cut(strings.ToLower(t.Name()), "/")
	must(t, client, ctx, fmt.Sprintf("DEFINE NAMESPACE IF NOT EXISTS %s; DEFINE DATABASE IF NOT EXISTS %s.main", name, name), nil)
	return client, client.Database(name, "main"), ctx
}

func must(t testing.TB, on Runner, ctx context.Context, script string, params Params) *Answer {
	t.Helper()
	answer, err := on.Run(ctx, script, params)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// same fails the test unless what a call returned is wanted.
func same(t *testing.T, found, want any, err error) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Fatalf("%#v, %v; wanted %#v", found, err, want)
	}
}

func refused(t *testing.T, err error, code error) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("%v, not %v", err, code)
	}
}

func TestNodeValues(t *testing.T) {
	_, db, ctx := realNode(t)
	every := Object{
		"null": nil, "bool": true, "int": int64(1<<63 - 1), "least": int64(-1 << 63), "float": 1.0, "tenth": 0.1,
		"decimal": MustDecimal("12.30"), "string": "naïve ☃ 'quoted'", "bytes": []byte{0, 255},
		"datetime": time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC), "before": time.Date(1931, 1, 2, 3, 4, 5, 7000, time.UTC),
		"duration": -3*24*Hour + 7, "uuid": UUID{1, 0x8f}, "record": NewRecordID("person", []any{"a", 1}),
		"array": []any{int64(1), []any{2.5, []any{MustDecimal("1")}}, "x"}, "object": Object{"b c": Object{"d": []any{}}},
	}
	must(t, db, ctx, "DEFINE TABLE item; CREATE item:1 CONTENT $v", Params{"v": Object{"v": every}})
	found, err := Query[[]Object](ctx, db, "SELECT VALUE v FROM item", nil)
	same(t, found, []Object{every}, err)
	none, err := Query[any](ctx, db, "RETURN $v", Params{"v": None})
	same(t, none, None, err)
}

func TestNodeScripts(t *testing.T) {
	client, db, ctx := realNode(t)
	must(t, db, ctx, "DEFINE TABLE item", nil)
	answer, err := db.Run(ctx, "CREATE item:1 SET a = 1; CREATE item:1 SET a = 2; RETURN 3", nil)
	refused(t, err, AlreadyExists)
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Statement != 2 || refusal.Committed() == 0 || len(refusal.Results) != 1 || answer != nil {
		t.Fatalf("%#v", refusal)
	}
	var tx Transaction
	for n := range 3 {
		tx.Add("CREATE item CONTENT { n: $n, was: '$n' } -- $n", Params{"n": n})
	}
	answer, err = tx.Run(ctx, db)
	if err != nil || len(answer.Results) != 3 {
		t.Fatal(answer, err)
	}
	numbers, err := Query[[]int](ctx, db, "SELECT VALUE n FROM item WHERE n >= 0 ORDER BY n", nil)
	same(t, numbers, []int{0, 1, 2}, err)
	_, err = new(Transaction).Add("CREATE item:7", nil).Add("CREATE item:1", nil).Run(ctx, db)
	refused(t, err, AlreadyExists)
	gone, err := Query[[]Object](ctx, db, "SELECT * FROM item:7", nil)
	same(t, gone, []Object{}, err)
	_, err = new(Transaction).Add("COMMIT; CREATE item:8", nil).Run(ctx, db)
	if err == nil {
		t.Fatal("a transaction says COMMIT in its middle")
	}
	must(t, db, ctx, "DELETE item", nil)
	rows := make([]any, 25)
	for n := range rows {
		rows[n] = Object{"id": n, "name": fmt.Sprint("chair ", n)}
	}
	must(t, db, ctx, "INSERT INTO item $rows", Params{"rows": rows})
	type chair struct {
		ID   RecordID
		Name string
	}
	var read []string
	then, err := db.Moment(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for row, err := range Rows[chair](ctx, then, "SELECT id, name FROM item WHERE name != $not", Params{"not": "chair 3"}, Page(7)) {
		if err != nil {
			t.Fatal(err)
		}
		if len(read) == 0 {
			must(t, db, ctx, "DELETE item WHERE id > item:10", nil)
		}
		read = append(read, row.Name)
	}
	if len(read) != 24 || read[3] != "chair 4" || read[23] != "chair 24" {
		t.Fatal(read)
	}
	if err := then.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = then.Run(ctx, "RETURN 1", nil)
	refused(t, err, Unknown)
	for row, err := range Rows[Object](ctx, db, "SELECT name FROM item", nil) {
		if err == nil || !strings.Contains(err.Error(), "`id` among its fields") {
			t.Fatal(row, err)
		}
	}
	_, err = db.Run(ctx, "CREATE item:99; SELECT * FROM item", nil, Timeout(time.Minute), Reason("why"), After(answer.Seq), Current(), Record())
	same(t, nil, nil, err)
	if err := client.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	welcome, err := client.Connect(ctx)
	same(t, []any{welcome.Minor, welcome.Writable, welcome.User["name"]}, []any{minorMost, true, os.Getenv("STORENODE_USER")}, err)
	_, err = db.Topic("none").Read(ctx, 0, 1, time.Minute)
	refused(t, err, Unknown)
	_, err = client.Database("not a name", "main").Run(ctx, "RETURN 1", nil)
	if err == nil {
		t.Fatal("a name is taken that is none")
	}
}

func TestNodeCache(t *testing.T) {
	_, db, ctx := realNode(t)
	must(t, db, ctx, "DEFINE SPACE sessions", nil)
	cache := db.Cache("sessions")
	_, ok, err := cache.Get(ctx, "a")
	same(t, ok, false, err)
	same(t, nil, nil, cache.Set(ctx, "a", nil))
	value, ok, err := cache.Get(ctx, "a")
	same(t, []any{value, ok}, []any{nil, true}, err)
	left, ok, err := cache.TTL(ctx, "a")
	same(t, []any{left, ok}, []any{Forever, true}, err)
	done, err := cache.CompareAndSet(ctx, "a", nil, 1.0, TTL(time.Hour))
	same(t, done, true, err)
	done, err = cache.CompareAndSet(ctx, "a", 1, 2)
	same(t, done, false, err)
	same(t, nil, nil, cache.Set(ctx, "a", 5, KeepTTL()))
	if left, ok, err = cache.TTL(ctx, "a"); err != nil || !ok || left > time.Hour || left < time.Second {
		t.Fatal(left, ok, err)
	}
	done, err = cache.Persist(ctx, "a")
	same(t, done, true, err)
	done, err = cache.Expire(ctx, "none", time.Minute)
	same(t, done, false, err)
	number, err := cache.Incr(ctx, "a", 3)
	same(t, number, int64(8), err)
	done, err = cache.SetIfAbsent(ctx, "a", 1)
	same(t, done, false, err)
	done, err = cache.SetIfPresent(ctx, "b", 1)
	same(t, done, false, err)
	_, err = cache.Incr(ctx, "text", 1)
	same(t, nil, nil, err)
	same(t, nil, nil, cache.Set(ctx, "text", "x"))
	_, err = cache.Incr(ctx, "text", 1)
	refused(t, err, NotANumber)
	keys, err := cache.Keys(ctx, "", "a", 10)
	same(t, keys, []string{"text"}, err)
	var all []string
	for key, err := range cache.AllKeys(ctx, "") {
		same(t, nil, nil, err)
		all = append(all, key)
	}
	same(t, all, []string{"a", "text"}, nil)
	done, err = cache.Delete(ctx, "text")
	same(t, done, true, err)
	typed, ok, err := Get[int](ctx, cache, "a")
	same(t, []any{typed, ok}, []any{8, true}, err)

	var racing sync.WaitGroup
	found := make([]string, 8)
	for n := range found {
		racing.Add(1)
		go func() {
			defer racing.Done()
			found[n], _ = GetOrSet(ctx, cache, "loaded", time.Minute, func(context.Context) (string, error) { return fmt.Sprint(n), nil })
		}()
	}
	racing.Wait()
	if found[0] == "" || len(slices.Compact(found)) != 1 {
		t.Fatal(found)
	}

	lease, ok, err := cache.Lock(ctx, "job", time.Minute, Holder("one"), Renew())
	same(t, ok, true, err)
	_, ok, err = cache.Lock(ctx, "job", time.Minute)
	same(t, ok, false, err)
	held, err := lease.Extend(ctx, 2*time.Minute)
	same(t, []any{held, lease.Fence() > 0, lease.Until().After(time.Now())}, []any{true, true, true}, err)
	released, err := lease.Release(ctx)
	same(t, released, true, err)
	<-lease.Lost()
	held, err = lease.Extend(ctx, 0)
	same(t, held, false, err)
	again, ok, err := cache.Lock(ctx, "job", time.Minute, Holder("one"))
	same(t, []any{ok, again.Fence() > lease.Fence()}, []any{true, true}, err)
	released, err = lease.Release(ctx)
	same(t, released, false, err)
}

func TestNodeTopics(t *testing.T) {
	_, db, ctx := realNode(t)
	must(t, db, ctx, "DEFINE TOPIC jobs DEDUP 10m; DEFINE GROUP workers ON jobs DEADLINE 30s; DEFINE TABLE paid", nil)
	jobs := db.Topic("jobs")
	first, err := jobs.Publish(ctx, Object{"order": 81}, Key("ana"), ID("order-81"), Headers(map[string]string{"a": "b"}))
	same(t, first, Published{1, false}, err)
	first, err = jobs.Publish(ctx, "another", ID("order-81"))
	same(t, first, Published{1, true}, err)
	from, to, err := PublishMany(ctx, jobs, []int{1, 2, 3})
	same(t, []int64{from, to}, []int64{2, 4}, err)
	_, err = jobs.Publish(ctx, 1, Expect(9))
	refused(t, err, AssertFailed)
	_, err = jobs.Publish(ctx, 5, Delay(time.Hour))
	same(t, nil, nil, err)
	page, err := jobs.Read(ctx, 0, 10, 0)
	if err != nil || len(page) != 5 || page[0].Key != "ana" || page[0].ID != "order-81" || page[0].Headers["a"] != "b" || page[4].Due.IsZero() {
		t.Fatal(page, err)
	}
	var order struct{ Order int }
	same(t, nil, nil, page[0].Decode(&order))
	same(t, order.Order, 81, nil)

	reader := jobs.Reader("audit")
	same(t, nil, nil, reader.Define(ctx))
	for message, err := range reader.Messages(ctx, false) {
		same(t, nil, nil, err)
		if message.Position == 3 {
			break
		}
	}
	page, err = reader.Read(ctx, 10, 0)
	same(t, page[0].Position, int64(3), err)
	same(t, nil, nil, reader.Move(ctx, Since(page[2].At)))
	same(t, nil, nil, reader.Move(ctx, Behind(0)))
	seen := 0
	for _, err := range reader.Messages(ctx, false) {
		same(t, nil, nil, err)
		seen++
	}
	same(t, seen, 5, nil)
	same(t, nil, nil, jobs.Reader("late").Define(ctx, TheEnd()))
	same(t, nil, nil, reader.Drop(ctx))

	workers := jobs.Group("workers")
	taken, err := workers.Take(ctx, 2, Member("one"))
	same(t, []any{len(taken), taken[0].Attempt, taken[0].Member}, []any{2, 1, "one"}, err)
	answer, ok, err := workers.Done(ctx, taken[0], "CREATE paid SET job = $job;\nCREATE paid SET job = 0", Params{"job": taken[0].Value})
	same(t, []any{ok, len(answer.Results)}, []any{true, 2}, err)
	_, ok, err = taken[0].Done(ctx, "CREATE paid SET job = 1", nil)
	same(t, ok, false, err)
	_, _, err = taken[1].Done(ctx, "CREATE paid:1;\n  CREATE paid:1", nil)
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Code != AlreadyExists || refusal.Statement != 2 || refusal.Line != 2 || refusal.Column != 3 {
		t.Fatal(err)
	}
	_, _, err = taken[1].Done(ctx, "CREAT paid:1", nil)
	if !errors.As(err, &refusal) || refusal.Code != UnexpectedToken || refusal.Column != 1 {
		t.Fatal(err)
	}
	ok, err = taken[1].Extend(ctx, time.Minute)
	same(t, ok, true, err)
	ok, err = taken[1].Nack(ctx, RetryAfter(0), Because("later"))
	same(t, ok, true, err)
	ok, err = taken[1].Ack(ctx)
	same(t, ok, false, err)
	settled, err := workers.Ack(ctx, taken[0].Receipt, taken[1].Receipt)
	same(t, settled, Settled{0, 2, []string{taken[0].Receipt, taken[1].Receipt}}, err)
	count, err := Query[int](ctx, db, "SELECT VALUE count() FROM ONLY paid GROUP ALL", nil)
	same(t, count, 2, err)

	const many = 700
	for range many / 100 {
		_, _, err = PublishMany(ctx, jobs, make([]any, 100))
		same(t, nil, nil, err)
	}
	messages := workers.Messages(Prefetch(200), Extending())
	var acks sync.WaitGroup
	got := 0
	for message, err := range messages.All(ctx) {
		same(t, nil, nil, err)
		acks.Add(1)
		go func() {
			defer acks.Done()
			if ok, err := message.Ack(ctx); !ok || err != nil {
				t.Error(ok, err)
			}
		}()
		if got++; got == many {
			break
		}
	}
	acks.Wait()
	same(t, nil, nil, messages.Stop(ctx))
	same(t, nil, nil, messages.Stop(ctx))
	same(t, messages.Stale(), 0, nil)
	rest, err := workers.Take(ctx, 1000)
	same(t, len(rest), 3+many-got, err)
	for n, one := range rest {
		if ok, err = one.GiveUp(ctx); err != nil || !ok {
			t.Fatal(n, ok, err)
		}
	}
	info, err := workers.Info(ctx)
	same(t, info["name"], "workers", err)
	info, err = jobs.Info(ctx)
	same(t, info["name"], "jobs", err)
}

func TestNodeConsumersEndWithTheirClient(t *testing.T) {
	client, db, ctx := realNode(t)
	must(t, db, ctx, "DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 30s; DEFINE TABLE item", nil)
	waiting := later(func() (any, error) { return db.Topic("jobs").Group("workers").Messages().Next(ctx) })
	reading := later(func() (any, error) { return db.Topic("jobs").Read(ctx, 0, 1, time.Minute) })
	watching := later(func() (any, error) {
		for _, err := range db.Watch("item").Commits(ctx) {
			return nil, err
		}
		return nil, nil
	})
	conn := client.nodes.standing(client.nodes.all[0])
	until(t, func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return len(conn.calls) == 3
	})
	client.Close()
	for _, one := range []<-chan outcome{waiting, reading, watching} {
		refused(t, (<-one).err, ErrClosed)
	}
}

// A context ends what is asked with it, whatever lies ready.
func TestNodeC14AConsumerHeedsItsContexts(t *testing.T) {
	_, db, ctx := realNode(t)
	must(t, db, ctx, "DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 1h", nil)
	_, _, err := PublishMany(ctx, db.Topic("jobs"), []any{1, 2, 3})
	same(t, nil, nil, err)
	messages := db.Topic("jobs").Group("workers").Messages(Prefetch(3))
	first, err := messages.Next(ctx) // the others lie ready by then
	same(t, nil, nil, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	next, err := messages.Next(ended)
	if next != nil || !errors.Is(err, context.Canceled) {
		t.Fatal(next, err)
	}
	if _, err = first.Ack(ended); !errors.Is(err, context.Canceled) || errors.Is(err, ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	ok, err := first.Ack(ctx)
	same(t, ok, true, err)
	same(t, messages.Stale(), 0, messages.Stop(ctx))
}

func TestNodeAConsumerThatExtendsEndsWithItsClient(t *testing.T) {
	asked := make(chan struct{}, 16)
	client, db, ctx := realNode(t, WithTrace(func(ctx context.Context, call string) (context.Context, func(error)) {
		return ctx, func(error) {
			if call == "RUN" {
				asked <- struct{}{}
			}
		}
	}))
	must(t, db, ctx, "DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 12h", nil)
	for range len(asked) {
		<-asked
	}
	next := later(func() (any, error) { return db.Topic("jobs").Group("workers").Messages(Extending()).Next(ctx) })
	<-asked // for the group's deadline, a third of which is waited now
	client.Close()
	refused(t, (<-next).err, ErrClosed)
	until(t, func() bool { return !strings.Contains(ownGoroutines(), "keepExtending") })
}

// A request that is cancelled while its frame is being written leaves the connection whole, and so does an
// answer that is larger than a frame.
func TestNodeLargeRequestsAndAnswers(t *testing.T) {
	client, db, ctx := realNode(t)
	text := strings.Repeat("x", 6<<20)
	conn := client.connectionTo(0)
	for n := range 8 {
		within, cancel := context.WithCancel(ctx)
		go cancel()
		size, err := Query[int](within, db, "RETURN string::len($text)", Params{"text": text})
		if err == nil && size != len(text) || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(n, size, err)
		}
	}
	whole, err := Query[string](ctx, db, "RETURN $text", Params{"text": text})
	same(t, whole == text, true, err)
	_, err = db.Run(ctx, "RETURN [$text, $text, $text]", Params{"text": text})
	refused(t, err, AnswerTooLarge)
	_, err = db.Run(ctx, "RETURN $text", Params{"text": strings.Repeat("x", 16<<20)})
	var wrong *ValueError
	if !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	same(t, client.connectionTo(0), conn, client.Ping(ctx))
}

func TestNodeFeeds(t *testing.T) {
	_, db, ctx := realNode(t)
	before := must(t, db, ctx, "DEFINE TABLE item; CREATE item:1 SET name = 'desk'", nil).Position()
	must(t, db, ctx, "BEGIN; UPDATE item:1 SET price = 90; CREATE item:2 SET name = 'shelf', price = 5; COMMIT", nil)
	watch := db.Watch("item", From(before), WithBefore())
	var seen []string
	for change, err := range watch.Changes(ctx) {
		same(t, nil, nil, err)
		seen = append(seen, fmt.Sprint(change.Action, " ", change.ID, " ", change.Before["name"], " ", change.Last))
		if change.Last {
			break
		}
	}
	same(t, seen, []string{"update item:1 desk false", "create item:2 <nil> true"}, nil)
	at, _ := watch.Position()
	same(t, at, before, nil)
	again := db.Watch("item", From(at), Actions("create"))
	for commit, err := range again.Commits(ctx) {
		same(t, len(commit.Changes), 1, err)
		again.Stop()
	}
	if at, _ = again.Position(); at.Seq <= before.Seq {
		t.Fatal(at)
	}
	for _, err := range db.Watch("item", From(Position{Seq: 1, Store: "another"})).Commits(ctx) {
		refused(t, err, Diverged)
	}

	copies := make(chan Copied, 1)
	mirror, err := db.Mirror(ctx, "item", Where("price > 10"), CopyPage(1), OnCopy(func(c Copied) { copies <- c }))
	same(t, mirror.Len(), 1, err)
	same(t, (<-copies).Rows, 1, nil)
	answer := must(t, db, ctx, "UPDATE item:2 SET price = 35; UPDATE item:1 SET price = 5", nil)
	same(t, nil, nil, mirror.Reached(ctx, answer.Seq))
	row, ok := mirror.Get(NewRecordID("item", 2))
	same(t, []any{row["name"], ok, len(mirror.Snapshot()), mirror.Seq()}, []any{"shelf", true, 1, answer.Seq}, nil)
	same(t, nil, nil, mirror.Changed(ctx, before.Seq)) // it has changed since then already
	changed := later(func() (any, error) {
		for {
			if err := mirror.Changed(ctx, mirror.Seq()); err != nil {
				return nil, err
			}
		}
	})
	mirror.Close()
	refused(t, (<-changed).err, ErrClosed)
	refused(t, mirror.Err(), ErrClosed)
}

func TestNodeVaults(t *testing.T) {
	client, db, ctx := realNode(t)
	seal := client.StoreSeal()
	const passphrase = "open sesame, please"
	if _, err := seal.ChangePassphrase(ctx, "", passphrase); err != nil {
		t.Fatal(err)
	}
	must(t, db, ctx, "DEFINE VAULT payment VERSIONS 2", nil)
	vault := db.Vault("payment")
	_, err := vault.Write(ctx, "k", 1)
	refused(t, err, Sealed)
	_, err = seal.Unseal(ctx, "another")
	refused(t, err, WrongKey)
	until, err := seal.Unseal(ctx, passphrase)
	same(t, until.After(time.Now()), true, err)
	written, err := vault.Write(ctx, "stripe/live", "sk_1", For("new"))
	same(t, written, Written{true, 1}, err)
	written, err = vault.Write(ctx, "stripe/live", "sk_2", IfAbsent())
	same(t, written, Written{false, 1}, err)
	written, err = vault.Write(ctx, "stripe/live", "sk_2", ExpectVersion(1))
	same(t, written, Written{true, 2}, err)
	found, err := vault.Reveal(ctx, "stripe/live", For("refunds"))
	same(t, []any{found.ID, found.Value, found.Version}, []any{"stripe/live", "sk_2", int64(2)}, err)
	if text := fmt.Sprintf("%v %#v", found, found); strings.Contains(text, "sk_") {
		t.Fatal(text)
	}
	found, err = vault.Reveal(ctx, "stripe/live", OfVersion(1))
	same(t, found.Value, "sk_1", err)
	ids, err := vault.List(ctx, "stripe/", "", 10)
	same(t, ids, []string{"stripe/live"}, err)
	info, err := vault.Info(ctx)
	same(t, info["records"], int64(1), err)
	entries, err := vault.Audit(ctx, 0, 1)
	same(t, entries[0]["action"], "list", err)
	erased, err := vault.Erase(ctx, "stripe/live", For("done"))
	same(t, erased, true, err)
	same(t, nil, nil, seal.Seal(ctx))
	_, err = vault.List(ctx, "", "", 1)
	refused(t, err, Sealed)
}

func TestNodeBackups(t *testing.T) {
	client, db, ctx := realNode(t)
	must(t, db, ctx, "DEFINE TABLE item; CREATE item:1 SET text = 'a'", nil)
	path := filepath.Join(t.TempDir(), "monday.storesnap")
	var last int64
	found, err := client.BackupFile(ctx, path, Progress(func(done, _ int64) { last = done }))
	same(t, nil, nil, err)
	stat, err := os.Stat(path)
	same(t, []any{found.Bytes, found.Form, last, found.Records > 0}, []any{stat.Size(), "snapshot", stat.Size(), true}, err)
	_, err = client.BackupFile(ctx, path)
	refused(t, err, fs.ErrExist)
	found, err = client.BackupFile(ctx, path+"2", Of(db.ns, db.db), BackupReason("to see"))
	same(t, found.Records, int64(1), err)
	_, err = client.BackupFile(ctx, path+"3", Of("nowhere", ""))
	refused(t, err, Unknown)
	left, err := filepath.Glob(filepath.Dir(path) + "/*")
	same(t, left, []string{path, path + "2"}, err)
}

func TestNodeRefusesAPassword(t *testing.T) {
	client, _, ctx := realNode(t)
	other, err := Open(client.nodes.where(), WithUser("root", "wrong"))
	same(t, nil, nil, err)
	defer other.Close()
	_, err = other.Connect(ctx)
	refused(t, err, SignInRefused)
}
