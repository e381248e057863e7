package storeclient

import (
	"context"
	"errors"
	"iter"
	"time"
)

const (
	// readPage are the messages that a reader which follows asks for at once; the most a node gives.
	readPage = 1000
	// longestWait is how long one read of it waits before it asks again.
	longestWait = time.Minute
)

// Topic is a handle on a topic.
type Topic struct {
	db     *Database
	name   string
	quoted string
	err    error
}

// Topic returns a handle on a topic. It sends nothing.
func (d *Database) Topic(name string) *Topic {
	quoted, err := QuoteName(name)
	return &Topic{d, name, quoted, errors.Join(d.err, err)}
}

func (t *Topic) ask(ctx context.Context, op string, wait time.Duration, stop <-chan struct{}, fields ...field) (Object, error) {
	if t.err != nil {
		return nil, t.err
	}
	body := append([]field{{"op", op}, {"ns", t.db.ns}, {"db", t.db.db}, {"topic", t.name}}, fields...)
	asked := request{kind: kindTopic, waits: wait > 0, stop: stop}
	if timeout := t.db.client.options.timeout; timeout != 0 {
		body = append(body, field{"timeout", timeout + wait})
		asked.timeout = timeout + wait + t.db.client.options.pulse.Grace
	}
	asked.body = body
	return t.db.client.change(ctx, asked)
}

func (t *Topic) run(ctx context.Context, script string, params Params, wait time.Duration, repeatable bool) (*Answer, error) {
	if t.err != nil {
		return nil, t.err
	}
	o := runOptions{repeatable: repeatable, waits: wait > 0}
	if timeout := t.db.client.options.timeout; timeout != 0 {
		o.timeout = timeout + wait
	}
	return t.db.run(ctx, script, params, o)
}

// Message is a message of a topic.
type Message struct {
	Position int64
	At       time.Time // time of its commit
	Key      string    // "" if it has none
	ID       string    // "" if it has none
	Headers  map[string]string
	Value    any
	Bytes    int64     // size in the store
	Due      time.Time // earliest delivery to groups; zero if at once
}

// Decode stores the message's value in the value that into points to; see [Decode].
func (m *Message) Decode(into any) error { return Decode(m.Value, into) }

// read reads a message as the node tells it.
func (m *Message) read(found any) (Object, error) {
	body, _ := found.(Object)
	var errs [8]error
	m.Position, errs[0] = needed[int64](body, "position")
	m.At, errs[1] = needed[time.Time](body, "at")
	m.Key, errs[2] = optional[string](body, "key")
	m.ID, errs[3] = optional[string](body, "id")
	m.Headers, errs[4] = as[map[string]string](body["headers"])
	m.Value = body["value"]
	m.Bytes, errs[5] = needed[int64](body, "bytes")
	m.Due, errs[6] = optional[time.Time](body, "due")
	return body, errors.Join(errs[:]...)
}

// PublishOption configures a published message.
type PublishOption func(*publishOptions)

type publishOptions struct{ fields []field }

func publishing(name string, value any) PublishOption {
	return func(o *publishOptions) { o.fields = append(o.fields, field{name, value}) }
}

// Key sets the key of a message. Groups ordered by key deliver messages of one key in order.
func Key(key string) PublishOption { return publishing("key", key) }

// ID sets the id of a message. A second message with that id within the topic's DEDUP window is not
// appended, so a publish whose outcome is unknown can be repeated.
func ID(id string) PublishOption { return publishing("id", id) }

// Headers sets the headers of a message.
func Headers(headers map[string]string) PublishOption { return publishing("headers", headers) }

// Delay delays the delivery of a message to groups.
func Delay(delay time.Duration) PublishOption { return publishing("delay", delay) }

// At sets the time from which a message is delivered to groups.
func At(at time.Time) PublishOption { return publishing("at", at) }

// Expect refuses the message with [AssertFailed] unless position is the topic's last one.
func Expect(position int64) PublishOption { return publishing("expect", position) }

// Published is the result of [Topic.Publish]. Duplicate is true if a message with the same id was
// already there, at Position.
type Published struct {
	Position  int64
	Duplicate bool
}

// Publish appends a message. It is durable when Publish returns.
func (t *Topic) Publish(ctx context.Context, value any, opts ...PublishOption) (Published, error) {
	fields := append([]field{{"value", value}}, gather(opts).fields...)
	found, err := t.ask(ctx, "publish", 0, nil, fields...)
	if err != nil {
		return Published{}, err
	}
	position, err := needed[int64](found, "position")
	duplicate, _ := found["duplicate"].(bool)
	return Published{position, duplicate}, err
}

// PublishMany appends messages in one commit, all or none, and returns the first and the last position.
// The messages have no ids.
func PublishMany[T any](ctx context.Context, to *Topic, values []T, opts ...PublishOption) (first, last int64, err error) {
	given := make([]any, len(values))
	for n, value := range values {
		given[n] = value
	}
	fields := append([]field{{"values", given}}, gather(opts).fields...)
	found, err := to.ask(ctx, "publish", 0, nil, fields...)
	if err != nil {
		return 0, 0, err
	}
	if first, err = needed[int64](found, "first"); err != nil {
		return 0, 0, err
	}
	last, err = needed[int64](found, "last")
	return first, last, err
}

// Read returns up to limit messages after a position, oldest first, and moves no reader. limit is 1 to
// 1000; the node also ends a page at 8 MiB. If there is no message, Read waits up to wait for the first,
// at most five minutes.
func (t *Topic) Read(ctx context.Context, after int64, limit int, wait time.Duration) ([]Message, error) {
	return t.readPage(ctx, "READ FROM "+t.quoted+" AFTER $after LIMIT $limit", Params{"after": after, "limit": limit}, wait)
}

