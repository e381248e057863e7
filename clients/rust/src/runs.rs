//! Scripts and their options.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answers::Answer;
use crate::attempts::{How, with_grace};
use crate::client::{Client, Database, Place, check_positive};
use crate::connection::{MINOR_OF_AFTER, MINOR_OF_SEQUENCES};
use crate::errors::Result;
use crate::exchange::{Reply, Request};
use crate::frames::{Body, Kind, Params};
use crate::seen::seems_to_read;
use crate::values::{SignedDuration, Value};

/// A future of a call.
pub type Call<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Place of a script: a client, a database or a moment.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) client: Client,
    pub(crate) place: Option<Arc<Place>>,
    pub(crate) moment: Option<(String, SignedDuration)>,
}

impl Runner {
    pub(crate) fn of_client(client: &Client) -> Self {
        Self { client: client.clone(), place: None, moment: None }
    }

    pub(crate) fn of_database(db: &Database) -> Self {
        Self { client: db.client().clone(), place: Some(db.place_shared()), moment: None }
    }
}

/// A script to run: await it. Options come before.
#[must_use = "a script runs when it is awaited"]
pub struct Run {
    pub(crate) runner: Runner,
    pub(crate) script: String,
    pub(crate) params: Params,
    timeout: Option<Duration>,
    reason: Option<String>,
    repeatable: bool,
    record: bool,
    current: bool,
    after: Option<i64>,
    /// Time that the script waits for future data, beyond its timeout.
    pub(crate) wait: Option<Duration>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("script", &self.script).finish_non_exhaustive()
    }
}

impl Run {
    pub(crate) fn new(runner: Runner, script: String) -> Self {
        let repeatable = runner.moment.is_some();
        Self {
            runner,
            script,
            params: Params::default(),
            timeout: None,
            reason: None,
            repeatable,
            record: false,
            current: false,
            after: None,
            wait: None,
        }
    }

    /// Bind a value to `$name` in the script. It is never part of the text.
    pub fn bind(mut self, name: &str, value: impl Serialize) -> Self {
        self.params.bind(name, &value);
        self
    }

    /// Bind each field of a struct or a map to its name.
    pub fn bind_all(mut self, fields: impl Serialize) -> Self {
        self.params.bind_all(&fields);
        self
    }

    /// Limit the script at the node, in the place of the client's limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Keep a reason with the statements in the statement log.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Declare that running the script twice does no harm: it is sent again after a broken connection.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Keep the script in the statement log even if it only reads.
    pub fn record(mut self) -> Self {
        self.record = true;
        self
    }

    /// See every commit of any node made before: a linearizable read.
    pub fn current(mut self) -> Self {
        self.current = true;
        self
    }

    /// Have the node show a sequence before it runs the script, such as the `seq` of another client's answer.
    pub fn after(mut self, seq: i64) -> Self {
        self.after = Some(seq).filter(|seq| *seq > 0);
        self
    }

    /// Return the same script with the same options.
    pub(crate) fn again(&self) -> Self {
        Self {
            runner: self.runner.clone(),
            script: self.script.clone(),
            params: self.params.clone(),
            reason: self.reason.clone(),
            ..*self
        }
    }

    pub(crate) async fn answer(self) -> Result<Answer> {
        let Runner { client, place, moment } = &self.runner;
        let timeout = self.timeout.or(client.timeout());
        if let Some(timeout) = timeout {
            check_positive("timeout", timeout)?;
        }
        let timeout = timeout.map(|timeout| timeout + self.wait.unwrap_or_default());
        let mut body = Body::new().str("script", &self.script);
        if let Some(place) = place {
            if let Some(error) = &place.error {
                return Err(error.clone());
            }
            body = body.str("ns", &place.ns).str("db", &place.db);
        }
        body = body.params(self.params.get()?)?;
        body = body
            .duration_if("timeout", timeout.map(SignedDuration::from))
            .str_if("reason", self.reason.as_deref());
        if let Some((name, keep)) = moment {
            body = body.str("moment", name).duration_if("keep", Some(*keep));
        }
        body = body.flag_if("record", self.record).flag_if("current", self.current);
        let is_read = seems_to_read(&self.script);
        let is_plain = moment.is_none() && self.reason.is_none() && !self.record && !self.current;
        let how = How {
            repeatable: self.repeatable,
            spread: is_read && is_plain && client.reads_anywhere(),
            at: moment.as_ref().and_then(|(name, _)| client.maker_of(name)),
            after: self.after,
            stop: None,
        };
        let needs = match (self.current, self.after) {
            (true, _) => Some((MINOR_OF_SEQUENCES, "linearizable reads")),
            (false, Some(_)) => Some((MINOR_OF_AFTER, "requests that come after a sequence")),
            (false, None) => None,
        };
        let request = Request {
            waits: self.wait.is_some(),
            timeout: with_grace(timeout),
            needs,
            ..Request::new(Kind::Run, body)
        };
        let mut unsure = client.unsure();
        let found = client.ask(&request, &how).await.and_then(Reply::answer);
        unsure.settle(found.as_ref().err());
        found
    }

    pub(crate) async fn value(self) -> Result<Value> {
        Ok(self.answer().await?.into_value())
    }
}

impl IntoFuture for Run {
    type Output = Result<Answer>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.answer())
    }
}

/// A script to run, the value of whose last statement is decoded: await it. Options come before.
#[must_use = "a script runs when it is awaited"]
pub struct Query<T> {
    run: Run,
    value: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Query<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("script", &self.run.script).finish_non_exhaustive()
    }
}

impl<T> Query<T> {
    pub(crate) fn new(run: Run) -> Self {
        Self { run, value: PhantomData }
    }

    fn with(self, change: impl FnOnce(Run) -> Run) -> Self {
        Self::new(change(self.run))
    }

    /// Bind a value to `$name` in the script. It is never part of the text.
    pub fn bind(self, name: &str, value: impl Serialize) -> Self {
        self.with(|run| run.bind(name, value))
    }

    /// Bind each field of a struct or a map to its name.
    pub fn bind_all(self, fields: impl Serialize) -> Self {
        self.with(|run| run.bind_all(fields))
    }

    /// Limit the script at the node, in the place of the client's limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|run| run.timeout(timeout))
    }

    /// Keep a reason with the statements in the statement log.
    pub fn reason(self, reason: impl Into<String>) -> Self {
        self.with(|run| run.reason(reason))
    }

    /// Declare that running the script twice does no harm: it is sent again after a broken connection.
    pub fn repeatable(self) -> Self {
        self.with(Run::repeatable)
    }

    /// Keep the script in the statement log even if it only reads.
    pub fn record(self) -> Self {
        self.with(Run::record)
    }

    /// See every commit of any node made before: a linearizable read.
    pub fn current(self) -> Self {
        self.with(Run::current)
    }

    /// Have the node show a sequence before it runs the script.
    pub fn after(self, seq: i64) -> Self {
        self.with(|run| run.after(seq))
    }
}

impl<T: DeserializeOwned + 'static> IntoFuture for Query<T> {
    type Output = Result<T>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.run.answer().await?.value() })
    }
}
