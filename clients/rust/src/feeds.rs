//! Feeds on one connection, and the commits in them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::answers::{Answer, as_field, needed, optional};
use crate::attempts::{Attempts, How, with_grace};
use crate::client::Client;
use crate::connection::{Connection, MINOR_OF_AFTER, MINOR_OF_FEEDS, MINOR_OF_SEQUENCES};
use crate::convert::from_value;
use crate::errors::{Error, Failure, Result};
use crate::exchange::{Reply, Request, Sink};
use crate::frames::{Body, Fields, Kind};
use crate::seen::Position;
use crate::tables::Code;
use crate::values::{DateTime, Object, RecordId, Value};
use crate::waits::{Flag, News, lock};

/// Bytes of whole commits that have come and were not asked for: with more the feed is ended and opened again.
const BEHIND_MOST: usize = 4 << 20;
/// Parts of a backup that are held; a part has at most 1 MiB. Past them nothing is read.
const PARTS_MOST: usize = 8;

/// Called with the sequence and epoch of each whole message of a feed.
type OnSeq = Box<dyn Fn(i64, Option<i64>) + Send + Sync>;

#[derive(Default)]
struct QueueState {
    messages: VecDeque<(Fields, usize)>,
    bytes: usize,
    /// Bytes up to the end of the last whole commit.
    whole: usize,
    /// True once the node was asked to end the feed since nobody reads it.
    is_ending: bool,
    over: Option<Result<Option<Answer>, Failure>>,
}

/// Messages that have come for one request, in order, and its end.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    news: News,
    /// `None`: the messages are parts of a backup.
    on_seq: Option<OnSeq>,
}

impl Queue {
    pub(crate) fn of_parts() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), news: News::default(), on_seq: None })
    }

    fn of_feed(on_seq: OnSeq) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), news: News::default(), on_seq: Some(on_seq) })
    }

    /// Add a message. Return true if too many are held.
    pub(crate) fn push(&self, body: Fields, size: usize) -> bool {
        let mut state = lock(&self.state);
        state.bytes += size;
        if let Some(on_seq) = &self.on_seq {
            if is_whole(&body) {
                state.whole = state.bytes;
                if let Some(seq) = body.get("seq").and_then(Value::as_int) {
                    on_seq(seq, body.get("epoch").and_then(Value::as_int));
                }
            }
        }
        state.messages.push_back((body, size));
        let is_full = match self.on_seq {
            None => state.messages.len() >= PARTS_MOST,
            Some(_) => state.whole > BEHIND_MOST && !state.is_ending,
        };
        state.is_ending |= is_full;
        drop(state);
        self.news.announce();
        is_full
    }

    pub(crate) fn end(&self, outcome: Result<Reply, Failure>) {
        lock(&self.state).over = Some(match outcome {
            Ok(Reply::Answer(answer)) => Ok(Some(*answer)),
            Ok(_) => Ok(None),
            Err(failure) => Err(failure),
        });
        self.news.announce();
    }

    fn poll(&self) -> Option<Result<Next, Failure>> {
        let mut state = lock(&self.state);
        if let Some((body, size)) = state.messages.pop_front() {
            state.bytes -= size;
            state.whole = state.whole.saturating_sub(size);
            return Some(Ok(Next::Message(body, state.messages.is_empty())));
        }
        let over = state.over.clone()?;
        Some(over.map(Next::End))
    }

    /// Return the next message, or the end.
    pub(crate) async fn next(&self) -> Result<Next, Failure> {
        self.news.until(|| self.poll()).await
    }
}

/// The next message of a queue.
pub(crate) enum Next {
    /// A message, and true if no other has come yet.
    Message(Fields, bool),
    /// The end, as it was asked for, with the answer of a script.
    End(Option<Answer>),
}

/// Return true if a message ends a commit: it is all of it, or its last part.
pub(crate) fn is_whole(body: &Fields) -> bool {
    let part = |name| body.get(name).and_then(Value::as_int);
    part("part") == part("of")
}

/// A WATCH on one connection. Dropping it ends the feed.
pub(crate) struct Feed {
    conn: Arc<Connection>,
    id: u64,
    queue: Arc<Queue>,
}

impl Feed {
    fn begin(
        conn: &Arc<Connection>,
        request: &Request,
        after: Option<i64>,
        on_seq: OnSeq,
    ) -> Result<Self, Failure> {
        let queue = Queue::of_feed(on_seq);
        let id = conn.begin(request, after, Sink::Stream(Arc::clone(&queue)))?;
        Ok(Self { conn: Arc::clone(conn), id, queue })
    }