func (t *Topic) readPage(ctx context.Context, text string, params Params, wait time.Duration) ([]Message, error) {
	if wait > 0 {
		text += " WAIT $wait"
		params["wait"] = wait
	}
	answer, err := t.run(ctx, text, params, wait, true)
	if err != nil {
		return nil, err
	}
	found, _ := answer.Value().([]any)
	messages := make([]Message, len(found))
	for n, one := range found {
		if _, err := messages[n].read(one); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// Messages iterates over the messages after a position: to the end of the topic, or forever if follow is
// true, surviving outages once the node has answered. An error ends the iteration.
func (t *Topic) Messages(ctx context.Context, after int64, follow bool) iter.Seq2[Message, error] {
	read := func(wait time.Duration) ([]Message, error) { return t.Read(ctx, after, readPage, wait) }
	return each(ctx, follow, read, func(done int64) error {
		after = done
		return nil
	})
}

// each iterates over pages, and tells of each position that is done: of a whole page, or where the
// loop is left.
func each(ctx context.Context, follow bool, read func(time.Duration) ([]Message, error), moved func(int64) error) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		pause, hasRead := retryBackoff(), false
		var wait time.Duration
		if follow {
			wait = longestWait
		}
		passes := func(err error) bool {
			refusal := refusalOf(err)
			patient := hasRead || (refusal != nil && refusal.Retry)
			return follow && patient && isOutage(err) && ctx.Err() == nil && pause.wait(ctx, nil) == nil
		}
		for {
			page, err := read(wait)
			if err != nil {
				if passes(err) {
					continue
				}
				yield(Message{}, err)
				return
			}
			pause.reset()
			hasRead = true
			var done int64
			for _, one := range page {
				if !yield(one, nil) {
					if done > 0 {
						_ = moved(done) // who has left is not told: what is read again is what was read
					}
					return
				}
				done = one.Position
			}
			if len(page) == 0 {
				if !follow {
					return
				}
				continue
			}
			for err = moved(done); err != nil; err = moved(done) { // it does no harm twice
				if !passes(err) {
					yield(Message{}, err)
					return
				}
			}
		}
	}
}

// Info returns the answer of INFO FOR TOPIC: figures of the topic, its readers and groups.
func (t *Topic) Info(ctx context.Context) (Object, error) {
	answer, err := t.run(ctx, "INFO FOR TOPIC "+t.quoted, nil, 0, true)
	if err != nil {
		return nil, err
	}
	return as[Object](answer.Value())
}

// Reader is a named position in a topic, which the node keeps.
type Reader struct {
	topic  *Topic
	quoted string
	on     string
	err    error
}

// Reader returns a handle on a reader of the topic. It sends nothing.
func (t *Topic) Reader(name string) *Reader {
	quoted, err := QuoteName(name)
	return &Reader{t, quoted, quoted + " ON " + t.quoted, errors.Join(t.err, err)}
}

// Place is a position for a [Reader] to start from.
type Place struct {
	clause string
	at     any
}

// Behind is the place behind a position, which counts as read.
func Behind(position int64) Place { return Place{"$at", position} }

// Since is the place before the first message of a time.
func Since(at time.Time) Place { return Place{"TIME $at", at} }

// TheEnd is the place behind the last message.
func TheEnd() Place { return Place{"END", nil} }

func (r *Reader) do(ctx context.Context, text string, place Place) error {
	if r.err != nil {
		return r.err
	}
	var params Params
	if place.at != nil {
		params = Params{"at": place.at}
	}
	_, err := r.topic.run(ctx, text+place.clause, params, 0, false)
	return err
}

// Define declares the reader if it does not exist: at the start of the topic, or at a place.
func (r *Reader) Define(ctx context.Context, at ...Place) error {
	if len(at) == 0 {
		return r.do(ctx, "DEFINE READER IF NOT EXISTS "+r.on, Place{})
	}
	return r.do(ctx, "DEFINE READER IF NOT EXISTS "+r.on+" AT ", at[0])
}

// Read returns up to limit messages after the reader's position, without moving it. wait is as of
// [Topic.Read].
func (r *Reader) Read(ctx context.Context, limit int, wait time.Duration) ([]Message, error) {
	if r.err != nil {
		return nil, r.err
	}
	text := "READ FROM " + r.topic.quoted + " AS " + r.quoted + " LIMIT $limit"
	return r.topic.readPage(ctx, text, Params{"limit": limit}, wait)
}

// Commit moves the reader behind a position.
func (r *Reader) Commit(ctx context.Context, position int64) error {
	return r.do(ctx, "COMMIT READER "+r.on+" AT ", Behind(position))
}

// Move moves the reader to a place.
func (r *Reader) Move(ctx context.Context, to Place) error {
	return r.do(ctx, "ALTER READER "+r.on+" SET POSITION ", to)
}

// Messages iterates over the messages after the reader's position. It commits the position after each
// page and when the loop ends, so an interrupted reader gets messages of its last page again. follow is
// as of [Topic.Messages].
func (r *Reader) Messages(ctx context.Context, follow bool) iter.Seq2[Message, error] {
	read := func(wait time.Duration) ([]Message, error) { return r.Read(ctx, readPage, wait) }
	return each(ctx, follow, read, func(done int64) error { return r.Commit(ctx, done) })
}

// Drop drops the reader.
func (r *Reader) Drop(ctx context.Context) error { return r.do(ctx, "DROP READER "+r.on, Place{}) }
