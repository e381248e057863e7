//! Newest commit that a client knows, so that another node shows it nothing older.

use serde::{Deserialize, Serialize};

/// The position of a reader in the log. Store all three fields to resume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Last handled commit, or a later one that does not change the table; 0 is the start of the log.
    pub seq: i64,
    /// Name of the history of `seq`; `None`: any history.
    #[serde(default)]
    pub store: Option<String>,
    /// Epoch of `seq`.
    #[serde(default)]
    pub epoch: Option<i64>,
}

/// State at the time when something was asked.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    untold: u64,
    seq: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    position: Option<Position>,
    /// False if the epoch of the position may be a later one than its commit's.
    is_of_epoch: bool,
    /// Number of own changes with an unknown sequence.
    untold: u64,
    /// Number of these that the leader has answered a later script behind.
    covered: u64,
}

impl Seen {
    /// Return the sequence that a read has to show; 0: any will do.
    pub(crate) fn after(&self) -> i64 {
        self.position.as_ref().map_or(0, |position| position.seq)
    }

    /// Return true if `after` covers all changes of this client.
    pub(crate) fn is_whole(&self) -> bool {
        self.covered == self.untold
    }

    /// Record that there may be a change of this client with an unknown sequence.
    pub(crate) fn miss(&mut self) {
        self.untold += 1;
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { untold: self.untold, seq: self.after() }
    }

    /// Record an answer. `asked` is given of an answer of the leader alone.
    pub(crate) fn on_answer(&mut self, position: Position, asked: Option<Mark>) {
        if self.is_newer(&position, asked) {
            self.position = Some(position);
            self.is_of_epoch = true;
        }
        if let Some(asked) = asked {
            self.covered = self.covered.max(asked.untold);
        }
    }

    /// Record a commit of the same history.
    pub(crate) fn reach(&mut self, seq: i64, epoch: Option<i64>) {
        let position = self.position.get_or_insert_with(Position::default);
        if seq > position.seq {
            position.seq = seq;
            position.epoch = epoch.or(position.epoch);
            self.is_of_epoch = epoch.is_some();
        }
    }

    /// Return true if a position is newer. That of a later history is, however low its sequence.
    fn is_newer(&self, position: &Position, asked: Option<Mark>) -> bool {
        let Some(before) = &self.position else { return true };
        if position.store != before.store || position.seq > before.seq {
            return true;
        }
        let (Some(epoch), Some(known)) = (position.epoch, before.epoch) else { return false };
        if epoch < known {
            return false;
        }
        if position.seq == before.seq || epoch == known {
            return position.seq == before.seq;
        }
        // The leader has changed. In one history a later epoch has the higher sequences: this is another one
        // if the known commit is of the earlier epoch, or was known when this was asked.
        self.is_of_epoch || asked.is_some_and(|asked| asked.seq >= before.seq)
    }

    /// Return true if an answer is of another store than the leader's.
    pub(crate) fn is_foreign(&self, store: Option<&str>) -> bool {
        let known = self.position.as_ref().and_then(|position| position.store.as_deref());
        known.is_some() && store.is_some() && known != store
    }
}

/// Return true if a script begins like one that only reads.
pub(crate) fn seems_to_read(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start();
        if rest.starts_with("--") || rest.starts_with("//") || rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |at| &rest[at..]);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.find("*/").map_or("", |at| &comment[at + 2..]);
        } else {
            break;
        }
    }
    let end = rest.find(|one: char| !(one.is_ascii_alphabetic() || one == '_')).unwrap_or(rest.len());
    ["SELECT", "RETURN", "READ"].iter().any(|word| rest[..end].eq_ignore_ascii_case(word))
}
