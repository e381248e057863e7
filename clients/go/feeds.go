package storeclient

import (
	"context"
	"sync"
	"time"
)

// behindMost are bytes of whole commits that have come and were not asked for: with more the feed is
// ended, and opened again where it was left. To stop reading would hold up all else on the connection.
const behindMost = 4 << 20

// feed is a WATCH on one connection, until it is over.
type feed struct {
	conn   *connection
	call   *call
	onSeq  func(seq, epoch int64)
	mu     sync.Mutex
	said   []told
	bytes  int
	whole  int // of these, what ends with a whole commit
	ending bool
	over   bool
	end    reply
	news   chan struct{}
}

type told struct {
	body Object
	size int
}

// isWhole reports whether a commit is there with that message, all of it or its last part.
func isWhole(body Object) bool {
	part, isPart := body["part"].(int64)
	of, isOf := body["of"].(int64)
	return part == of && isPart == isOf
}

func (f *feed) told(body Object, size int) {
	f.mu.Lock()
	f.said = append(f.said, told{body, size})
	f.bytes += size
	if isWhole(body) {
		f.whole = f.bytes
	}
	ends := f.whole > behindMost && !f.ending
	f.ending = f.ending || ends
	announce(&f.news)
	f.mu.Unlock()
	if seq, ok := body["seq"].(int64); ok && isWhole(body) {
		epoch, _ := body["epoch"].(int64)
		f.onSeq(seq, epoch)
	}
	if ends {
		f.conn.cancel(f.call)
	}
}

func (f *feed) ended(end reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over, f.end = true, end
	announce(&f.news)
}

// next returns what the feed says next; nil: it is over, as was asked.
func (f *feed) next(ctx context.Context, stop <-chan struct{}) (Object, error) {
	for {
		f.mu.Lock()
		if len(f.said) > 0 {
			found := f.said[0]
			f.said = f.said[1:]
			f.bytes -= found.size
			f.whole = max(f.whole-found.size, 0)
			f.mu.Unlock()
			return found.body, nil
		}
		if f.over {
			f.mu.Unlock()
			return nil, f.end.err
		}
		news := expect(&f.news)
		f.mu.Unlock()
		select {
		case <-news:
		case <-stop:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close ends a feed that nobody asks any more.
func (f *feed) close() { f.conn.giveUp(f.call) }

// openFeed returns a feed that has begun, and how: told to nobody before, so asking twice does no harm.
func (c *Client) openFeed(ctx context.Context, body []field) (*feed, Object, error) {
	tries := &attempts{client: c, repeatable: true, spread: c.readsAnywhere()}
	var opened Object
	found, err := tries.do(ctx, func(n *node, conn *connection) (any, error) {
		asked := request{kind: kindWatch, body: body}
		if err := checkKnown(conn, asked); err != nil {
			return nil, err
		}
		after, isHome := c.seen.after(), c.nodes.isHome(n)
		switch minor := conn.welcome.Minor; {
		case !c.nodes.areSeveral():
		case minor >= minorOfSequences:
			if after > 0 && !isHome {
				asked.body = append(body[:len(body):len(body)], field{"after", after})
			}
		case minor >= minorOfAfter:
			if err := reach(ctx, conn, max(after, startOf(body)), isHome); err != nil {
				return nil, err
			}
		}
		begun := &feed{conn: conn, onSeq: c.seen.reached}
		begun.call = &call{sink: begun}
		if err := conn.begin(ctx, asked, begun.call); err != nil {
			return nil, err
		}
		within, cancel := ctx, context.CancelFunc(func() {})
		if timeout := c.options.timeout; timeout > 0 {
			within, cancel = context.WithTimeout(ctx, timeout+c.options.pulse.Grace)
		}
		defer cancel()
		var err error
		if opened, err = begun.next(within, nil); err != nil {
			begun.close()
			if ctx.Err() == nil && within.Err() != nil {
				err = &failure{ErrOutcomeUnknown, "the feed did not begin in time", err}
			}
			return nil, err
		}
		return begun, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return found.(*feed), opened, nil
}

func startOf(body []field) int64 {
	for _, one := range body {
		if one.name == "from" {
			return one.value.(int64)
		}
	}
	return 0
}

// reach waits until a node shows what a feed goes on from: one that is behind, and of a version whose
// feeds don't wait, would take it for a position of another history.
func reach(ctx context.Context, conn *connection, seq int64, isHome bool) error {
	if seq == 0 {
		return nil
	}
	_, err := conn.ask(ctx, request{kind: kindRun, body: []field{{"script", ""}, {"after", seq}}})
	if refusal := refusalOf(err); refusal != nil && refusal.Code == StatementTimeout && isHome {
		return nil // then it is of another history, which WATCH has words for
	}
	return err
}

// --- what a feed tells ---------------------------------------------------------------------------

// Change is the change of one record by a commit.
type Change struct {
	Seq    int64     // of the commit
	At     time.Time // when it was committed, by the node's log time
	By     string    // user; "" if the reader has no INFO right on the table
	Reason string
	Action string // create, update or delete
	ID     RecordID
	Value  Object // the record after the commit; nil if it was deleted
	Before Object // the record before the commit; nil without WithBefore, if it did not exist, or if Missing
	// Missing is why Before is absent: pruned (no longer in the log) or omitted (too large).
	Missing string
	Last    bool // true of the last change of its commit
}

// Decode stores the record after the commit in the value that into points to; see [Decode].
func (c *Change) Decode(into any) error { return Decode(c.Value, into) }

// Commit is all that one commit changed in a table.
type Commit struct {
	Seq     int64
	At      time.Time
	By      string
	Reason  string
	Changes []Change
	// Position is the position behind the commit. Store it together with the effect of the commit.
	Position Position
}

// readCommit reads a commit of all its parts.
func readCommit(parts []Object, position Position) (Commit, error) {
	wrong := func() (Commit, error) { return Commit{}, broken("a feed of the node tells what is no commit") }
	head := parts[0]
	at, isTime := head["at"].(time.Time)
	if !isTime {
		return wrong()
	}
	by, _ := head["by"].(string)
	reason, _ := head["reason"].(string)
	found := Commit{Seq: position.Seq, At: at, By: by, Reason: reason, Position: position}
	for number, part := range parts {
		if len(parts) > 1 || part["of"] != nil {
			if part["of"] != int64(len(parts)) || part["part"] != int64(number+1) || part["seq"] != position.Seq {
				return Commit{}, broken("the parts of a commit don't belong together")
			}
		}
		changes, ok := part["changes"].([]any)
		if !ok {
			return wrong()
		}
		for _, one := range changes {
			body, _ := one.(Object)
			action, isAction := body["action"].(string)
			id, isRecord := body["id"].(RecordID)
			if !isAction || !isRecord {
				return wrong()
			}
			change := Change{Seq: found.Seq, At: at, By: by, Reason: reason, Action: action, ID: id}
			change.Value, _ = body["value"].(Object)
			change.Before, _ = body["before"].(Object)
			if body["before_pruned"] == true {
				change.Missing = "pruned"
			} else if body["before_omitted"] == true {
				change.Missing = "omitted"
			}
			found.Changes = append(found.Changes, change)
		}
	}
	if n := len(found.Changes); n > 0 {
		found.Changes[n-1].Last = true
	}
	return found, nil
}
