//! Watches, which follow the changes of a table.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::answers::{needed, optional};
use crate::client::Database;
use crate::errors::{Error, Failure, Refusal, Result};
use crate::feeds::{Action, Commit, Feed, is_whole, open_feed, read_commit};
use crate::frames::{Body, Fields};
use crate::seen::Position;
use crate::tables::Code;
use crate::values::{Value, check_name};
use crate::waits::{Backoff, BoxFuture, Steps, lock};

const COPY_AGAIN: &str = "read the table again, and watch it from the position of that answer";

/// Return advice about what ends a watch.
fn advice(code: &Code) -> Option<String> {
    match code {
        Code::LogPruned | Code::Diverged => Some(COPY_AGAIN.to_owned()),
        Code::Unknown => Some(format!("its name stands for another table now: {COPY_AGAIN}")),
        Code::NotAllowed => Some("once READ is granted again, go on from the position".to_owned()),
        Code::SessionEnded => Some("with a client of another token, go on from the position".to_owned()),
        _ => None,
    }
}

fn advised(mut refusal: Refusal, is_known: bool) -> Refusal {
    let is_sure = is_known
        || matches!(refusal.code, Code::LogPruned | Code::Diverged)
        || refusal.detail.contains_key("created");
    if let Some(advice) = advice(&refusal.code).filter(|_| is_sure) {
        let said = refusal.message.trim_end_matches(": copy anew").trim_end_matches(": sign in again");
        refusal.message = format!("{said}: {advice}");
    }
    refusal
}

/// Event of a watch.
pub(crate) enum Event {
    Commit(Commit),
    /// Nothing has changed up to a position.
    Moved(Position),
}

/// The feed of a watch, opened again wherever it ended.
pub(crate) struct Following {
    db: Database,
    table: String,
    condition: Option<String>,
    actions: Option<Vec<Action>>,
    before: bool,
    feed: Option<Feed>,
    opened: Fields,
    parts: Vec<Fields>,
    pause: Backoff,
    /// True if the feed has sent something since it began.
    has_heard: bool,
    /// True if a node that is away is waited for: once the feed has begun.
    pub(crate) is_patient: bool,
    pub(crate) at: Option<Position>,
    /// Position of the commit that the caller has got, which is handled when it asks for the next.
    shared: Arc<Mutex<Option<Position>>>,
    is_over: bool,
}

impl Following {
    pub(crate) fn new(db: Database, table: &str) -> Self {
        Self {
            db,
            table: table.to_owned(),
            condition: None,
            actions: None,
            before: false,
            feed: None,
            opened: Fields::default(),
            parts: Vec::new(),
            pause: Backoff::of_requests(),
            has_heard: true,
            is_patient: false,
            at: None,
            shared: Arc::default(),
            is_over: false,
        }
    }

    pub(crate) fn begin_at(&mut self, position: Position) {
        *lock(&self.shared) = Some(position.clone());
        self.at = Some(position);
    }

    pub(crate) fn set_condition(&mut self, condition: Option<String>) {
        self.condition = condition;
    }

    /// Return the next event. All before it are handled.
    pub(crate) async fn next(&mut self) -> Result<Event> {
        lock(&self.shared).clone_from(&self.at);
        loop {
            let found = match &self.feed {
                None => self.open().await.map(Some).map_err(Failure::Error),
                Some(feed) => match feed.next().await {
                    Ok(Some(body)) => self.take(body).map_err(Failure::Error),
                    Ok(None) => {
                        self.leave();
                        Ok(None)
                    }
                    Err(failure) => Err(failure),
                },
            };
            match found {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(Failure::NotSent) => self.leave(),
                Err(Failure::Error(error)) => self.on_error(error).await?,
            }
        }
    }

    /// Leave the feed. Parts of a commit that is not whole come again.
    fn leave(&mut self) {
        self.feed = None;
        self.parts.clear();
    }

    fn body(&self) -> Result<Body> {
        check_name(&self.table)?;
        let place = self.db.place()?;
        let at = self.at.as_ref();
        let mut body = Body::new().str("ns", &place.ns).str("db", &place.db).str("table", &self.table);
        body = body.str_if("where", self.condition.as_deref()).flag_if("before", self.before);
        if let Some(actions) = &self.actions {
            body = body.strings("actions", &actions.iter().map(|action| action.name()).collect::<Vec<_>>());
        }
        body =
            body.int_if("from", at.map(|at| at.seq)).str_if("store", at.and_then(|at| at.store.as_deref()));
        Ok(body.int_if("epoch", at.and_then(|at| at.epoch).filter(|epoch| *epoch > 0)))
    }

    async fn open(&mut self) -> Result<Event> {
        if !self.has_heard {
            self.pause.wait().await;
        }
        self.has_heard = false;
        let body = self.body()?;
        let from = self.at.as_ref().map_or(0, |at| at.seq);
        let (feed, mut opened) = open_feed(self.db.client(), &body, from).await?;
        self.feed = Some(feed);
        if opened.get("type").and_then(|kind| kind.as_str()) != Some("open") {
            return Err(Error::broken("a feed of the node does not say how it begins"));
        }
        let start = needed(&mut opened, "start")?;
        let start_epoch = optional(&mut opened, "start_epoch")?;
        self.opened = opened;
        if self.opened.get("store").and_then(Value::as_str).is_none() {
            return Err(Error::broken("the node sent no store at the beginning of a feed"));
        }
        seq_of(&self.opened)?;
        self.is_patient = true;
        self.move_to(self.place(start, start_epoch));
        Ok(Event::Moved(self.at.clone().unwrap_or_default()))
    }

