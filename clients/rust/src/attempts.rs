//! Attempts of one request: again is asked only what did not happen, or does no harm twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;
use crate::errors::{Error, Failure, Refusal, Result};
use crate::nodes::{Node, Nodes};
use crate::tables::Code;
use crate::values::{Object, Value};
use crate::waits::{Backoff, Flag};

/// Connections that may end under one request before it is given up.
const BREAKS_MOST: u32 = 8;

/// Rules for the attempts of a request.
#[derive(Default)]
pub(crate) struct How {
    /// Sequence that the node has to show before.
    pub(crate) after: Option<i64>,
    /// Twice does no harm.
    pub(crate) repeatable: bool,
    /// Any node may be asked that shows all that this client has seen.
    pub(crate) spread: bool,
    /// Node to be asked while its connection stands.
    pub(crate) at: Option<Arc<Node>>,
    /// Ends the request: it is not asked again then.
    pub(crate) stop: Option<Arc<Flag>>,
}

impl How {
    /// Return the rules of a request that is sent once.
    pub(crate) fn once() -> &'static Self {
        static ONCE: How = How { after: None, repeatable: false, spread: false, at: None, stop: None };
        &ONCE
    }

    /// Return the rules of a request that does no harm twice.
    pub(crate) fn repeatable() -> &'static Self {
        static REPEATABLE: How = How { after: None, repeatable: true, spread: false, at: None, stop: None };
        &REPEATABLE
    }
}

/// One attempt: the node, its connection, and the session on it.
pub(crate) struct Attempt {
    pub(crate) node: Arc<Node>,
    pub(crate) conn: Arc<Connection>,
    session: u64,
}

impl Attempt {
    fn new((node, conn): (Arc<Node>, Arc<Connection>)) -> Self {
        let session = conn.session();
        Self { node, conn, session }
    }

    /// Return the first attempt of a request if it is at home, which is connected.
    pub(crate) fn at_home(nodes: &Nodes, how: &How) -> Option<Self> {
        if how.spread || how.at.is_some() {
            return None;
        }
        nodes.usable_home().map(Self::new)
    }
}

