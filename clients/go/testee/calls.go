package main

import (
	"context"
	"fmt"
	"iter"
	"sync"

	store "storenode/clients/go"
)

type seq = iter.Seq2[store.Message, error]

type work = func(t *testee, ctx context.Context, asked call) (any, error)

// null is the answer of what has none.
func null(err error) (any, error) { return nil, err }

func value[T any](found T, err error) (any, error) { return found, err }

var calls map[string]work

func init() {
	calls = map[string]work{
		"hello": func(*testee, context.Context, call) (any, error) {
			return store.Object{"language": "go", "version": store.Version, "minor": 10}, nil
		},
		"reset": func(t *testee, _ context.Context, _ call) (any, error) { t.reset(); return nil, nil },
		"cancel": func(t *testee, _ context.Context, asked call) (any, error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if cancel := t.running[int64(asked.number("of", 0))]; cancel != nil {
				cancel()
			}
			return nil, nil
		},
		"let": func(t *testee, _ context.Context, asked call) (any, error) {
			close(t.letting(asked.text("name")))
			return nil, nil
		},

		"open": func(t *testee, _ context.Context, asked call) (any, error) { return t.open(asked) },
		"connect": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.client(asked).Connect(ctx)
			return store.Object{"node": found.Node, "version": found.Version, "minor": found.Minor, "user": found.User["name"]}, err
		},
		"ping":  func(t *testee, ctx context.Context, asked call) (any, error) { return null(t.client(asked).Ping(ctx)) },
		"close": func(t *testee, _ context.Context, asked call) (any, error) { return null(t.client(asked).Close()) },
		"describe": func(t *testee, _ context.Context, asked call) (any, error) {
			client := t.client(asked)
			return fmt.Sprintf("%v %+v %#v", client, client, client), nil
		},
		"events": func(t *testee, _ context.Context, asked call) (any, error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			return append([]any{}, t.events[asked.text("on")]...), nil
		},

		"run": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.run(ctx, asked)
			if err != nil {
				return nil, err
			}
			return answerOf(found), nil
		},
		"transaction": func(t *testee, ctx context.Context, asked call) (any, error) {
			var transaction store.Transaction
			for _, one := range asked["statements"].([]any) {
				statement := call(one.(map[string]any))
				transaction.Add(statement.text("script"), statement.params())
			}
			found, err := transaction.Run(ctx, t.database(asked), runOptions(asked)...)
			if err != nil {
				return nil, err
			}
			return answerOf(found), nil
		},
		"query": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.run(ctx, asked)
			if err != nil {
				return nil, err
			}
			return found.Value(), nil
		},
		"rows": func(t *testee, ctx context.Context, asked call) (any, error) { return t.rows(ctx, asked) },
		"moment.open": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.database(asked).Moment(ctx, asked.time("keep"))
			if err != nil {
				return nil, err
			}
			t.name(asked, found)
			return positionOf(found.Position()), nil
		},
		"moment.close": func(t *testee, ctx context.Context, asked call) (any, error) {
			return null(named[*store.Moment](t, asked).Close(ctx))
		},

		"cache.get": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, ok, err := t.cache(asked).Get(ctx, asked.text("key"))
			return store.Object{"found": ok, "value": found}, err
		},
		"cache.set": func(t *testee, ctx context.Context, asked call) (any, error) {
			return null(t.cache(asked).Set(ctx, asked.text("key"), read(asked["value"]), t.setOptions(asked)...))
		},
		"cache.set_if_absent": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).SetIfAbsent(ctx, asked.text("key"), read(asked["value"]), t.setOptions(asked)...))
		},
		"cache.set_if_present": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).SetIfPresent(ctx, asked.text("key"), read(asked["value"]), t.setOptions(asked)...))
		},
		"cache.compare_and_set": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).CompareAndSet(ctx, asked.text("key"), read(asked["expect"]), read(asked["value"]), t.setOptions(asked)...))
		},
		"cache.incr": func(t *testee, ctx context.Context, asked call) (any, error) {
			by := int64(1)
			if asked.has("by") {
				by = read(asked["by"]).(int64)
			}
			return value(t.cache(asked).Incr(ctx, asked.text("key"), by))
		},
		"cache.delete": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).Delete(ctx, asked.text("key")))
		},
		"cache.persist": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).Persist(ctx, asked.text("key")))
		},
		"cache.expire": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).Expire(ctx, asked.text("key"), asked.time("ttl")))
		},
		"cache.ttl": func(t *testee, ctx context.Context, asked call) (any, error) {
			left, ok, err := t.cache(asked).TTL(ctx, asked.text("key"))
			switch {
			case err != nil || !ok:
				return nil, err
			case left == store.Forever:
				return "never", nil
			}
			return left, nil
		},
		"cache.keys": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.cache(asked).Keys(ctx, asked.text("prefix"), asked.text("after"), int(asked.number("limit", 1000))))
		},
		"cache.all_keys": func(t *testee, ctx context.Context, asked call) (any, error) {
			keys := []string{}
			for key, err := range t.cache(asked).AllKeys(ctx, asked.text("prefix")) {
				if err != nil {
					return nil, err
				}
				keys = append(keys, key)
			}
			return keys, nil
		},
		"cache.get_or_set": func(t *testee, ctx context.Context, asked call) (any, error) { return t.getOrSet(ctx, asked) },
		"cache.lock":       func(t *testee, ctx context.Context, asked call) (any, error) { return t.lock(ctx, asked) },
		"lease.extend": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(named[*store.Lease](t, asked).Extend(ctx, asked.time("ttl")))
		},
		"lease.release": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(named[*store.Lease](t, asked).Release(ctx))
		},
		"lease.state": func(t *testee, _ context.Context, asked call) (any, error) {
			lease := named[*store.Lease](t, asked)
			return store.Object{"lost": isLost(lease), "fence": lease.Fence(), "until": lease.Until()}, nil
		},
		"lease.lost": func(t *testee, ctx context.Context, asked call) (any, error) {
			select {
			case <-named[*store.Lease](t, asked).Lost():
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},

		"next": func(t *testee, ctx context.Context, asked call) (any, error) {
			item, ok, err := named[*iteration](t, asked).next(ctx)
			if err != nil {
				return nil, err
			}
			if !ok {
				return store.Object{"end": true}, nil
			}
			return store.Object{"item": item}, nil
		},
		"stop": func(t *testee, ctx context.Context, asked call) (any, error) {
			t.mu.Lock()
			mirror, isMirror := t.names[asked.text("on")].(*store.Mirror)
			t.mu.Unlock()
			if isMirror {
				mirror.Close()
				return nil, nil
			}
			return null(named[*iteration](t, asked).stop(ctx))
		},

		"topic.publish": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.topic(asked).Publish(ctx, read(asked["value"]), publishOptions(asked)...)
			return store.Object{"position": found.Position, "duplicate": found.Duplicate}, err
		},
		"topic.publish_many": func(t *testee, ctx context.Context, asked call) (any, error) {
			first, last, err := store.PublishMany(ctx, t.topic(asked), read(asked["values"]).([]any), publishOptions(asked)...)
			return store.Object{"first": first, "last": last}, err
		},
		"publisher.publish": func(*testee, context.Context, call) (any, error) {
			return nil, unsupported("this client has no publisher that gathers messages")
		},
		"topic.read": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.topic(asked).Read(ctx, int64(asked.number("after", 0)), int(asked.number("limit", 100)), asked.time("wait"))
			return messagesOf(found), err
		},
		"topic.messages": func(t *testee, _ context.Context, asked call) (any, error) {
			topic := t.topic(asked)
			iterate(t, asked, func(ctx context.Context) seq {
				return topic.Messages(ctx, int64(asked.number("after", 0)), asked.is("follow"))
			}, ofMessage)
			return nil, nil
		},
		"reader.define": func(t *testee, ctx context.Context, asked call) (any, error) {
			return null(t.reader(asked).Define(ctx, place(asked)...))
		},
		"reader.read": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.reader(asked).Read(ctx, int(asked.number("limit", 100)), asked.time("wait"))
			return messagesOf(found), err
		},
		"reader.commit": func(t *testee, ctx context.Context, asked call) (any, error) {
			return null(t.reader(asked).Commit(ctx, int64(asked.number("position", 0))))
		},
		"reader.move": func(t *testee, ctx context.Context, asked call) (any, error) {
			return null(t.reader(asked).Move(ctx, place(asked)[0]))
		},
		"reader.messages": func(t *testee, _ context.Context, asked call) (any, error) {
			reader := t.reader(asked)
			iterate(t, asked, func(ctx context.Context) seq { return reader.Messages(ctx, asked.is("follow")) }, ofMessage)
			return nil, nil
		},
		"reader.drop": func(t *testee, ctx context.Context, asked call) (any, error) { return null(t.reader(asked).Drop(ctx)) },

		"group.take": func(t *testee, ctx context.Context, asked call) (any, error) {
			var opts []store.TakeOption
			if asked.has("member") {
				opts = append(opts, store.Member(asked.text("member")))
			}
			if asked.has("wait") {
				opts = append(opts, store.Wait(asked.time("wait")))
			}
			taken, err := t.group(asked).Take(ctx, int(asked.number("count", 1)), opts...)
			found := make([]any, len(taken))
			for n, one := range taken {
				found[n] = t.keep(one)
			}
			return found, err
		},
		"group.ack": func(t *testee, ctx context.Context, asked call) (any, error) {
			return settledOf(t.group(asked).Ack(ctx, asked.texts("receipts")...))
		},
		"group.nack": func(t *testee, ctx context.Context, asked call) (any, error) {
			return settledOf(t.group(asked).Nack(ctx, asked.texts("receipts"), settleOptions(asked)...))
		},
		"group.extend": func(t *testee, ctx context.Context, asked call) (any, error) {
			return settledOf(t.group(asked).Extend(ctx, asked.texts("receipts"), asked.time("by")))
		},
		"group.give_up": func(t *testee, ctx context.Context, asked call) (any, error) {
			return settledOf(t.group(asked).GiveUp(ctx, asked.texts("receipts"), settleOptions(asked)...))
		},
		"group.messages": func(t *testee, _ context.Context, asked call) (any, error) { return t.messages(asked) },
		"delivery.ack": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.delivery(asked).Ack(ctx))
		},
		"delivery.nack": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.delivery(asked).Nack(ctx, settleOptions(asked)...))
		},
		"delivery.extend": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.delivery(asked).Extend(ctx, asked.time("by")))
		},
		"delivery.give_up": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.delivery(asked).GiveUp(ctx, settleOptions(asked)...))
		},
		"delivery.done": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, ok, err := t.delivery(asked).Done(ctx, asked.text("script"), asked.params())
			if err != nil || !ok {
				return nil, err
			}
			return answerOf(found), nil
		},

		"watch": func(t *testee, _ context.Context, asked call) (any, error) {
			watch := t.database(asked).Watch(asked.text("table"), watchOptions(asked)...)
			found := iterate(t, asked, watch.Commits, func(commit store.Commit) any { return commitOf(commit) })
			found.watch, found.stop = watch, func(context.Context) error { watch.Stop(); return nil }
			return nil, nil
		},
		"watch.position": func(t *testee, _ context.Context, asked call) (any, error) {
			found, ok := named[*iteration](t, asked).watch.Position()
			if !ok {
				return nil, nil
			}
			return positionOf(found), nil
		},
		"mirror.open": func(t *testee, ctx context.Context, asked call) (any, error) { return t.mirror(ctx, asked) },
		"mirror.rows": func(t *testee, _ context.Context, asked call) (any, error) {
			mirror := named[*store.Mirror](t, asked)
			if err := mirror.Err(); err != nil {
				return nil, err
			}
			found := []any{}
			for _, row := range mirror.Snapshot() {
				found = append(found, row)
			}
			return found, nil
		},
		"mirror.seq": func(t *testee, _ context.Context, asked call) (any, error) {
			return named[*store.Mirror](t, asked).Seq(), nil
		},
		"mirror.reached": func(t *testee, ctx context.Context, asked call) (any, error) {
			return null(named[*store.Mirror](t, asked).Reached(ctx, int64(asked.number("seq", 0))))
		},
		"mirror.copies": func(t *testee, _ context.Context, asked call) (any, error) {
			t.mu.Lock()
			defer t.mu.Unlock()
			return append([]any{}, t.copies[asked.text("on")]...), nil
		},

		"seal.unseal": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.seal(asked).Unseal(ctx, asked.text("passphrase")))
		},
		"seal.seal": func(t *testee, ctx context.Context, asked call) (any, error) { return null(t.seal(asked).Seal(ctx)) },
		"seal.change": func(t *testee, ctx context.Context, asked call) (any, error) {
			if asked.is("rekey") {
				return value(t.seal(asked).Rekey(ctx, asked.text("old"), asked.text("new")))
			}
			return value(t.seal(asked).ChangePassphrase(ctx, asked.text("old"), asked.text("new")))
		},
		"vault.write": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.vault(asked).Write(ctx, asked.text("record"), read(asked["value"]), vaultOptions(asked)...)
			return store.Object{"written": found.Written, "version": found.Version}, err
		},
		"vault.reveal": func(t *testee, ctx context.Context, asked call) (any, error) {
			found, err := t.vault(asked).Reveal(ctx, asked.text("record"), vaultOptions(asked)...)
			text := fmt.Sprintf("%v %+v %#v", found, found, found)
			return store.Object{"id": found.ID, "value": found.Value, "version": found.Version, "at": found.At, "text": text}, err
		},
		"vault.list": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.vault(asked).List(ctx, asked.text("prefix"), asked.text("after"), int(asked.number("limit", 1000))))
		},
		"vault.erase": func(t *testee, ctx context.Context, asked call) (any, error) {
			return value(t.vault(asked).Erase(ctx, asked.text("record"), vaultOptions(asked)...))
		},

		"backup.file": func(t *testee, ctx context.Context, asked call) (any, error) { return t.backup(ctx, asked) },
		"load":        func(t *testee, ctx context.Context, asked call) (any, error) { return t.load(ctx, asked) },
	}
}

