//! Mirrors: copies of tables, kept in step.

use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use serde::de::DeserializeOwned;

use crate::attempts::Outages;
use crate::client::Database;
use crate::convert::from_value;
use crate::errors::{Error, Result};
use crate::feeds::{Change, Commit};
use crate::runs::Call;
use crate::seen::Position;
use crate::tables::Code;
use crate::values::{RecordId, Value, quote};
use crate::waits::{Flag, News, lock};
use crate::watches::{Event, Following};

/// A mirror was read in full.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// Sequence that the mirror shows.
    pub seq: i64,
    /// Number of its records.
    pub rows: usize,
    /// Cause of reading again; `None` of the first time.
    pub why: Option<Error>,
}

type OnCopy = Arc<dyn Fn(Copied) + Send + Sync>;

/// A mirror to make: await it. Options come before.
#[must_use = "a mirror is made when this is awaited"]
pub struct MirrorBuilder<T> {
    db: Database,
    table: String,
    condition: Option<String>,
    page: u32,
    on_copy: Option<OnCopy>,
    rows: std::marker::PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for MirrorBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorBuilder").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> MirrorBuilder<T> {
    pub(crate) fn new(db: Database, table: &str) -> Self {
        let rows = std::marker::PhantomData;
        Self { db, table: table.to_owned(), condition: None, page: 1000, on_copy: None, rows }
    }

    /// Limit the mirror to records that meet a condition.
    pub fn condition(mut self, condition: impl Into<String>) -> Self {
        self.condition = Some(condition.into());
        self
    }

    /// Set the number of rows in one request while the table is read. The default is 1000.
    pub fn page(mut self, rows: u32) -> Self {
        self.page = rows;
        self
    }

    /// Call a function each time the table was read in full.
    pub fn on_copy(mut self, report: impl Fn(Copied) + Send + Sync + 'static) -> Self {
        self.on_copy = Some(Arc::new(report));
        self
    }

