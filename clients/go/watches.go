package storeclient

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
)

const copyAnew = "read the table anew, and watch it from the Position of that answer"

// whatToDo about what ends a watch.
var whatToDo = map[Code]string{
	LogPruned:    copyAnew,
	Diverged:     copyAnew,
	Unknown:      "what is declared under its name now is another table: " + copyAnew,
	NotAllowed:   "once READ is granted again, go on from Position",
	SessionEnded: "with a client of another token, go on from Position",
}

// Watch follows the changes of a table. It resumes by itself after a broken connection, with a node that
// restarts or is busy, and after falling behind: no commit is skipped and none comes twice. It ends with
// an error that says what to do: [LogPruned] and [Diverged] (the log no longer holds what follows
// Position, or has another history), [Unknown] (the table was dropped), [NotAllowed], [SessionEnded] of
// a client with a token, or an invalid argument. A node that cannot be reached in the first place ends
// it too.
type Watch struct {
	client *Client
	body   []field
	err    error
	onMove func(Position) // called when it is known that nothing has changed up to there
	stop   chan struct{}

	mu       sync.Mutex
	stopped  bool
	position *Position
	patient  bool // a node that is away is waited for: from the first time on that it has begun
}

// WatchOption configures [Database.Watch] and [Database.Mirror].
type WatchOption func(*watchOptions)

type watchOptions struct {
	from   *Position
	where  string
	fields []field
	page   int
	onCopy func(Copied)
}

// From starts behind a position: of an answer, or of another watch. A position with only a Seq is of
// whatever history the node has, and 0 is the start of the log. The default is the newest commit.
func From(position Position) WatchOption {
	return func(o *watchOptions) { o.from = &position }
}

// Actions limits a watch to some of create, update and delete.
func Actions(actions ...string) WatchOption {
	return func(o *watchOptions) { o.fields = append(o.fields, field{"actions", actions}) }
}

// WithBefore adds to each change the record before it.
func WithBefore() WatchOption {
	return func(o *watchOptions) { o.fields = append(o.fields, field{"before", true}) }
}

// Where limits a watch to records that meet a condition, such as `price > 10`. A record that begins to
// meet it is a create, one that ceases to is a delete.
func Where(condition string) WatchOption {
	return func(o *watchOptions) { o.where = condition }
}

// Watch returns a watch of a table, which follows its changes as they are committed. It sends nothing
// before its first iteration.
func (d *Database) Watch(table string, opts ...WatchOption) *Watch {
	o := gather(opts)
	body := append([]field{{"ns", d.ns}, {"db", d.db}, {"table", table}}, o.fields...)
	if o.where != "" {
		body = append(body, field{"where", o.where})
	}
	return &Watch{
		client: d.client, body: body, err: errors.Join(d.err, checkNames(table)),
		position: o.from, stop: make(chan struct{}),
	}
}

// Position returns the position to resume from with [From]. ok is false if the watch has not begun and
// was given none. The position moves past a commit when the next one is asked for: a reader that is
// killed while it handles a commit gets that commit again.
func (w *Watch) Position() (position Position, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.position == nil {
		return Position{}, false
	}
	return *w.position, true
}

// Stop ends the iteration after the current commit.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.stopped = true
		close(w.stop)
	}
}

// Changes iterates over the changes of the table one by one. An error ends the iteration.
func (w *Watch) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for commit, err := range w.Commits(ctx) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			for _, change := range commit.Changes {
				if !yield(change, nil) {
					return
				}
			}
		}
	}
}

// Commits iterates over the commits that change the table. An error ends the iteration.
func (w *Watch) Commits(ctx context.Context) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		if w.err != nil {
			yield(Commit{}, w.err)
			return
		}
		following := &following{watch: w, pause: retryBackoff(), heard: true}
		if at, ok := w.Position(); ok {
			following.at = &at
		}
		defer following.leave()
		for {
			commit, err := following.next(ctx)
			switch {
			case err != nil:
				yield(Commit{}, err)
				return
			case commit == nil || !yield(*commit, nil):
				return
			}
			w.moved(*following.at, false)
		}
	}
}

func (w *Watch) moved(to Position, tell bool) {
	w.mu.Lock()
	w.position = &to
	w.mu.Unlock()
	if tell && w.onMove != nil {
		w.onMove(to)
	}
}

// following is one iteration: the feed that it hears, opened again wherever it ended.
type following struct {
	watch  *Watch
	at     *Position // where what was told ends; nil: nothing was, and no start given
	feed   *feed
	opened Object
	parts  []Object
	pause  backoff
	heard  bool // the feed has said something since it began
}

