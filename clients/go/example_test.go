package storeclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	store "storenode/clients/go"
)

// What the examples of this file run on: they are compiled, and need a node to be run.
var (
	ctx    context.Context
	client *store.Client
	db     *store.Database
)

type Item struct {
	ID    store.RecordID
	Name  string
	Price *store.Decimal `store:"price,omitempty"`
}

func ExampleOpen() {
	client, err := store.Open("db1:8001,db2:8001,db3:8001", // nodes of one store
		store.WithUser("shop", "..."),
		store.WithTLS(nil),
		store.WithTimeout(5*time.Second),
		store.WithLogger(slog.Default()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleQuery() {
	items, err := store.Query[[]Item](ctx, db, "SELECT * FROM item WHERE price < $most", store.Params{"most": 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range items {
		fmt.Println(item.ID, item.Name)
	}
}

func ExampleRows() {
	for item, err := range store.Rows[Item](ctx, db, "SELECT * FROM item", nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(item.Name)
	}
}

// A code is asked for with errors.Is; all else that a refusal says by errors.As.
func ExampleError() {
	_, err := db.Run(ctx, "CREATE item:1 SET name = 'lamp'", nil)
	var refusal *store.Error
	switch {
	case errors.Is(err, store.AlreadyExists):
		fmt.Println("somebody was first")
	case errors.Is(err, store.ErrOutcomeUnknown):
		fmt.Println("it may have been done: read before it is done again")
	case errors.As(err, &refusal):
		fmt.Println(refusal.Code, refusal.Detail, refusal.Line, refusal.Column)
	}
}

func ExampleTransaction() {
	var tx store.Transaction
	for _, name := range []string{"chair", "desk"} {
		tx.Add("CREATE item CONTENT $item", store.Params{"item": Item{Name: name}})
	}
	if _, err := tx.Run(ctx, db); err != nil {
		log.Fatal(err)
	}
}

func ExampleGetOrSet() {
	page, err := store.GetOrSet(ctx, db.Cache("pages"), "home", time.Minute, func(ctx context.Context) (string, error) {
		return "a page that takes its time", nil
	})
	fmt.Println(page, err)
}

func ExampleCache_Lock() {
	lease, held, err := db.Cache("locks").Lock(ctx, "nightly", 30*time.Second, store.Renew())
	if err != nil || !held {
		return
	}
	defer lease.Release(context.WithoutCancel(ctx))
	select {
	case <-lease.Lost():
		fmt.Println("another may hold it by now")
	case <-time.After(time.Minute): // the work
	}
}

// Several goroutines work on the messages of one consumer; their acknowledgements travel together.
func ExampleGroup_Messages() {
	messages := db.Topic("jobs").Group("workers").Messages(store.Prefetch(100), store.Extending())
	defer messages.Stop(context.WithoutCancel(ctx))
	for message, err := range messages.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			if _, err := message.Ack(ctx); err != nil {
				log.Print(err)
			}
		}()
	}
}

// The effect of a message and its acknowledgement in one transaction: it is had exactly once.
func ExampleDelivery_Done() {
	taken, err := db.Topic("jobs").Group("workers").Take(ctx, 1, store.Wait(time.Minute))
	if err != nil || len(taken) == 0 {
		return
	}
	_, done, err := taken[0].Done(ctx, "CREATE paid SET job = $job", store.Params{"job": taken[0].Value})
	fmt.Println(done, err)
}

// Where a reader has come to is kept with what it makes of the changes; it goes on from there.
func ExampleDatabase_Watch() {
	var kept store.Position
	watch := db.Watch("item", store.From(kept), store.Where("price > 10"))
	for commit, err := range watch.Commits(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for _, change := range commit.Changes {
			fmt.Println(change.Action, change.ID)
		}
		kept = commit.Position
	}
}

func ExampleClient_BackupFile() {
	taken, err := client.BackupFile(ctx, "/backups/monday.storesnap")
	fmt.Println(taken.Bytes, taken.Records, err)
}