func ofMessage(m store.Message) any { return messageOf(&m) }

// load does many operations, some at once.
func (t *testee) load(ctx context.Context, asked call) (any, error) {
	cache, topic := t.cache(asked), t.topic(asked)
	operate := map[string]func(n int) error{
		"get": func(n int) error { _, _, err := cache.Get(ctx, fmt.Sprint("k", n%1000)); return err },
		"set": func(n int) error { return cache.Set(ctx, fmt.Sprint("k", n%1000), n) },
		"publish": func(n int) error {
			_, err := topic.Publish(ctx, n)
			return err
		},
	}[asked.text("operation")]
	count, depth := int(asked.number("count", 0)), int(asked.number("depth", 1))
	left := make(chan int, count)
	for n := range count {
		left <- n
	}
	close(left)
	failures := make(chan error, depth)
	var all sync.WaitGroup
	if operate == nil {
		if rows, err := t.rows(ctx, call{"on": asked["on"], "ns": asked["ns"], "db": asked["db"], "select": "SELECT * FROM " + asked.text("table")}); err != nil {
			return nil, err
		} else if len(rows.([]any)) != count {
			return nil, misuse("there are other rows")
		}
		depth = 0
	}
	for range depth {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := range left {
				if err := operate(n); err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	all.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
		return nil, nil
	}
}
