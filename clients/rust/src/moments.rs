//! Moments: snapshots of the store to read in.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::client::{Database, check_positive};
use crate::errors::{Error, Result};
use crate::pages::Rows;
use crate::runs::{Call, Query, Run, Runner};
use crate::seen::Position;
use crate::tables::Code;
use crate::values::SignedDuration;

/// A moment to take: await it. Options come before.
#[must_use = "a moment is taken when it is awaited"]
#[derive(Debug)]
pub struct MomentBuilder {
    db: Database,
    keep: Duration,
}

impl MomentBuilder {
    pub(crate) fn new(db: Database) -> Self {
        Self { db, keep: Duration::from_secs(60) }
    }

    /// Set the time for which the node keeps the moment after each read, at most 10 minutes. The default is 1 minute.
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    async fn take(self) -> Result<Moment> {
        check_positive("keep", self.keep)?;
        let keep = SignedDuration::from(self.keep);
        let mut runner = Runner::of_database(&self.db);
        runner.moment = Some(("new".to_owned(), keep));
        let answer = Run::new(runner.clone(), String::new()).answer().await?;
        let Some(name) = &answer.moment else { return Err(Error::broken("the node names no moment")) };
        runner.moment = Some((name.clone(), keep));
        Ok(Moment { position: answer.position(), runner })
    }
}

impl IntoFuture for MomentBuilder {
    type Output = Result<Moment>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take())
    }
}

/// A snapshot of the store to read in.
///
/// Reads are refused with [`Code::Unknown`] once the node has restarted, a user or grant has changed, or nothing
/// has read for as long as the moment is kept. A moment that is dropped ends by itself after that time.
#[derive(Clone)]
pub struct Moment {
    runner: Runner,
    position: Position,
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moment").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Moment {
    /// Return the position of the moment, to follow a table from.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Run a script that reads in the moment.
    pub fn run(&self, script: impl Into<String>) -> Run {
        Run::new(self.runner.clone(), script.into())
    }

    /// Run a script that reads in the moment, and decode the value of its last statement.
    pub fn query<T: DeserializeOwned>(&self, script: impl Into<String>) -> Query<T> {
        Query::new(self.run(script))
    }

    /// Return a stream of the rows of a SELECT in the moment; see [`Database::rows`].
    pub fn rows<T: DeserializeOwned>(&self, select: impl Into<String>) -> Rows<T> {
        Rows::new(self.runner.clone(), select.into())
    }

    /// End the moment.
    pub async fn close(self) -> Result<()> {
        let mut runner = self.runner;
        if let Some((_, keep)) = &mut runner.moment {
            *keep = SignedDuration::default();
        }
        match Run::new(runner, String::new()).answer().await {
            Err(error) if !error.is(Code::Unknown) => Err(error),
            _ => Ok(()),
        }
    }
}
