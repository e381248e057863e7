package storeclient

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// What the client costs before a real node: go test -run '^$' -bench . with the variables of README.md.

// concurrently does b.N of something, by so many goroutines on each of these databases.
func concurrently(b *testing.B, on []*Database, each int, do func(db *Database, n int64) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for _, db := range on {
		for range each {
			all.Add(1)
			go func() {
				defer all.Done()
				for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
					if err := do(db, n); err != nil {
						b.Error(err)
						return
					}
				}
			}()
		}
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// connections are those of so many clients.
func connections(b *testing.B, count int) ([]*Database, context.Context) {
	b.Helper()
	var found []*Database
	var ctx context.Context
	for range count {
		var db *Database
		_, db, ctx = realNode(b)
		found = append(found, db)
	}
	must(b, found[0], ctx, "DEFINE SPACE IF NOT EXISTS keys; DEFINE TABLE IF NOT EXISTS item; DEFINE TOPIC IF NOT EXISTS jobs; "+
		"DEFINE GROUP IF NOT EXISTS workers ON jobs", nil)
	return found, ctx
}

func BenchmarkKeys(b *testing.B) {
	for _, shape := range []struct{ connections, each int }{{1, 1}, {1, 64}, {50, 16}} {
		dbs, ctx := connections(b, shape.connections)
		name := func(n int64) string { return fmt.Sprint("key:", n%1000) }
		b.Run(fmt.Sprintf("Set/%dx%d", shape.connections, shape.each), func(b *testing.B) {
			concurrently(b, dbs, shape.each, func(db *Database, n int64) error {
				return db.Cache("keys").Set(ctx, name(n), "sixteen bytes ok")
			})
		})
		b.Run(fmt.Sprintf("Get/%dx%d", shape.connections, shape.each), func(b *testing.B) {
			concurrently(b, dbs, shape.each, func(db *Database, n int64) error {
				_, _, err := db.Cache("keys").Get(ctx, name(n))
				return err
			})
		})
	}
}

func BenchmarkCreate(b *testing.B) {
	dbs, ctx := connections(b, 1)
	concurrently(b, dbs, 64, func(db *Database, n int64) error {
		_, err := db.Run(ctx, "CREATE item SET n = $n, name = $name", Params{"n": n, "name": "a lamp"})
		return err
	})
}

func BenchmarkTopic(b *testing.B) {
	dbs, ctx := connections(b, 1)
	published := 0
	b.Run("Publish/64", func(b *testing.B) {
		published += b.N
		concurrently(b, dbs, 64, func(db *Database, n int64) error {
			_, err := db.Topic("jobs").Publish(ctx, n)
			return err
		})
	})
	b.Run("TakeAndAck", func(b *testing.B) {
		for left := b.N - published; left > 0; left -= 1000 {
			if _, _, err := dbs[0].Topic("jobs").PublishMany(ctx, make([]any, min(left, 1000))); err != nil {
				b.Fatal(err)
			}
			published += min(left, 1000)
		}
		published -= b.N
		messages := dbs[0].Topic("jobs").Group("workers").Messages(Prefetch(1000))
		concurrently(b, dbs, 64, func(_ *Database, _ int64) error {
			message, err := messages.Next(ctx)
			if err != nil {
				return err
			}
			_, err = message.Ack(ctx)
			return err
		})
		if err := messages.Stop(ctx); err != nil {
			b.Fatal(err)
		}
	})
}