// next returns the commit that is told next; nil: the watch was stopped.
func (f *following) next(ctx context.Context) (*Commit, error) {
	stop := f.watch.stop
	for !isDone(stop) {
		var body Object
		var err error
		if f.feed == nil {
			if err = f.open(ctx); err == nil {
				continue
			}
		} else {
			body, err = f.feed.next(ctx, stop)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isDone(stop):
		case err != nil:
			if err := f.lost(ctx, err); err != nil {
				return nil, err
			}
		case body == nil:
			f.left()
		default:
			if commit, err := f.take(body); commit != nil || err != nil {
				return commit, err
			}
		}
	}
	return nil, nil
}

func (f *following) leave() {
	if f.feed != nil {
		f.feed.close()
	}
}

func (f *following) left() {
	f.leave()
	f.feed, f.parts = nil, nil // of a commit that did not come whole: it does when this comes back
}

func (f *following) open(ctx context.Context) error {
	body := f.watch.body[:len(f.watch.body):len(f.watch.body)]
	if at := f.at; at != nil {
		body = append(body, field{"from", at.Seq})
		if at.Store != "" {
			body = append(body, field{"store", at.Store})
		}
		if at.Epoch != 0 {
			body = append(body, field{"epoch", at.Epoch})
		}
	}
	if !f.heard {
		if err := f.pause.wait(ctx, f.watch.stop); err != nil {
			return err
		}
	}
	f.heard = false
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // who stops a watch does not wait for a node that is away
		select {
		case <-f.watch.stop:
			cancel()
		case <-within.Done():
		}
	}()
	found, opened, err := f.watch.client.openFeed(within, body)
	if err != nil {
		return err
	}
	start, isStart := opened["start"].(int64)
	_, isSeq := opened["seq"].(int64)
	if _, isStore := opened["store"].(string); opened["type"] != "open" || !isStart || !isSeq || !isStore {
		found.close()
		return broken("a feed of the node does not say how it begins")
	}
	epoch, err := optional[int64](opened, "start_epoch")
	if err != nil {
		found.close()
		return err
	}
	f.feed, f.opened = found, opened
	at := f.place(start, epoch)
	f.at = &at
	f.watch.mu.Lock()
	f.watch.patient = true
	f.watch.mu.Unlock()
	f.watch.moved(at, true)
	return nil
}

// lost: the feed is over, or did not begin. It returns what can't go on by itself.
func (f *following) lost(ctx context.Context, err error) error {
	begun := f.feed != nil
	f.left()
	f.watch.mu.Lock()
	patient := f.watch.patient
	f.watch.mu.Unlock()
	refusal := refusalOf(err)
	isRefusal := refusal != nil
	if begun && isRefusal && (refusal.Code == TooSlow || refusal.Code == SessionEnded) {
		return nil // it comes back; where it can't sign in again it is told so then
	}
	passes := isRefusal && (refusal.Retry || refusal.isBehind())
	if !(patient || passes) || !isOutage(err) {
		if isRefusal {
			tellWhatToDo(refusal, patient)
		}
		return err
	}
	if !begun {
		f.heard = true
		return f.pause.wait(ctx, f.watch.stop)
	}
	return nil
}

func tellWhatToDo(refusal *Error, known bool) {
	_, created := refusal.Detail["created"]
	late := refusal.Code == LogPruned || refusal.Code == Diverged
	if then, ok := whatToDo[refusal.Code]; ok && (known || late || created) {
		said := strings.TrimSuffix(strings.TrimSuffix(refusal.Message, ": copy anew"), ": sign in again")
		refusal.Message = said + ": " + then
	}
}

func (f *following) take(body Object) (*Commit, error) {
	seq, err := needed[int64](body, "seq")
	if err != nil {
		return nil, err
	}
	epoch, err := optional[int64](body, "epoch")
	if err != nil {
		return nil, err
	}
	at := f.place(seq, epoch)
	f.heard = true
	f.pause.reset()
	if body["type"] != "commit" {
		// "caught_up" or "beat": who has asked for more has dealt with all before.
		f.at = &at
		f.watch.moved(at, true)
		return nil, nil
	}
	f.parts = append(f.parts, body)
	if !isWhole(body) {
		return nil, nil
	}
	commit, err := readCommit(f.parts, at)
	if err != nil {
		return nil, err
	}
	f.parts, f.at = nil, &at
	return &commit, nil
}

// place is where a feed has come to, as it tells. epoch 0: the node is of a version that does not tell.
func (f *following) place(seq, epoch int64) Position {
	store, _ := f.opened["store"].(string)
	newest, _ := f.opened["epoch"].(int64)
	upTo, _ := f.opened["seq"].(int64)
	before := f.at
	if epoch == 0 && before != nil && before.Seq == seq {
		epoch = before.Epoch
	}
	if epoch == 0 && (seq == upTo || (before != nil && before.Epoch == newest && seq <= upTo)) {
		// Behind the newest commit of the beginning nobody knows: the lead may have moved.
		epoch = newest
	}
	return Position{seq, store, epoch}
}
