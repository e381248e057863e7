package storeclient

import (
	"context"
	"errors"
	"sync"
)

// Copied tells that a mirror has been read whole.
type Copied struct {
	Seq  int64 // the commit that it shows
	Rows int
	Why  error // what made that needed; nil: it was the first time
}

// Mirror is a copy of a table, or of what meets a condition, kept in step with it. It is read whole in
// one moment of the store and followed from there: nothing lies between. Where what follows can't be told
// any more it is read anew by itself; until that is done, and while the node is away, it shows what it
// showed last. It changes by whole commits.
type Mirror struct {
	db      *Database
	table   string
	selects string
	options watchOptions
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu       sync.RWMutex
	rows     map[string]Object // by the text of the record
	position Position
	failure  error
	changed  chan struct{}
}

// OnCopy is called each time that a mirror was read whole, by the goroutine that keeps it in step.
func OnCopy(call func(Copied)) WatchOption { return func(o *watchOptions) { o.onCopy = call } }

// CopyPage is the number of rows in one request while a mirror is read whole: 1000 by default.
func CopyPage(rows int) WatchOption { return func(o *watchOptions) { o.page = rows } }

// Mirror returns a copy of a table that is there whole, and is kept in step until it is closed. Of the
// options it takes [Where], [OnCopy] and [CopyPage].
func (d *Database) Mirror(ctx context.Context, table string, opts ...WatchOption) (*Mirror, error) {
	quoted, err := QuoteName(table)
	if err != nil {
		return nil, err
	}
	m := &Mirror{db: d, table: table, selects: "SELECT * FROM " + quoted, options: gather(opts)}
	if where := m.options.where; where != "" {
		m.selects += " WHERE " + where
	}
	if err := m.copy(ctx, nil); err != nil {
		return nil, err
	}
	keeping, stop := context.WithCancel(d.client.nodes.ctx)
	m.stop = stop
	m.work.Add(1)
	go m.keep(keeping)
	return m, nil
}

func (m *Mirror) keep(ctx context.Context) {
	defer m.work.Done()
	for {
		err := m.follow(ctx)
		if errors.Is(err, LogPruned) || errors.Is(err, Diverged) || errors.Is(err, Unknown) {
			err = m.copy(ctx, err)
		}
		if ctx.Err() != nil {
			err = ErrClosed
		}
		if err != nil {
			m.mu.Lock()
			m.failure = err
			announce(&m.changed)
			m.mu.Unlock()
			return
		}
	}
}

func (m *Mirror) follow(ctx context.Context) error {
	at, _ := m.state()
	opts := []WatchOption{From(at)}
	if m.options.where != "" {
		opts = append(opts, Where(m.options.where))
	}
	watch := m.db.Watch(m.table, opts...)
	watch.patient = true // the table was read a moment ago: a node that is away comes back
	watch.onMove = func(to Position) { m.apply(Commit{Position: to}) }
	for commit, err := range watch.Commits(ctx) {
		if err != nil {
			return err
		}
		m.apply(commit)
	}
	return nil
}

// copy reads all of it. Where it was read before, a node that is away is waited for.
func (m *Mirror) copy(ctx context.Context, why error) error {
	pause := retryBackoff()
	for {
		rows, at, err := m.read(ctx)
		if err == nil {
			m.mu.Lock()
			m.rows, m.position = rows, at
			announce(&m.changed)
			m.mu.Unlock()
			if m.options.onCopy != nil {
				m.options.onCopy(Copied{at.Seq, len(rows), why})
			}
			return nil
		}
		refusal := refusalOf(err)
		lostMoment := refusal != nil && refusal.Code == Unknown && refusal.Detail["moment"] != nil
		if !lostMoment && !(why != nil && isOutage(err)) {
			return err
		}
		if err := pause.wait(ctx, nil); err != nil {
			return err
		}
	}
}

func (m *Mirror) read(ctx context.Context) (map[string]Object, Position, error) {
	then, err := m.db.Moment(ctx, 0)
	if err != nil {
		return nil, Position{}, err
	}
	defer then.Close(ctx) // it ends by itself where the node can't be told
	rows := map[string]Object{}
	for row, err := range Rows[Object](ctx, then, m.selects, nil, Page(m.options.page)) {
		if err != nil {
			return nil, Position{}, err
		}
		id, ok := row["id"].(RecordID)
		if !ok {
			return nil, Position{}, broken("the node tells a row of %s without its id", m.table)
		}
		rows[id.String()] = row
	}
	return rows, then.Position(), nil
}

func (m *Mirror) apply(commit Commit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, change := range commit.Changes {
		if change.Value == nil {
			delete(m.rows, change.ID.String())
		} else {
			m.rows[change.ID.String()] = change.Value
		}
	}
	m.position = commit.Position
	announce(&m.changed)
}

func (m *Mirror) state() (Position, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.position, m.failure
}

// Seq returns the commit that the mirror shows. It moves on with what is committed elsewhere too, every 15 seconds.
func (m *Mirror) Seq() int64 {
	at, _ := m.state()
	return at.Seq
}

// Err returns why the mirror can't go on: the table is no more, it may not be read, the client or the
// mirror was closed. nil: it does.
func (m *Mirror) Err() error {
	_, err := m.state()
	return err
}

// Get returns a record, and whether it is there. What it returns is not to be changed.
func (m *Mirror) Get(id RecordID) (row Object, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	row, ok = m.rows[id.String()]
	return row, ok
}

// Len returns how many records there are.
func (m *Mirror) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.rows)
}

// Snapshot returns all records, of one commit, in no order. They are not to be changed.
func (m *Mirror) Snapshot() []Object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rows := make([]Object, 0, len(m.rows))
	for _, row := range m.rows {
		rows = append(rows, row)
	}
	return rows
}

// Changed waits until the mirror shows something else.
func (m *Mirror) Changed(ctx context.Context) error {
	return m.until(ctx, func(first bool) bool { return !first })
}

// Reached waits until the mirror shows a commit, such as the Seq of an answer of one's own. One that
// changes nothing of what it shows is known of within 15 seconds.
func (m *Mirror) Reached(ctx context.Context, seq int64) error {
	return m.until(ctx, func(bool) bool { return m.position.Seq >= seq })
}

func (m *Mirror) until(ctx context.Context, met func(first bool) bool) error {
	for first := true; ; first = false {
		m.mu.Lock()
		if m.failure != nil || met(first) {
			defer m.mu.Unlock()
			return m.failure
		}
		changed := expect(&m.changed)
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends it. What it shows stays as it is.
func (m *Mirror) Close() {
	m.stop()
	m.work.Wait()
}
