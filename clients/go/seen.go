package storeclient

import (
	"regexp"
	"strings"
	"sync"
)

// Position is the position of a reader in the log. Keep all three fields to resume with [From].
type Position struct {
	// Seq is the last handled commit, or a later one that does not change the table.
	Seq int64
	// Store and Epoch identify the history of Seq; "" and 0 mean unknown.
	Store string
	Epoch int64
}

// mark is what is known when something is asked for.
type mark struct {
	untold int   // changes whose sequence was not told
	seq    int64 // the newest commit; 0: none
}

// seen is the newest commit that a client knows of, so that it is shown nothing older by another
// node, and whether one of its own is missing in that.
type seen struct {
	mu        sync.Mutex
	position  Position
	isKnown   bool
	isOfEpoch bool // else the epoch of the position may be a later one than its commit's
	untold    int
	covered   int // so many of these are not newer than the position
}

// after returns the sequence that a read has to show; 0: any will do.
func (s *seen) after() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position.Seq
}

// isWhole reports whether after stands for all that this client has done.
func (s *seen) isWhole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.covered == s.untold
}

// missed: there may be a change of this client's whose sequence it does not know.
func (s *seen) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.untold++
}

// mark is what an answer covers that is asked for now of the node that takes changes.
func (s *seen) mark() mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return mark{s.untold, s.position.Seq}
}

// told: an answer has come. asked is of when it was asked for, of the node that takes changes; nil: of another.
func (s *seen) told(position Position, asked *mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isNewer(position, asked) {
		s.position, s.isKnown, s.isOfEpoch = position, true, true
	}
	if asked != nil {
		s.covered = max(s.covered, asked.untold)
	}
}

// reached: a commit of the same history is known of. epoch 0: not told.
func (s *seen) reached(seq, epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isKnown || seq > s.position.Seq {
		if epoch == 0 {
			s.position.Seq, s.isOfEpoch = seq, false
		} else {
			s.position.Seq, s.position.Epoch, s.isOfEpoch = seq, epoch, true
		}
		s.isKnown = true
	}
}

// isNewer: a number of a later history counts, however low: what was higher is no more.
func (s *seen) isNewer(position Position, asked *mark) bool {
	before := s.position
	if !s.isKnown || position.Store != before.Store || position.Seq > before.Seq {
		return true
	}
	if position.Epoch == 0 || before.Epoch == 0 || position.Epoch < before.Epoch {
		return false
	}
	if position.Seq == before.Seq || position.Epoch == before.Epoch {
		return position.Seq == before.Seq
	}
	// The lead has moved. In one history a later epoch has the higher sequences: this is another one
	// if what is known is of the earlier epoch, or was known of when this was asked for.
	return s.isOfEpoch || (asked != nil && asked.seq >= before.Seq)
}

// isForeign reports whether an answer is of another store than the node's that takes changes.
func (s *seen) isForeign(answer *Answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.position.Store
	return known != "" && answer.Store != "" && known != answer.Store
}

var firstWord = regexp.MustCompile(`(?s)^(?:\s|--[^\n]*|//[^\n]*|#[^\n]*|/\*.*?\*/)*([A-Za-z_]+)`)

// seemsToRead reports whether a script begins like one that only reads. One that then writes is
// refused by a node that takes no changes, so nothing but a detour comes of it.
func seemsToRead(script string) bool {
	found := firstWord.FindStringSubmatch(script)
	if found == nil {
		return false
	}
	switch strings.ToUpper(found[1]) {
	case "SELECT", "RETURN", "READ":
		return true
	}
	return false
}