    async fn open(self) -> Result<Mirror<T>> {
        let Self { db, table, condition, page, on_copy, .. } = self;
        let state = State { rows: BTreeMap::new(), position: Position::default(), failure: None };
        let news = News::default();
        let kept = Kept {
            db,
            table,
            condition,
            page,
            on_copy,
            state: Mutex::new(state),
            news,
            stopping: Flag::default(),
        };
        let kept = Arc::new(kept);
        kept.copy(None).await?;
        let closing = Arc::clone(&kept.db.client().nodes().closing);
        let keeping = Arc::clone(&kept);
        tokio::spawn(async move {
            let stop = async {
                tokio::select! {
                    () = keeping.stopping.wait() => {}
                    () = closing.wait() => {}
                }
            };
            let failure = tokio::select! {
                biased;
                () = stop => Error::Closed,
                error = keeping.keep() => error,
            };
            lock(&keeping.state).failure = Some(failure);
            keeping.news.announce();
        });
        Ok(Mirror { followed: Arc::new(Followed { kept }) })
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> IntoFuture for MirrorBuilder<T> {
    type Output = Result<Mirror<T>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

struct State<T> {
    rows: BTreeMap<RecordId, Arc<T>>,
    position: Position,
    failure: Option<Error>,
}

struct Kept<T> {
    db: Database,
    table: String,
    condition: Option<String>,
    page: u32,
    on_copy: Option<OnCopy>,
    state: Mutex<State<T>>,
    news: News,
    stopping: Flag,
}

impl<T: DeserializeOwned> Kept<T> {
    /// Keep in step. Return the error that ends it.
    async fn keep(&self) -> Error {
        loop {
            let error = match self.follow().await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            if !matches!(error.code(), Some(Code::LogPruned | Code::Diverged | Code::Unknown)) {
                return error;
            }
            if let Err(error) = self.copy(Some(error)).await {
                return error;
            }
        }
    }

    async fn follow(&self) -> Result<std::convert::Infallible> {
        let mut following = Following::new(self.db.clone(), &self.table);
        following.set_condition(self.condition.clone());
        following.begin_at(lock(&self.state).position.clone());
        following.is_patient = true; // the table was read a moment ago: a node that is away comes back
        loop {
            match following.next().await? {
                Event::Commit(Commit { changes, position, .. }) => self.apply(changes, position)?,
                Event::Moved(position) => self.apply(Vec::new(), position)?,
            }
        }
    }

    /// Read all of it. If it was read before, a node that is away is waited for.
    async fn copy(&self, why: Option<Error>) -> Result<()> {
        let mut outages = Outages::new();
        loop {
            let Err(error) = self.read().await else { break };
            let has_lost_moment = error.refusal().is_some_and(|refusal| {
                refusal.code == Code::Unknown && refusal.detail.contains_key("moment")
            });
            if has_lost_moment {
                outages.wait(Error::unknown("the moment is gone", None), None).await?;
            } else if why.is_some() {
                outages.wait(error, None).await?;
            } else {
                return Err(error);
            }
        }
        if let Some(on_copy) = &self.on_copy {
            let (seq, rows) = {
                let state = lock(&self.state);
                (state.position.seq, state.rows.len())
            };
            on_copy(Copied { seq, rows, why });
        }
        Ok(())
    }

    async fn read(&self) -> Result<()> {
        let filter =
            self.condition.as_ref().map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        let select = format!("SELECT * FROM {}{filter}", quote(&self.table)?);
        let moment = self.db.moment().await?;
        let mut rows = BTreeMap::new();
        let mut reading = moment.rows::<Value>(select).page(self.page);
        while let Some(row) = reading.next().await {
            let row = row?;
            let Some(Value::Record(id)) = row.get("id").cloned() else {
                return Err(Error::broken(format!("the node sent a row of {} without its id", self.table)));
            };
            rows.insert(id, Arc::new(from_value(row)?));
        }
        let position = moment.position().clone();
        {
            let mut state = lock(&self.state);
            state.rows = rows;
            state.position = position;
        }
        self.news.announce();
        // It ends by itself where the node cannot be told.
        drop(moment.close().await);
        Ok(())
    }

    fn apply(&self, changes: Vec<Change>, position: Position) -> Result<()> {
        let mut decoded = Vec::with_capacity(changes.len());
        for Change { id, value, .. } in changes {
            decoded.push((id, value.map(from_value::<T>).transpose()?));
        }
        let mut state = lock(&self.state);
        for (id, value) in decoded {
            match value {
                Some(value) => drop(state.rows.insert(id, Arc::new(value))),
                None => drop(state.rows.remove(&id)),
            }
        }
        state.position = position;
        drop(state);
        self.news.announce();
        Ok(())
    }
}

/// Stops following the table when the last handle is dropped.
struct Followed<T> {
    kept: Arc<Kept<T>>,
}

impl<T> Drop for Followed<T> {
    fn drop(&mut self) {
        self.kept.stopping.set();
    }
}

/// A copy of a table, kept in step with it until it is dropped. Clones are handles on the same copy.
///
/// It is read in full at one moment of the store and followed from there. Where the log no longer holds what follows,
/// the table is read again; until that is done, and while the node is away, the mirror shows its last state. It
/// changes by whole commits.
pub struct Mirror<T> {
    followed: Arc<Followed<T>>,
}

impl<T> Clone for Mirror<T> {
    fn clone(&self) -> Self {
        Self { followed: Arc::clone(&self.followed) }
    }
}

impl<T> fmt::Debug for Mirror<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("table", &self.kept().table)
            .field("seq", &self.seq())
            .finish_non_exhaustive()
    }
}

impl<T> Mirror<T> {
    fn kept(&self) -> &Kept<T> {
        &self.followed.kept
    }

    /// Return the sequence that the mirror shows. It advances with commits elsewhere too, every 15 seconds.
    pub fn seq(&self) -> i64 {
        lock(&self.kept().state).position.seq
    }

    /// Return the number of records.
    pub fn len(&self) -> usize {
        lock(&self.kept().state).rows.len()
    }

    /// Return true if there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the error that ended the mirror; `None` while it is kept in step.
    pub fn error(&self) -> Option<Error> {
        lock(&self.kept().state).failure.clone()
    }

    /// Return a record.
    pub fn get(&self, id: &RecordId) -> Option<Arc<T>> {
        lock(&self.kept().state).rows.get(id).cloned()
    }

    /// Return all records, by their ids. They are of one commit.
    pub fn rows(&self) -> Vec<Arc<T>> {
        lock(&self.kept().state).rows.values().cloned().collect()
    }

    /// Wait until the mirror shows another sequence than `since`.
    pub async fn changed(&self, since: i64) -> Result<()> {
        self.until(|seq| seq != since).await
    }

    /// Wait until the mirror shows a sequence, such as the `seq` of an answer.
    pub async fn reached(&self, seq: i64) -> Result<()> {
        self.until(|shown| shown >= seq).await
    }

    async fn until(&self, is_met: impl Fn(i64) -> bool) -> Result<()> {
        let check = || {
            let state = lock(&self.kept().state);
            match (is_met(state.position.seq), &state.failure) {
                (true, _) => Some(Ok(())),
                (false, Some(error)) => Some(Err(error.clone())),
                (false, None) => None,
            }
        };
        self.kept().news.until(check).await
    }

    /// Stop following the table. The records stay.
    pub async fn close(&self) {
        self.kept().stopping.set();
        self.kept().news.until(|| self.error().map(drop)).await;
    }
}
