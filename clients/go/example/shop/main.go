// Shop is a small shop: a queue of orders with a pool of workers, a cached page, and a live list.
//
//	go run ./example/shop 127.0.0.1:8001 root PASSWORD [ORDERS]
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	store "storenode/clients/go"
)

type item struct {
	ID    store.RecordID
	Name  string
	Stock int
}

type order struct {
	Item  store.RecordID
	Count int
}

const workers = 4

func define(ctx context.Context, client *store.Client) (*store.Database, error) {
	_, err := client.Run(ctx, `
		DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.example; USE shop.example;
		DEFINE TABLE IF NOT EXISTS item; DEFINE TABLE IF NOT EXISTS sold; DEFINE SPACE IF NOT EXISTS pages;
		DEFINE TOPIC IF NOT EXISTS orders; DEFINE GROUP IF NOT EXISTS packers ON orders DEADLINE 10s;
		UPSERT item:1 SET name = 'lamp', stock = 1000; UPSERT item:2 SET name = 'desk', stock = 1000; DELETE sold`, nil)
	return client.Database("shop", "example"), err
}

// pack packs an order: the stock, the sale and the acknowledgement change in one transaction.
func pack(ctx context.Context, message *store.Delivery) (bool, error) {
	var found order
	if err := message.Decode(&found); err != nil {
		return false, err
	}
	_, ok, err := message.Done(ctx, "UPDATE $item SET stock = stock - $count; CREATE sold SET item = $item, count = $count",
		store.Params{"item": found.Item, "count": found.Count})
	if errors.Is(err, store.Conflict) { // another worker sells the same item
		_, err = message.Nack(ctx, store.RetryAfter(50*time.Millisecond))
		return false, err
	}
	return ok, err
}

// work has a pool of workers pack orders, and returns how many once there are that many.
func work(ctx context.Context, db *store.Database, orders int) (int64, error) {
	messages := db.Topic("orders").Group("packers").Messages(store.Prefetch(2*workers), store.Extending())
	var packed atomic.Int64
	worker := func() error {
		defer messages.Stop(ctx) // and with this worker the others
		for message, err := range messages.All(ctx) {
			if err != nil {
				return err
			}
			ok, err := pack(ctx, message)
			if err != nil {
				return err
			}
			if ok && packed.Add(1) == int64(orders) {
				return nil
			}
		}
		return nil
	}
	failures := make([]error, workers)
	var pool sync.WaitGroup
	for n := range workers {
		pool.Add(1)
		go func() {
			defer pool.Done()
			failures[n] = worker()
		}()
	}
	pool.Wait()
	return packed.Load(), errors.Join(failures...)
}

// page returns the page of an item, made once a minute.
func page(ctx context.Context, db *store.Database, id store.RecordID) (string, error) {
	return store.GetOrSet(ctx, db.Cache("pages"), "item/"+id.String(), time.Minute, func(ctx context.Context) (string, error) {
		found, err := store.Query[item](ctx, db, "SELECT * FROM ONLY $id", store.Params{"id": id})
		return fmt.Sprintf("<h1>%s</h1><p>%d left</p>", found.Name, found.Stock), err
	})
}

// list prints the list of items whenever it changes, until ctx ends.
func list(ctx context.Context, mirror *store.Mirror) error {
	for {
		seq := mirror.Seq()
		var lines []string
		for _, row := range mirror.Snapshot() {
			lines = append(lines, fmt.Sprintf("%v: %v", row["name"], row["stock"]))
		}
		slices.Sort(lines) // a snapshot has no order
		fmt.Println(strings.Join(lines, ", "))
		if err := mirror.Changed(ctx, seq); err != nil {
			return err
		}
	}
}

func must[T any](found T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func main() {
	words := append(os.Args[1:], []string{"127.0.0.1:8001", "root", "", "20"}[min(len(os.Args)-1, 4):]...)
	ctx := context.Background()
	client := must(store.Open(words[0], store.WithUser(words[1], words[2])))
	defer client.Close()
	db := must(define(ctx, client))
	items := must(store.Query[[]item](ctx, db, "SELECT * FROM item ORDER BY id", nil))
	mirror := must(db.Mirror(ctx, "item"))
	listed := make(chan error, 1)
	go func() { listed <- list(ctx, mirror) }()
	sold := make([]order, must(strconv.Atoi(words[3])))
	for n := range sold {
		sold[n] = order{items[n%len(items)].ID, 1}
	}
	if _, _, err := store.PublishMany(ctx, db.Topic("orders"), sold); err != nil {
		log.Fatal(err)
	}
	must(work(ctx, db, len(sold)))
	for _, one := range items {
		fmt.Println(must(page(ctx, db, one.ID)))
	}
	mirror.Close()
	if err := <-listed; !errors.Is(err, store.ErrClosed) {
		log.Fatal(err)
	}
	fmt.Println(must(store.Query[int](ctx, db, "SELECT VALUE count() FROM ONLY sold GROUP ALL", nil)), "sold")
}