    fn move_to(&mut self, position: Position) {
        *lock(&self.shared) = Some(position.clone());
        self.at = Some(position);
    }

    /// The feed is over, or did not begin. Fail with what cannot go on by itself.
    async fn on_error(&mut self, error: Error) -> Result<()> {
        let had_begun = self.feed.is_some();
        self.leave();
        let refusal = error.refusal();
        let ends_feed = |refusal: &Refusal| matches!(refusal.code, Code::TooSlow | Code::SessionEnded);
        if had_begun && refusal.is_some_and(ends_feed) {
            return Ok(());
        }
        let passes = refusal.is_some_and(|refusal| refusal.retry || refusal.is_behind());
        if !(self.is_patient || passes) || !error.is_outage() {
            return Err(match error {
                Error::Refused(refusal) => advised(*refusal, self.is_patient).into(),
                error => error,
            });
        }
        if !had_begun {
            self.has_heard = true;
            self.pause.wait().await;
        }
        Ok(())
    }

    fn take(&mut self, mut body: Fields) -> Result<Option<Event>> {
        let seq = seq_of(&body)?;
        let at = self.place(seq, optional(&mut body, "epoch")?);
        self.has_heard = true;
        self.pause.reset();
        if body.get("type").and_then(|kind| kind.as_str()) != Some("commit") {
            // `caught_up` or `beat`: the caller has asked for more, so everything before is handled.
            self.move_to(at.clone());
            return Ok(Some(Event::Moved(at)));
        }
        let is_last = is_whole(&body);
        self.parts.push(body);
        if !is_last {
            return Ok(None);
        }
        let commit = read_commit(std::mem::take(&mut self.parts), at.clone())?;
        self.at = Some(at);
        Ok(Some(Event::Commit(commit)))
    }

    /// Return the position at a sequence. A node before minor 9 sends no epochs.
    fn place(&self, seq: i64, epoch: Option<i64>) -> Position {
        let int = |name: &str| self.opened.get(name).and_then(|value| value.as_int());
        let store = self.opened.get("store").and_then(|store| store.as_str()).map(str::to_owned);
        if epoch.is_some() {
            return Position { seq, store, epoch };
        }
        let (newest, up_to) = (int("epoch"), int("seq").unwrap_or(0));
        let known = self.at.as_ref().and_then(|before| before.epoch);
        if known.is_some() && self.at.as_ref().is_some_and(|before| before.seq == seq) {
            return Position { seq, store, epoch: known };
        }
        let is_known = seq == up_to || (known.is_some() && known == newest && seq <= up_to);
        Position { seq, store, epoch: newest.filter(|_| is_known) }
    }
}

fn seq_of(body: &Fields) -> Result<i64> {
    let seq = body.get("seq").and_then(Value::as_int);
    seq.ok_or_else(|| Error::broken("the node sent a message of a feed without its seq"))
}

fn step(mut following: Following) -> BoxFuture<(Following, Option<Result<Commit>>)> {
    Box::pin(async move {
        if following.is_over {
            return (following, None);
        }
        loop {
            match following.next().await {
                Ok(Event::Commit(commit)) => return (following, Some(Ok(commit))),
                Ok(Event::Moved(_)) => {}
                Err(error) => {
                    following.is_over = true;
                    following.leave();
                    return (following, Some(Err(error)));
                }
            }
        }
    })
}

/// A stream of the commits that change a table. Options come before its first commit.
///
/// It resumes by itself after a broken connection, with a node that restarts or is busy, and after falling behind: it
/// skips no commit and repeats none. An error that ends it says what to do. Dropping it ends the feed.
#[must_use = "a stream sends nothing before it is polled"]
pub struct Watch {
    steps: Steps<Following, Result<Commit>>,
    shared: Arc<Mutex<Option<Position>>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("position", &self.position()).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(db: Database, table: &str) -> Self {
        let following = Following::new(db, table);
        let shared = Arc::clone(&following.shared);
        Self { steps: Steps::new(following, step), shared }
    }

    fn with(self, change: impl FnOnce(&mut Following)) -> Self {
        Self { steps: self.steps.with(change), shared: self.shared }
    }

    /// Begin behind a position: of an answer, or of another watch. The default is the newest commit.
    pub fn from(self, position: Position) -> Self {
        self.with(|following| following.begin_at(position))
    }

    /// Limit the watch to records that meet a condition. One that begins to meet it is a create, one that ceases to is
    /// a delete.
    pub fn condition(self, condition: impl Into<String>) -> Self {
        self.with(|following| following.condition = Some(condition.into()))
    }

    /// Limit the watch to some actions.
    pub fn actions(self, actions: impl Into<Vec<Action>>) -> Self {
        self.with(|following| following.actions = Some(actions.into()))
    }

    /// Add the record before the commit to each change.
    pub fn before(self) -> Self {
        self.with(|following| following.before = true)
    }

    /// Return the position to resume from; `None` if the watch has not begun.
    ///
    /// It moves past a commit when the next one is asked for: a reader that is killed while it handles a commit gets
    /// that commit again.
    pub fn position(&self) -> Option<Position> {
        lock(&self.shared).clone()
    }

    /// Return the next commit.
    pub async fn next(&mut self) -> Option<Result<Commit>> {
        std::future::poll_fn(|cx| self.steps.poll_next(cx)).await
    }
}

impl Stream for Watch {
    type Item = Result<Commit>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().steps.poll_next(cx)
    }
}
