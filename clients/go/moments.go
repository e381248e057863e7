package storeclient

import (
	"context"
	"errors"
	"time"
)

// keepTime is how long a moment is kept behind a request that reads in it, where nothing else is said.
const keepTime = time.Minute

// Moment is a snapshot of the store to read in: every read sees the store as it was when the moment was
// taken. It belongs to the user, not to the connection. Reads are refused with [Unknown] once the node
// has restarted, a user or grant has changed, or nothing has read for as long as the moment is kept.
type Moment struct {
	db   *Database
	name string
	keep Duration
	at   Position
}

// Moment takes a snapshot to read in. keep is how long the node keeps it after a read, at most ten
// minutes; 0 means one minute. A moment ends after an hour in any case. The caller closes it.
func (d *Database) Moment(ctx context.Context, keep time.Duration) (*Moment, error) {
	if keep == 0 {
		keep = keepTime
	}
	kept := DurationOf(keep)
	answer, err := d.run(ctx, "", nil, runOptions{moment: "new", keep: &kept, repeatable: true})
	if err != nil {
		return nil, err
	}
	if answer.moment == "" {
		return nil, broken("the node names no moment")
	}
	return &Moment{d, answer.moment, kept, answer.Position()}, nil
}

// Position returns the position of the moment, for [From].
func (m *Moment) Position() Position { return m.at }

// Run runs a script that only reads; see [Client.Run].
func (m *Moment) Run(ctx context.Context, script string, params Params, opts ...RunOption) (*Answer, error) {
	o := gather(opts)
	o.moment, o.keep, o.repeatable = m.name, &m.keep, true
	return m.db.run(ctx, script, params, o)
}

// Close ends the moment. Where the node cannot be reached it ends by itself.
func (m *Moment) Close(ctx context.Context) error {
	none := Duration(0)
	_, err := m.db.run(ctx, "", nil, runOptions{moment: m.name, keep: &none, repeatable: true})
	if errors.Is(err, Unknown) {
		return nil
	}
	return err
}
