package storeclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	store "storenode/clients/go"
)

// The examples share one database of a node, which the tests start.
var (
	ctx    = context.Background()
	client *store.Client
	db     *store.Database
)

func init() {
	store.BeforeExamples = func() (after func()) {
		var err error
		client, err = store.Open(os.Getenv("STORENODE_ADDRESS"),
			store.WithUser(os.Getenv("STORENODE_USER"), os.Getenv("STORENODE_PASSWORD")))
		if err != nil {
			log.Fatal(err)
		}
		if _, err := client.Run(ctx, `
			DEFINE NAMESPACE IF NOT EXISTS examples; DROP NAMESPACE examples;
			DEFINE NAMESPACE examples; DEFINE DATABASE examples.main; USE examples.main;
			DEFINE TABLE item; DEFINE TABLE paid; DEFINE SPACE pages; DEFINE SPACE locks;
			DEFINE TOPIC jobs; DEFINE GROUP workers ON jobs DEADLINE 30s;
			DEFINE TOPIC orders; DEFINE GROUP payers ON orders DEADLINE 30s`, nil); err != nil {
			log.Fatal(err)
		}
		db = client.Database("examples", "main")
		return func() { client.Close() }
	}
}

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
	price := store.MustDecimal("12.30")
	lamp := Item{ID: store.NewRecordID("item", "lamp"), Name: "lamp", Price: &price}
	if _, err := db.Run(ctx, "CREATE item CONTENT $lamp", store.Params{"lamp": lamp}); err != nil {
		log.Fatal(err)
	}
	items, err := store.Query[[]Item](ctx, db, "SELECT * FROM item WHERE price < $most", store.Params{"most": 20})
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range items {
		fmt.Println(item.ID, item.Name, item.Price)
	}
	// Output: item:lamp lamp 12.30
}

func ExampleTransaction() {
	var tx store.Transaction
	for id, name := range []string{"chair", "desk"} {
		tx.Add("CREATE item CONTENT $item", store.Params{"item": Item{ID: store.NewRecordID("item", id), Name: name}})
	}
	answer, err := tx.Run(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(answer.Results), "committed")
	// Output: 2 committed
}

func ExampleRows() {
	if _, err := db.Run(ctx, "UPSERT item:7 SET name = 'shelf'; UPSERT item:8 SET name = 'stool'", nil); err != nil {
		log.Fatal(err)
	}
	for item, err := range store.Rows[Item](ctx, db, "SELECT * FROM item WHERE name >= 'shelf'", nil, store.Page(1)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(item.ID, item.Name)
	}
	// Output:
	// item:7 shelf
	// item:8 stool
}

// errors.Is matches a refusal by its code, and errors.As gives its fields.
func ExampleError() {
	_, err := db.Run(ctx, "CREATE item:one SET name = 'a'; CREATE item:one SET name = 'b'", nil)
	var refusal *store.Error
	switch {
	case errors.Is(err, store.ErrOutcomeUnknown):
		fmt.Println("it may have been done: read before repeating it")
	case errors.Is(err, store.AlreadyExists) && errors.As(err, &refusal):
		fmt.Println(refusal.Code, "in statement", refusal.Statement, "of line", refusal.Line)
	}
	// Output: AlreadyExists in statement 2 of line 1
}

