// Load on Redis through go-redis: `load PORT`, see bench/peer_clients/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"
)

const page = 1000

type asked struct {
	Operation    string
	Depth, Count int
}

func main() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var one asked
		check(json.Unmarshal(lines.Bytes(), &one))
		load(client, one)
		fmt.Println("{}")
	}
}

func load(client *redis.Client, one asked) {
	ctx := context.Background()
	if one.Operation == "rows" {
		if found := rows(ctx, client); found != one.Count {
			check(fmt.Errorf("there are %d rows", found))
		}
	} else {
		all(ctx, client, one)
	}
}

func all(ctx context.Context, client *redis.Client, one asked) {
	work := map[string]func(n int) error{
		"get": func(n int) error { return client.Get(ctx, fmt.Sprint("k", n%1000)).Err() },
		"set": func(n int) error { return client.Set(ctx, fmt.Sprint("k", n%1000), n, 0).Err() },
		"publish": func(n int) error {
			return client.XAdd(ctx, &redis.XAddArgs{Stream: "topic", Values: []any{"value", n}}).Err()
		},
	}[one.Operation]
	left := make(chan int, one.Count)
	for n := range one.Count {
		left <- n
	}
	close(left)
	var workers sync.WaitGroup
	for range one.Depth {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for n := range left {
				check(work(n))
			}
		}()
	}
	workers.Wait()
}

func rows(ctx context.Context, client *redis.Client) int {
	count, begin := 0, "-"
	for {
		found, err := client.XRangeN(ctx, "rows", begin, "+", page).Result()
		check(err)
		if len(found) == 0 {
			return count
		}
		count += len(found)
		begin = "(" + found[len(found)-1].ID
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
