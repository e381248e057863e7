// Package times has the times of C15 to C17 of docs/clients.md, so that tests of this module can shorten them.
package times

import (
	"sync/atomic"
	"time"
)

// Times are those of a connection that may have been lost without a word.
type Times struct {
	Quiet   time.Duration // without a byte while something is open; then the peer is asked
	Answer  time.Duration // for anything to come of that
	Leaving time.Duration // likewise, of a node that has said BYE and can't be asked
	Grace   time.Duration // for the node's own answer behind a deadline, for AUTH, and for a node to close
}

// Usual are the times of C15 to C17.
var Usual = Times{20 * time.Second, 20 * time.Second, 60 * time.Second, 5 * time.Second}

var current atomic.Pointer[Times]

// Set makes clients that are opened from now on use other times. Only tests do.
func Set(times Times) { current.Store(&times) }

// Current returns the times for a client that is opened.
func Current() Times {
	if found := current.Load(); found != nil {
		return *found
	}
	return Usual
}
