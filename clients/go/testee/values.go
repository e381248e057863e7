package main

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	store "storenode/clients/go"
	"storenode/clients/go/search"
)

// unsupported is what the language cannot express.
type unsupported string

func (u unsupported) Error() string { return string(u) }

// bad returns an object that is no value.
func bad(name string) any {
	switch name {
	case "nan":
		return math.NaN()
	case "infinity":
		return math.Inf(1)
	case "int":
		return uint64(1 << 63)
	case "year":
		return time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	case "object":
		return make(chan int)
	case "deep":
		value := []any{}
		for range 2000 {
			value = []any{value}
		}
		return value
	}
	panic(unsupported("a time has its zone"))
}

// read returns the value of a tagged one. It panics at what is none.
func read(given any) any {
	switch known := given.(type) {
	case []any:
		found := make([]any, len(known))
		for n, one := range known {
			found[n] = read(one)
		}
		return found
	case map[string]any:
		if len(known) == 1 {
			for tag, inner := range known {
				if strings.HasPrefix(tag, "$") {
					return readTagged(tag, inner)
				}
			}
		}
		return readObject(known)
	}
	return given
}

func readObject(given map[string]any) store.Object {
	found := store.Object{}
	for name, one := range given {
		found[name] = read(one)
	}
	return found
}

func readTagged(tag string, inner any) any {
	text, _ := inner.(string)
	switch tag {
	case "$int":
		return must(strconv.ParseInt(text, 10, 64))
	case "$float":
		return must(strconv.ParseFloat(text, 64))
	case "$none":
		return store.None
	case "$dt":
		return must(time.Parse(time.RFC3339Nano, text)).UTC()
	case "$dec":
		return must(store.ParseDecimal(text))
	case "$rec":
		pair := inner.([]any)
		return store.NewRecordID(pair[0].(string), read(pair[1]))
	case "$dur":
		return store.Duration(must(strconv.ParseInt(text, 10, 64)))
	case "$bytes":
		return must(base64.StdEncoding.DecodeString(text))
	case "$uuid":
		return must(store.ParseUUID(text))
	case "$obj":
		return readObject(inner.(map[string]any))
	case "$bad":
		return bad(text)
	case "$search":
		return query(inner.([]any))
	case "$vector":
		vector := []float32{}
		for _, one := range inner.([]any) {
			vector = append(vector, float32(must(strconv.ParseFloat(one.(string), 32))))
		}
		return vector
	}
	panic(fmt.Sprintf("no value: %v", tag))
}

// query returns the query that a function of the client makes.
func query(made []any) search.Query {
	given := read(made[1:]).([]any)
	switch made[0] {
	case "any":
		return search.Any(given...)
	case "all":
		return search.All(given...)
	case "not":
		return search.Not(given[0])
	case "phrase":
		return search.Phrase(given[0].(string), int(given[1].(int64)))
	case "prefix":
		return search.Prefix(given[0].(string))
	case "fuzzy":
		return search.Fuzzy(given[0].(string), int(given[1].(int64)))
	case "boost":
		return search.Boost(given[0], given[1].(float64))
	}
	panic(fmt.Sprintf("no query: %v", made[0]))
}

// write returns the tagged form of a value.
func write(value any) any {
	switch known := value.(type) {
	case nil, bool, string:
		return value
	case int:
		return map[string]any{"$int": strconv.Itoa(known)}
	case int64:
		return map[string]any{"$int": strconv.FormatInt(known, 10)}
	case float64:
		return map[string]any{"$float": strconv.FormatFloat(known, 'g', -1, 64)}
	case store.NoneType:
		return map[string]any{"$none": true}
	case time.Time:
		return map[string]any{"$dt": known.UTC().Format("2006-01-02T15:04:05.000000Z")}
	case store.Decimal:
		return map[string]any{"$dec": known.String()}
	case store.RecordID:
		return map[string]any{"$rec": []any{known.Table, write(known.ID)}}
	case store.Duration:
		return map[string]any{"$dur": strconv.FormatInt(int64(known), 10)}
	case time.Duration:
		return write(store.DurationOf(known))
	case []byte:
		return map[string]any{"$bytes": base64.StdEncoding.EncodeToString(known)}
	case store.UUID:
		return map[string]any{"$uuid": known.String()}
	case map[string]string:
		found := store.Object{}
		for name, one := range known {
			found[name] = one
		}
		return write(found)
	case []string:
		found := make([]any, len(known))
		for n, one := range known {
			found[n] = one
		}
		return found
	case []any:
		found := make([]any, len(known))
		for n, one := range known {
			found[n] = write(one)
		}
		return found
	case store.Object:
		found, name := make(map[string]any, len(known)), ""
		for key, one := range known {
			name, found[key] = key, write(one)
		}
		if len(found) == 1 && strings.HasPrefix(name, "$") {
			return map[string]any{"$obj": found}
		}
		return found
	}
	panic(fmt.Sprintf("no value: %T", value))
}

func must[T any](found T, err error) T {
	if err != nil {
		panic(err)
	}
	return found
}

// orNull returns null for what Go has no null for: an empty text, zero.
func orNull[T comparable](value T) any {
	var zero T
	if value == zero {
		return nil
	}
	return value
}
