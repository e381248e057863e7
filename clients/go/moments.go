package storeclient

import (
	"context"
	"errors"
	"time"
)

// keepTime is how long a moment is kept behind a request that reads in it, where nothing else is said.
const keepTime = time.Minute

// Moment is one moment of the store, to read in as often as needed: everything read there is as it was
// when it was taken, whatever is committed meanwhile. It is the user's, not the connection's. Once the
// node has started anew, a user or grant has changed, or nobody has read for as long as it is kept,
// reading is refused with [Unknown].
type Moment struct {
	db   *Database
	name string
	keep Duration
	at   Position
}

// Moment takes one. keep is how long the node keeps it for the next request, ten minutes at most; 0: a
// minute. An hour after it was taken it ends in any case. Close it.
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

// Position returns the sequence that is read, with its history: where to follow tables from.
func (m *Moment) Position() Position { return m.at }

// Run runs a script that only reads; see [Client.Run].
func (m *Moment) Run(ctx context.Context, script string, params Params, opts ...RunOption) (*Answer, error) {
	o := gather(opts)
	o.moment, o.keep, o.repeatable = m.name, &m.keep, true
	return m.db.run(ctx, script, params, o)
}

// Close lets the node forget the moment. It ends by itself where the node can't be told.
func (m *Moment) Close(ctx context.Context) error {
	none := Duration(0)
	_, err := m.db.run(ctx, "", nil, runOptions{moment: m.name, keep: &none, repeatable: true})
	if errors.Is(err, Unknown) {
		return nil
	}
	return err
}