func ExampleDatabase_Moment() {
	moment, err := db.Moment(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	defer moment.Close(ctx)
	if _, err := db.Run(ctx, "CREATE item:later SET name = 'later'", nil); err != nil {
		log.Fatal(err)
	}
	items, err := store.Query[[]Item](ctx, moment, "SELECT * FROM item:later", nil)
	fmt.Println(items, err)
	// Output: [] <nil>
}

func ExampleCache_Set() {
	pages := db.Cache("pages")
	if err := pages.Set(ctx, "user:1", store.Object{"cart": []int{1, 2}}, store.TTL(30*time.Minute)); err != nil {
		log.Fatal(err)
	}
	user, ok, err := store.Get[struct{ Cart []int }](ctx, pages, "user:1")
	fmt.Println(user.Cart, ok, err)
	visits, err := pages.Incr(ctx, "visits", 1)
	fmt.Println(visits, err)
	// Output:
	// [1 2] true <nil>
	// 1 <nil>
}

func ExampleGetOrSet() {
	page, err := store.GetOrSet(ctx, db.Cache("pages"), "home", time.Minute, func(ctx context.Context) (string, error) {
		return "a page that is slow to render", nil
	})
	fmt.Println(page, err)
	// Output: a page that is slow to render <nil>
}

func ExampleCache_Lock() {
	lease, held, err := db.Cache("locks").Lock(ctx, "nightly", 30*time.Second, store.Renew())
	if err != nil || !held {
		return
	}
	work := make(chan string, 1)
	go func() { work <- "done" }()
	select {
	case <-lease.Lost():
		fmt.Println("another holder may have it")
	case result := <-work:
		fmt.Println(result)
	}
	fmt.Println(lease.Release(context.WithoutCancel(ctx)))
	// Output:
	// done
	// true <nil>
}

func ExampleTopic_Publish() {
	published, err := db.Topic("orders").Publish(ctx, store.Object{"order": 81}, store.Key("ana"))
	fmt.Println(published.Position, err)
	// Output: 1 <nil>
}

// The effect of a message and its acknowledgement commit together.
func ExampleDelivery_Done() {
	taken, err := db.Topic("orders").Group("payers").Take(ctx, 1, store.Wait(time.Minute))
	if err != nil || len(taken) == 0 {
		return
	}
	_, done, err := taken[0].Done(ctx, "CREATE paid SET job = $job", store.Params{"job": taken[0].Value})
	fmt.Println(done, err)
	// Output: true <nil>
}

// Acknowledgements of concurrent goroutines travel together.
func ExampleGroup_Messages() {
	jobs := db.Topic("jobs")
	if _, _, err := store.PublishMany(ctx, jobs, []int{81, 82, 83}); err != nil {
		log.Fatal(err)
	}
	messages := jobs.Group("workers").Messages(store.Prefetch(100), store.Extending())
	acks := make(chan error)
	for message, err := range messages.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			_, err := message.Ack(ctx)
			acks <- err
		}()
		if message.Position == 3 {
			break
		}
	}
	fmt.Println(<-acks, <-acks, <-acks, messages.Stop(ctx))
	// Output: <nil> <nil> <nil> <nil>
}

// A reader that stores the position of a commit with its effect resumes there.
func ExampleDatabase_Watch() {
	answer, err := db.Run(ctx, "UPSERT item:20 SET price = 5", nil)
	if err != nil {
		log.Fatal(err)
	}
	position := answer.Position()
	if _, err := db.Run(ctx, "UPDATE item:20 SET price = 15", nil); err != nil {
		log.Fatal(err)
	}
	watch := db.Watch("item", store.From(position), store.Where("price > 10"))
	for commit, err := range watch.Commits(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for _, change := range commit.Changes {
			fmt.Println(change.Action, change.ID, change.Value["price"])
		}
		position = commit.Position
		watch.Stop()
	}
	// Output: create item:20 15
}

func ExampleDatabase_Mirror() {
	mirror, err := db.Mirror(ctx, "item", store.Where("price > 100"))
	if err != nil {
		log.Fatal(err)
	}
	defer mirror.Close()
	answer, err := db.Run(ctx, "UPSERT item:30 SET price = 350", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := mirror.Reached(ctx, answer.Seq); err != nil {
		log.Fatal(err)
	}
	row, ok := mirror.Get(store.NewRecordID("item", 30))
	fmt.Println(row["price"], ok)
	// Output: 350 true
}

func ExampleClient_BackupFile() {
	taken, err := client.BackupFile(ctx, "/backups/monday.storesnap")
	fmt.Println(taken.Bytes, taken.Records, err)
}
