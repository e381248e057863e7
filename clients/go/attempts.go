package storeclient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// breaksMost are the connections that may end under one request before it is asked no more.
const breaksMost = 8

// attempts are those of one request: again is asked only what did not happen, or does no harm twice.
type attempts struct {
	client     *Client
	repeatable bool
	spread     bool            // it is asked of any node, as long as none fails
	stop       <-chan struct{} // ends the request: it is not asked again then
	at         *node           // to be asked for as long as its connection stands

	pause          backoff
	signedInAgain  bool
	turnedAwayAt   time.Time
	breaks         int // connections that ended when it had been asked there
	refused        map[*node]bool
	inCluster      bool // one of the nodes has spoken of a leader
	searchingUntil time.Time
}

func (a *attempts) next(ctx context.Context) (*node, *connection, error) {
	ns := a.client.nodes
	if conn := ns.standing(a.at); conn != nil {
		return a.at, conn, nil
	}
	if a.spread {
		return ns.near(ctx)
	}
	return ns.findHome(ctx)
}

// do does something on a usable connection, and on another one where it was never begun.
func (a *attempts) do(ctx context.Context, work func(*node, *connection) (any, error)) (any, error) {
	a.pause = retryBackoff()
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err() // a connection that stands would take the request of a context that has ended
		}
		n, conn, err := a.next(ctx)
		if err != nil {
			return nil, err
		}
		session := conn.session.Load()
		found, err := work(n, conn)
		switch {
		case err == nil:
			return found, nil
		case errors.Is(err, errNotSent):
			err = a.notSent(ctx, n, conn)
		case ctx.Err() == nil:
			err = a.goesOnAfter(ctx, err, n, conn, session)
		case a.repeatable && errors.Is(err, ErrOutcomeUnknown):
			err = ctx.Err() // nothing of it is open to doubt
		}
		if err != nil {
			return nil, err
		}
	}
}

// notSent: a connection had ended before anything was written there. One that ends in this moment says
// nothing. A peer that ends each of them as soon as it has welcomed it is none to go on connecting to for ever.
func (a *attempts) notSent(ctx context.Context, n *node, conn *connection) error {
	timeout := a.client.nodes.connectTimeout
	switch {
	case a.turnedAwayAt.IsZero():
		a.turnedAwayAt = time.Now()
		return nil
	case time.Since(a.turnedAwayAt) < timeout:
		return a.pause.wait(ctx, nil)
	}
	why := conn.endCause()
	if why == nil {
		why = errors.New("it says goodbye")
	}
	return &failure{ErrUnreachable, fmt.Sprintf("%s has ended each connection for %v before anything was sent", n.where(), timeout), why}
}

// goesOnAfter returns nil if the request is to be asked again, after a wait where one helps; else what its caller is told.
func (a *attempts) goesOnAfter(ctx context.Context, err error, n *node, conn *connection, session int64) error {
	again := false
	switch refusal := refusalOf(err); {
	case refusal == nil:
		again = errors.Is(err, ErrOutcomeUnknown) && a.repeatable && !conn.usable() && a.asksBehindABreak(ctx)
	case refusal.Committed() != 0: // a request of which a part is committed is never asked again
	case refusal.Code == UnknownOutcome: // a leader that is none any more can't say what became of it
		again = a.repeatable && a.looksElsewhere(ctx, refusal, n)
	case refusal.Code == SessionEnded && a.client.nodes.settings.credential.user != "" && !a.signedInAgain:
		a.signedInAgain = true
		return conn.signInAgain(ctx, a.client.nodes.settings.credential, session)
	case refusal.Code == Draining && conn.isLeaving(): // it has crossed the node's BYE, and was never begun
		again = a.asksBehindABreak(ctx)
	case a.spread && !a.client.nodes.isHome(n):
		again = a.asksHomeInstead(refusal, n)
	case refusal.Code == Draining || refusal.Code == NotWritable:
		again = a.looksElsewhere(ctx, refusal, n)
	}
	if again {
		return nil
	}
	return err
}

// asksBehindABreak: at once after the first; with every other it is the likelier that the request has to do with it.
func (a *attempts) asksBehindABreak(ctx context.Context) bool {
	a.breaks++
	if a.breaks > breaksMost {
		return false
	}
	return a.breaks == 1 || a.pause.wait(ctx, a.stop) == nil
}

// asksHomeInstead: something went wrong with a read where it was asked: it is home's to answer. Not so
// what took too long, or too much room, and would there.
func (a *attempts) asksHomeInstead(refusal *Error, n *node) bool {
	if refusal.isBehind() || refusal.Retry {
		a.client.nodes.rest(n)
	}
	switch refusal.Code {
	case Cancelled, AnswerTooLarge:
		return false
	case StatementTimeout:
		if !refusal.isBehind() {
			return false
		}
	}
	a.spread = false
	return true
}

// looksElsewhere: a node takes no changes: look for the one that does, for as long as a connection may
// take where there is a cluster. It may have none for a moment.
func (a *attempts) looksElsewhere(ctx context.Context, refusal *Error, n *node) bool {
	ns := a.client.nodes
	if isDone(a.stop) || !ns.areSeveral() {
		return false
	}
	if a.searchingUntil.IsZero() {
		a.searchingUntil = time.Now().Add(ns.connectTimeout)
	}
	leader, spoken := refusal.Detail["leader"]
	a.inCluster = a.inCluster || spoken
	ns.refusedBy(n, leader)
	if !a.refused[n] {
		if a.refused == nil {
			a.refused = map[*node]bool{}
		}
		a.refused[n] = true
		return true
	}
	if !a.inCluster || !time.Now().Before(a.searchingUntil) {
		return false
	}
	clear(a.refused)
	return a.pause.wait(ctx, a.stop) == nil
}

func isDone(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
