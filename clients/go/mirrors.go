package storeclient

import (
	"context"
	"errors"
	"sync"
)

// Copied reports that a mirror was read in full.
type Copied struct {
	Seq  int64 // sequence that the mirror shows
	Rows int
	Why  error // cause of reading again; nil for the first time
}

// Mirror is a copy of a table, or of the records that meet a condition, kept in step with it. It is read
// in full at one moment of the store and followed from there. Where the log no longer holds what
// follows, the mirror reads the table again by itself; until that is done, and while the node is away,
// it shows the last state. It changes by whole commits.
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

// OnCopy calls a function each time the mirror was read in full, in the goroutine that keeps it in step.
func OnCopy(call func(Copied)) WatchOption { return func(o *watchOptions) { o.onCopy = call } }

// CopyPage sets the number of rows in one request while a mirror is read in full. The default is 1000.
func CopyPage(rows int) WatchOption { return func(o *watchOptions) { o.page = rows } }

// Mirror reads a table in full and returns a copy that is kept in step until it is closed. It takes the
// options [Where], [OnCopy] and [CopyPage].
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

// Seq returns the sequence that the mirror shows. It advances with commits elsewhere too, every 15
// seconds.
func (m *Mirror) Seq() int64 {
	at, _ := m.state()
	return at.Seq
}

// Err returns the error that ended the mirror (the table was dropped, reads were revoked, the client or
// the mirror was closed), or nil.
func (m *Mirror) Err() error {
	_, err := m.state()
	return err
}

// Get returns a record, which must not be modified. ok is false if there is none.
func (m *Mirror) Get(id RecordID) (row Object, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	row, ok = m.rows[id.String()]
	return row, ok
}

// Len returns the number of records.
func (m *Mirror) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.rows)
}

// Snapshot returns all records of one commit in no order. They must not be modified.
func (m *Mirror) Snapshot() []Object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	rows := make([]Object, 0, len(m.rows))
	for _, row := range m.rows {
		rows = append(rows, row)
	}
	return rows
}

// Changed waits until the mirror shows another sequence than since. Take since from [Mirror.Seq] before
// reading the mirror: a change in between is not missed.
func (m *Mirror) Changed(ctx context.Context, since int64) error {
	return m.until(ctx, func() bool { return m.position.Seq != since })
}

// Reached waits until the mirror shows sequence seq, such as the Seq of an answer. It takes up to 15
// seconds for a commit that changes no record of the mirror.
func (m *Mirror) Reached(ctx context.Context, seq int64) error {
	return m.until(ctx, func() bool { return m.position.Seq >= seq })
}

func (m *Mirror) until(ctx context.Context, met func() bool) error {
	for {
		m.mu.Lock()
		if m.failure != nil || met() {
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

// Close stops following the table. The rows of the mirror stay.
func (m *Mirror) Close() {
	m.stop()
	m.work.Wait()
}
