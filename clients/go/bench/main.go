// Command bench loads a node through the client, for the rows client-… of python -m bench.
//
// It says ready once it is connected, begins when a line comes, and prints its figures as JSON. The node
// is named by STORENODE_ADDRESS, STORENODE_USER and STORENODE_PASSWORD; what it works on is made by
// bench/clients.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	store "storenode/clients/go"
)

type figures struct {
	Seconds float64   `json:"seconds"`
	CPU     float64   `json:"cpu"`  // processor time of this process, in seconds
	Took    []float64 `json:"took"` // seconds of each operation
}

func main() {
	name := flag.String("op", "get", "get, set, create, select, publish, take or rows")
	depth := flag.Int("depth", 1, "operations in flight")
	count := flag.Int("count", 1000, "operations")
	place := flag.String("db", "bench", "name of the namespace and of the database")
	flag.Parse()
	client, err := store.Open(os.Getenv("STORENODE_ADDRESS"),
		store.WithUser(os.Getenv("STORENODE_USER"), os.Getenv("STORENODE_PASSWORD")))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	if _, err := client.Connect(ctx); err != nil {
		log.Fatal(err)
	}
	op := operations(client.Database(*place, *place))[*name]
	if op == nil {
		log.Fatalf("no operation %q", *name)
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measure(ctx, op, *depth, *count)); err != nil {
		log.Fatal(err)
	}
}

var message = strings.Repeat("x", 128)

type operation func(ctx context.Context, n int) error

// operations are those of bench/clients.py, which does the same with the Python client.
func operations(db *store.Database) map[string]operation {
	keys, topic := db.Cache("keys"), db.Topic("work")
	group := topic.Group("workers")
	return map[string]operation{
		"get": func(ctx context.Context, n int) error {
			_, ok, err := keys.Get(ctx, fmt.Sprint("key:", n%1000))
			if err == nil && !ok {
				err = store.NoKey
			}
			return err
		},
		"set": func(ctx context.Context, n int) error {
			return keys.Set(ctx, fmt.Sprint("key:", n%1000), "sixteen bytes ok")
		},
		"create": func(ctx context.Context, n int) error {
			_, err := db.Run(ctx, "CREATE made SET n = $n, name = $name", store.Params{"n": n, "name": "a lamp"})
			return err
		},
		"select": func(ctx context.Context, n int) error {
			found, err := store.Query[[]any](ctx, db, "SELECT * FROM $id",
				store.Params{"id": store.NewRecordID("person", 1+n*7919%1000)})
			if err == nil && len(found) != 1 {
				err = store.Unknown
			}
			return err
		},
		"publish": func(ctx context.Context, n int) error {
			_, err := topic.Publish(ctx, message)
			return err
		},
		"take": func(ctx context.Context, n int) error {
			taken, err := group.Take(ctx, 1, store.Wait(time.Minute))
			if err != nil {
				return err
			}
			if ok, err := taken[0].Ack(ctx); err != nil || !ok {
				return fmt.Errorf("not acknowledged: %w", err)
			}
			return nil
		},
		"rows": func(ctx context.Context, n int) error {
			found, err := store.Query[[]any](ctx, db, "SELECT * FROM person LIMIT 1000", nil)
			if err == nil && len(found) != 1000 {
				err = store.Unknown
			}
			return err
		},
	}
}

func measure(ctx context.Context, op operation, depth, count int) figures {
	took := make([]float64, count)
	var next atomic.Int64
	var all sync.WaitGroup
	cpu, began := cpuTime(), time.Now()
	for range depth {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := int(next.Add(1)) - 1; n < count; n = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := op(ctx, n); err != nil {
					log.Fatal(err)
				}
				took[n] = time.Since(start).Seconds()
			}
		}()
	}
	all.Wait()
	return figures{time.Since(began).Seconds(), (cpuTime() - cpu).Seconds(), took}
}

func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