    /// Return the next message; `None`: the feed is over as it was asked.
    pub(crate) async fn next(&self) -> Result<Option<Fields>, Failure> {
        match self.queue.next().await? {
            Next::Message(body, _) => Ok(Some(body)),
            Next::End(_) => Ok(None),
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.conn.give_up(self.id);
    }
}

/// Open a feed, and return it with its first message. Asking twice does no harm.
pub(crate) async fn open_feed(client: &Client, body: &Body, from: i64) -> Result<(Feed, Fields)> {
    let nodes = client.nodes();
    let how = How { repeatable: true, spread: client.reads_anywhere(), ..How::default() };
    let mut tries = Attempts::new(nodes, &how);
    loop {
        let attempt = tries.next().await?;
        let opening = open_on(client, &attempt.conn, nodes.is_home(&attempt.node), body, from);
        match opening.await {
            Ok(found) => return Ok(found),
            Err(failure) => tries.on_failure(failure, &attempt).await?,
        }
    }
}

async fn open_on(
    client: &Client,
    conn: &Arc<Connection>,
    is_home: bool,
    body: &Body,
    from: i64,
) -> Result<(Feed, Fields), Failure> {
    conn.check_minor(MINOR_OF_FEEDS, "feeds")?;
    let seen = client.seen().after();
    let request = Request { waits: true, ..Request::new(Kind::Watch, body.clone()) };
    let minor = conn.welcome.minor;
    let mut after = None;
    if client.nodes().are_several() && minor >= MINOR_OF_SEQUENCES {
        after = (seen > 0 && !is_home).then_some(seen);
    } else if client.nodes().are_several() && minor >= MINOR_OF_AFTER {
        reach(conn, seen.max(from), is_home).await?;
    }
    let seen = client.seen_shared();
    let feed = Feed::begin(conn, &request, after, Box::new(move |seq, epoch| lock(&seen).reach(seq, epoch)))?;
    let first = match with_grace(client.timeout()) {
        None => feed.next().await?,
        Some(within) => match timeout(within, feed.next()).await {
            Ok(found) => found?,
            Err(_) => return Err(Error::unknown("the feed did not begin in time", None).into()),
        },
    };
    match first {
        Some(opened) => Ok((feed, opened)),
        None => Err(Error::broken("a feed of the node ended before it began").into()),
    }
}

/// Wait until a node before minor 8 shows a position: its feeds do not wait for it.
async fn reach(conn: &Connection, seq: i64, is_home: bool) -> Result<(), Failure> {
    if seq == 0 {
        return Ok(());
    }
    let request = Request::new(Kind::Run, Body::new().str("script", ""));
    match conn.ask(&request, Some(seq), None).await {
        // WATCH has words for another history.
        Err(Failure::Error(error)) if is_home && error.is(Code::StatementTimeout) => Ok(()),
        Err(failure) => Err(failure),
        Ok(_) => Ok(()),
    }
}

/// Change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// The record was created, or began to meet the condition of the watch.
    Create,
    /// The record was changed.
    Update,
    /// The record was deleted, or ceased to meet the condition of the watch.
    Delete,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Cause of a missing [`Change::before`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// It is no longer in the log.
    Pruned,
    /// It is too large.
    Omitted,
}

/// The change of one record by a commit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// Change of the record.
    pub action: Action,
    /// Id of the record.
    pub id: RecordId,
    /// The record after the commit; `None` if it was deleted.
    pub value: Option<Value>,
    /// The record before the commit; `None` if that was not asked for, if it did not exist, or if it is missing.
    pub before: Option<Value>,
    /// Cause of a missing `before`.
    pub missing: Option<Missing>,
}

impl Change {
    /// Decode the record after the commit; `None` if it was deleted.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        Ok(self.value.clone().map(from_value).transpose()?)
    }

    /// Decode the record before the commit.
    pub fn decode_before<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        Ok(self.before.clone().map(from_value).transpose()?)
    }
}

/// All that one commit changed in a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Commit {
    /// Sequence of the commit.
    pub seq: i64,
    /// Time of the commit.
    pub at: DateTime,
    /// User; `None` if the reader may not see it.
    pub by: Option<String>,
    /// Reason that was given with the script.
    pub reason: Option<String>,
    /// Changes in the order of the commit.
    pub changes: Vec<Change>,
    /// Position behind the commit. Store it together with the effect of the commit.
    pub position: Position,
}

fn read_change(found: Value) -> Result<Change> {
    let mut body: Object = as_field(found, "a change")?;
    let missing = match (body.get("before_pruned"), body.get("before_omitted")) {
        (Some(Value::Bool(true)), _) => Some(Missing::Pruned),
        (_, Some(Value::Bool(true))) => Some(Missing::Omitted),
        _ => None,
    };
    let action = match needed::<String>(&mut body, "action")?.as_str() {
        "create" => Action::Create,
        "update" => Action::Update,
        "delete" => Action::Delete,
        other => return Err(Error::broken(format!("the node sent a change that is a {other}"))),
    };
    let Some(Value::Record(id)) = body.remove("id") else {
        return Err(Error::broken("the node sent a change without the id of a record"));
    };
    let mut record = |name| body.remove(name).filter(|value| matches!(value, Value::Object(_)));
    Ok(Change { action, id, value: record("value"), before: record("before"), missing })
}

/// Read a commit of all its parts.
pub(crate) fn read_commit(parts: Vec<Fields>, position: Position) -> Result<Commit> {
    let count = parts.len() as i64;
    let mut changes = Vec::new();
    let mut head = None;
    for (n, mut part) in parts.into_iter().enumerate() {
        let int = |name| part.get(name).and_then(Value::as_int);
        let is_alone = count == 1 && int("of").is_none();
        let fits =
            int("of") == Some(count) && int("part") == Some(n as i64 + 1) && int("seq") == Some(position.seq);
        if !is_alone && !fits {
            return Err(Error::broken("the parts of a commit do not belong together"));
        }
        for change in needed::<Vec<Value>>(&mut part, "changes")? {
            changes.push(read_change(change)?);
        }
        head.get_or_insert(part);
    }
    let mut head = head.unwrap_or_default();
    Ok(Commit {
        seq: position.seq,
        at: needed(&mut head, "at")?,
        by: optional(&mut head, "by")?,
        reason: optional(&mut head, "reason")?,
        changes,
        position,
    })
}

/// Wait, or until a flag is set. Return false in the second case.
pub(crate) async fn sleep_or(time: Duration, stop: &Flag) -> bool {
    stop.or(tokio::time::sleep(time)).await.is_some()
}