pub(crate) struct Attempts<'a> {
    nodes: &'a Arc<Nodes>,
    how: &'a How,
    /// True while any node may be asked.
    pub(crate) spread: bool,
    pause: Backoff,
    signed_in_again: bool,
    turned_away: Option<Instant>,
    breaks: u32,
    refused: Vec<Arc<Node>>,
    in_cluster: bool,
    searching_until: Option<Instant>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(nodes: &'a Arc<Nodes>, how: &'a How) -> Self {
        Self {
            nodes,
            spread: how.spread,
            how,
            pause: Backoff::of_requests(),
            signed_in_again: false,
            turned_away: None,
            breaks: 0,
            refused: Vec::new(),
            in_cluster: false,
            searching_until: None,
        }
    }

    /// Return the connection for the next attempt.
    pub(crate) async fn next(&mut self) -> Result<Attempt> {
        let made_at = self.how.at.as_ref().and_then(|node| Some((Arc::clone(node), node.usable()?)));
        Ok(Attempt::new(match made_at {
            Some(found) => found,
            None if self.spread => self.nodes.near().await?,
            None => self.nodes.find_home().await?,
        }))
    }

    /// Return if the request is to be asked again. Fail with the error that the caller gets otherwise.
    pub(crate) async fn on_failure(&mut self, failure: Failure, attempt: &Attempt) -> Result<()> {
        match failure {
            Failure::NotSent => self.on_not_sent(&attempt.node).await,
            Failure::Error(error) => match self.is_asked_again(&error, attempt).await? {
                true => Ok(()),
                false => Err(error),
            },
        }
    }

    async fn is_asked_again(&mut self, error: &Error, attempt: &Attempt) -> Result<bool> {
        let Attempt { node, conn, session } = attempt;
        let Some(refusal) = error.refusal() else {
            let may = error.is_outcome_unknown() && self.how.repeatable && !conn.is_usable();
            return Ok(may && self.is_asked_behind_break().await);
        };
        if refusal.committed() != 0 {
            return Ok(false);
        }
        let credential = &self.nodes.settings.credential;
        match refusal.code {
            Code::UnknownOutcome => Ok(self.how.repeatable && self.is_asked_elsewhere(refusal, node).await),
            Code::SessionEnded if credential.has_password() && !self.signed_in_again => {
                self.signed_in_again = true;
                conn.sign_in_again(credential, *session).await?;
                Ok(true)
            }
            Code::Draining if conn.is_leaving() => Ok(self.is_asked_behind_break().await),
            _ if self.spread && !self.nodes.is_home(node) => Ok(self.is_asked_at_home(refusal, node)),
            Code::Draining | Code::NotWritable => Ok(self.is_asked_elsewhere(refusal, node).await),
            _ => Ok(false),
        }
    }

    /// The connection had ended before anything was written. One such end says nothing.
    async fn on_not_sent(&mut self, node: &Node) -> Result<()> {
        let limit = self.nodes.connect_timeout;
        match self.turned_away {
            None => self.turned_away = Some(Instant::now()),
            Some(since) if since.elapsed() < limit => self.pause.wait().await,
            Some(_) => {
                let address = node.address();
                let message =
                    format!("{address} ended each connection for {limit:?} before anything was sent");
                return Err(Error::unreachable(message, node.cause()));
            }
        }
        Ok(())
    }

    async fn wait(&mut self) {
        match &self.how.stop {
            Some(stop) => self.pause.wait_or(stop).await,
            None => self.pause.wait().await,
        }
    }

    /// Ask at once after the first break. With every other it is likelier that the request causes it.
    async fn is_asked_behind_break(&mut self) -> bool {
        self.breaks += 1;
        if self.breaks > BREAKS_MOST {
            return false;
        }
        if self.breaks > 1 {
            self.wait().await;
        }
        true
    }

    /// A read that was refused elsewhere is home's to answer, unless it would end there likewise.
    fn is_asked_at_home(&mut self, refusal: &Refusal, node: &Node) -> bool {
        if refusal.is_behind() || refusal.retry {
            node.rest();
        }
        let ends_there = match refusal.code {
            Code::Cancelled | Code::AnswerTooLarge => true,
            Code::StatementTimeout => !refusal.is_behind(),
            _ => false,
        };
        self.spread &= ends_there;
        !ends_there
    }

    /// Look for the node that takes changes. A cluster may have none for a moment.
    async fn is_asked_elsewhere(&mut self, refusal: &Refusal, node: &Arc<Node>) -> bool {
        let is_stopped = self.how.stop.as_ref().is_some_and(|stop| stop.is_set());
        if is_stopped || !self.nodes.are_several() {
            return false;
        }
        let until = *self.searching_until.get_or_insert_with(|| Instant::now() + self.nodes.connect_timeout);
        self.in_cluster |= refusal.detail.contains_key("leader");
        self.nodes.on_refused_by(node, &leader_of(&refusal.detail));
        if !self.refused.iter().any(|one| Arc::ptr_eq(one, node)) {
            self.refused.push(Arc::clone(node));
            return true;
        }
        if !self.in_cluster || Instant::now() >= until {
            return false;
        }
        self.refused.clear();
        self.wait().await;
        true
    }
}

fn leader_of(detail: &Object) -> Vec<String> {
    let endpoints = detail.get("leader").and_then(Value::as_array).unwrap_or_default();
    endpoints.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Repeats a call through outages, with pauses.
pub(crate) struct Outages {
    pause: Backoff,
    /// True once an attempt broke off, which may have been executed.
    pub(crate) unsure: bool,
}

impl Outages {
    pub(crate) fn new() -> Self {
        Self { pause: Backoff::of_requests(), unsure: false }
    }

    pub(crate) fn reset(&mut self) {
        self.pause.reset();
    }

    /// Wait before the next attempt. Any error but an outage is returned, and so is one behind `stop`.
    pub(crate) async fn wait(&mut self, error: Error, stop: Option<&Flag>) -> Result<()> {
        let is_stopped = || stop.is_some_and(Flag::is_set);
        if is_stopped() || !error.is_outage() {
            return Err(error);
        }
        self.unsure |= error.is_outcome_unknown();
        match stop {
            Some(stop) => self.pause.wait_or(stop).await,
            None => self.pause.wait().await,
        }
        Ok(())
    }
}

/// Time past a caller's own limit.
pub(crate) fn with_grace(limit: Option<Duration>) -> Option<Duration> {
    limit.map(|limit| limit + crate::exchange::GRACE)
}
