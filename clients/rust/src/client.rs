//! The client and its databases.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answers::{Answer, Welcome};
use crate::attempts::{Attempt, Attempts, How};
use crate::backups::Backup;
use crate::cache::Cache;
use crate::connection::{Credential, MINOR_OF_AFTER, MINOR_OF_SEQUENCES, Settings};
use crate::errors::{Error, Failure, Result};
use crate::exchange::{Pulse, Reply, Request};
use crate::frames::{Fields, Kind};
use crate::mirrors::MirrorBuilder;
use crate::moments::MomentBuilder;
use crate::nodes::{ConnectionEvent, Node, Nodes, OnConnection};
use crate::pages::Rows;
use crate::runs::{Query, Run, Runner};
use crate::seen::{Mark, Seen};
use crate::tls::Tls;
use crate::topics::Topic;
use crate::transactions::Transaction;
use crate::values::{Value, check_name};
use crate::vaults::{Seal, Vault};
use crate::waits::lock;
use crate::watches::Watch;

/// Moments whose makers a client remembers.
const MAKERS_MOST: usize = 1024;

/// Nodes that scripts which only read, and feeds, go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reads {
    /// The leader.
    #[default]
    Leader,
    /// All nodes in turn. A caller never reads less than it has seen or done.
    Any,
}

/// End of a traced call.
pub(crate) type OnDone = Box<dyn FnOnce(Result<(), &Error>) + Send>;
/// Start of a traced call.
pub(crate) type OnCall = Arc<dyn Fn(&str) -> OnDone + Send + Sync>;

/// Options of a [`Client`].
#[must_use = "a client is made by build"]
pub struct ClientBuilder {
    addresses: Vec<String>,
    credential: Credential,
    has_both: bool,
    tls: Option<Tls>,
    timeout: Option<Duration>,
    connect_timeout: Duration,
    reads: Reads,
    on_connection: Option<OnConnection>,
    on_call: Option<OnCall>,
    pulse: Pulse,
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Add the address of another node of the same store.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Sign in with user and password.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.has_both |= matches!(self.credential, Credential::Token(_));
        self.credential = Credential::Password { user: user.into(), password: password.into() };
        self
    }

    /// Sign in with a token of `POST /session`. It is valid at one node.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.has_both |= self.credential.has_password();
        self.credential = Credential::Token(token.into());
        self
    }

    /// Secure the connections.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Limit each script and operation at the node. The default is no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Limit the search for a connection, all attempts together. The default is 10 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Choose the nodes to read from.
    pub fn reads(mut self, reads: Reads) -> Self {
        self.reads = reads;
        self
    }

    /// Call a function whenever a connection was made or lost. It must not block.
    pub fn on_connection(mut self, report: impl Fn(ConnectionEvent) + Send + Sync + 'static) -> Self {
        self.on_connection = Some(Arc::new(report));
        self
    }

    /// Call a function at the start of each call with its name, such as `KV get`. The function that it returns is
    /// called at the end of the call, and dropped with a call that is dropped.
    pub fn on_call<F, D>(mut self, start: F) -> Self
    where
        F: Fn(&str) -> D + Send + Sync + 'static,
        D: FnOnce(Result<(), &Error>) + Send + 'static,
    {
        self.on_call = Some(Arc::new(move |name| Box::new(start(name))));
        self
    }

    /// Set the times of a connection that may have been lost, for tests: without a byte, for an answer to PING, behind
    /// BYE, and for what is to come soon.
    #[doc(hidden)]
    pub fn times(mut self, [quiet, answer, leaving, grace]: [Duration; 4]) -> Self {
        self.pulse = Pulse { quiet, answer, leaving, grace };
        self
    }

    #[cfg(test)]
    pub(crate) fn pulse(mut self, pulse: Pulse) -> Self {
        self.pulse = pulse;
        self
    }

    /// Return the client. It connects with its first call.
    pub fn build(self) -> Result<Client> {
        if self.has_both {
            return Err(Error::argument("sign in with user and password, or with a token, not with both"));
        }
        check_positive("connect_timeout", self.connect_timeout)?;
        if let Some(timeout) = self.timeout {
            check_positive("timeout", timeout)?;
        }
        let tls = self.tls.map(|tls| tls.connector()).transpose()?;
        let settings = Settings { credential: self.credential, tls, pulse: self.pulse };
        let nodes = Nodes::new(&self.addresses, settings, self.connect_timeout, self.on_connection)?;
        let inner = Inner {
            nodes,
            seen: Arc::default(),
            timeout: self.timeout,
            reads: self.reads,
            on_call: self.on_call,
            makers: Mutex::default(),
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

pub(crate) fn check_positive(name: &str, time: Duration) -> Result<()> {
    match time.as_micros() {
        0 => Err(Error::argument(format!("{name}: a time is longer than nothing, not {time:?}"))),
        _ => Ok(()),
    }
}

struct Inner {
    nodes: Arc<Nodes>,
    seen: Arc<Mutex<Seen>>,
    timeout: Option<Duration>,
    reads: Reads,
    on_call: Option<OnCall>,
    /// Nodes that have made moments: others know nothing of them.
    makers: Mutex<VecDeque<(String, Arc<Node>)>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.nodes.abandon();
    }
}

/// A handle on a store: one for a whole program.
///
/// All calls share one connection to each node. The client connects with the first call and reconnects by
/// itself. Clones are handles on the same connections. Dropping a call's future cancels the call.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.inner.nodes.given).finish()
    }
}

impl Client {
    /// Return the options of a client of the node at an address, or of the nodes of one store at addresses with
    /// commas between.
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            addresses: vec![address.into()],
            credential: Credential::Nobody,
            has_both: false,
            tls: None,
            timeout: None,
            connect_timeout: Duration::from_secs(10),
            reads: Reads::Leader,
            on_connection: None,
            on_call: None,
            pulse: Pulse::default(),
        }
    }

    /// Connect if the client is not connected yet, and return the node's welcome.
    pub async fn connect(&self) -> Result<Welcome> {
        let (_, conn) = self.inner.nodes.find_home().await?;
        Ok(conn.welcome.clone())
    }

    /// Send a round trip to the node.
    pub async fn ping(&self) -> Result<()> {
        let mut request = Request::bare(Kind::Ping);
        request.timeout = Some(self.inner.nodes.connect_timeout);
        self.ask(&request, How::repeatable()).await?;
        Ok(())
    }

    /// Return a handle on a database. It sends nothing; an invalid name is the error of the first call.
    pub fn database(&self, ns: &str, db: &str) -> Database {
        let error = check_name(ns).and_then(|()| check_name(db)).err().map(Error::from);
        let place = Place { ns: ns.to_owned(), db: db.to_owned(), error };
        Database { client: self.clone(), place: Arc::new(place) }
    }

    /// Return the seal of the vaults without a passphrase of their own.
    pub fn store_seal(&self) -> Seal {
        Seal::new(self.clone(), None)
    }

    /// Return a backup, which writes a snapshot of the store to a file or a stream.
    pub fn backup(&self) -> Backup {
        Backup::new(self.clone())
    }

    /// Run a script. One `BEGIN … COMMIT` is a transaction.
    pub fn run(&self, script: impl Into<String>) -> Run {
        Run::new(Runner::of_client(self), script.into())
    }

    /// Run a script and decode the value of its last statement.
    pub fn query<T: DeserializeOwned>(&self, script: impl Into<String>) -> Query<T> {
        Query::new(self.run(script))
    }

    /// Wait for the calls in flight, backups included, and close the connections.
    ///
    /// Calls that only wait for messages or changes end with [`Error::Closed`], and so does every later call.
    pub async fn close(&self) {
        self.inner.nodes.close().await;
    }

    /// End all connections without waiting for anything, for tests.
    #[doc(hidden)]
    pub fn abort(&self) {
        self.inner.nodes.abort();
    }

    // --- requests ------------------------------------------------------------------------------------

    pub(crate) fn nodes(&self) -> &Arc<Nodes> {
        &self.inner.nodes
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.inner.timeout
    }

    pub(crate) fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        lock(&self.inner.seen)
    }

    pub(crate) fn seen_shared(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.inner.seen)
    }

    /// Return true if a read may go to any node.
    pub(crate) fn reads_anywhere(&self) -> bool {
        self.inner.reads == Reads::Any && self.inner.nodes.are_several() && self.seen().is_whole()
    }

    /// Return the node that has made a moment.
    pub(crate) fn maker_of(&self, moment: &str) -> Option<Arc<Node>> {
        let makers = lock(&self.inner.makers);
        makers.iter().find(|(name, _)| name == moment).map(|(_, node)| Arc::clone(node))
    }

    fn remember_maker(&self, moment: &str, node: &Arc<Node>) {
        let mut makers = lock(&self.inner.makers);
        makers.retain(|(name, _)| name != moment);
        if makers.len() >= MAKERS_MOST {
            makers.pop_front();
        }
        makers.push_back((moment.to_owned(), Arc::clone(node)));
    }

    /// Ask for something, with as many attempts as it takes.
    ///
    /// The future of a call is small, so that calls in flight are: it borrows the request, and what is rare is boxed.
    pub(crate) async fn ask(&self, request: &Request, how: &How) -> Result<Reply> {
        let on_done = self.inner.on_call.as_ref().map(|on_call| match request.op {
            "" => on_call(request.kind.name()),
            op => on_call(&format!("{} {op}", request.kind.name())),
        });
        let mut outcome = match Attempt::at_home(&self.inner.nodes, how) {
            None => Box::pin(self.attempt_all(request, how, None)).await,
            Some(first) => match self.attempt(request, how, &first, false).await {
                Ok(reply) => Ok(reply),
                Err(failure) => Box::pin(self.attempt_all(request, how, Some((first, failure)))).await,
            },
        };
        if let Err(Error::Refused(refusal)) = &outcome {
            if request.waits && refusal.code == crate::Code::Cancelled && self.inner.nodes.is_closed() {
                outcome = Err(Error::Closed);
            }
        }
        if let Some(on_done) = on_done {
            on_done(outcome.as_ref().map(|_| ()));
        }
        outcome
    }

    /// Make attempts until one succeeds, or another would not help.
    async fn attempt_all(
        &self,
        request: &Request,
        how: &How,
        mut failed: Option<(Attempt, Failure)>,
    ) -> Result<Reply> {
        let mut tries = Attempts::new(&self.inner.nodes, how);
        loop {
            if let Some((attempt, failure)) = failed {
                tries.on_failure(failure, &attempt).await?;
            }
            let attempt = tries.next().await?;
            match self.attempt(request, how, &attempt, tries.spread).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failed = Some((attempt, failure)),
            }
        }
    }

    /// Make one attempt, at any node if `spread`.
    async fn attempt(
        &self,
        request: &Request,
        how: &How,
        attempt: &Attempt,
        spread: bool,
    ) -> Result<Reply, Failure> {
        let conn = &attempt.conn;
        let mut after = how.after;
        if spread && conn.welcome.minor >= MINOR_OF_AFTER {
            after = Some(self.seen().after().max(after.unwrap_or(0))).filter(|after| *after > 0);
        }
        let mark = (request.kind == Kind::Run).then(|| self.seen().mark());
        let reply = conn.ask(request, after, how.stop.as_deref()).await?;
        if let (Reply::Answer(answer), Some(mark)) = (&reply, mark) {
            self.on_answer(answer, attempt, mark)?;
        }
        Ok(reply)
    }

    /// Keep the position of an answer.
    fn on_answer(&self, answer: &Answer, attempt: &Attempt, mark: Mark) -> Result<()> {
        let Attempt { node, .. } = attempt;
        let nodes = &self.inner.nodes;
        if let Some(moment) = answer.moment.as_deref().filter(|_| nodes.are_several()) {
            self.remember_maker(moment, node);
        }
        let is_home = nodes.is_home(node);
        let is_leader = is_home && node.may_take_changes();
        let mut seen = self.seen();
        if !is_home && seen.is_foreign(answer.store.as_deref()) {
            node.shun();
            let store = answer.store.as_deref().unwrap_or_default();
            let address = node.address();
            return Err(Error::broken(format!(
                "{address} is a node of another store, {store}: it is not read any more"
            )));
        }
        seen.on_answer(answer.position(), is_leader.then_some(mark));
        Ok(())
    }

    /// Ask for an operation that may change something.
    pub(crate) async fn change(&self, request: &Request, how: &How) -> Result<Fields> {
        let is_vault = request.kind == Kind::Vault;
        let mut unsure = self.unsure();
        let found = self.ask(request, how).await.and_then(Reply::fields);
        unsure.settle(found.as_ref().err());
        let found = found?;
        if let Some(seq) = found.get("seq").and_then(Value::as_int) {
            self.seen().reach(seq, None);
        } else if is_vault || !self.tells_sequences() {
            self.seen().miss();
        }
        Ok(found)
    }

    fn tells_sequences(&self) -> bool {
        let conn = self.inner.nodes.home().and_then(|home| home.usable());
        conn.is_some_and(|conn| conn.welcome.minor >= MINOR_OF_SEQUENCES)
    }

    /// Return a guard of a call that may change something. Dropped unsettled, it records a change that the
    /// client does not know the sequence of.
    pub(crate) fn unsure(&self) -> Unsure<'_> {
        Unsure { client: self, is_settled: false }
    }
}

pub(crate) struct Unsure<'a> {
    client: &'a Client,
    is_settled: bool,
}

impl Unsure<'_> {
    pub(crate) fn settle(&mut self, error: Option<&Error>) {
        self.is_settled = true;
        let committed = error.and_then(Error::refusal).map_or(0, crate::Refusal::committed);
        if committed != 0 {
            self.client.seen().reach(committed, None);
        } else if error.is_some_and(Error::is_outcome_unknown) {
            self.client.seen().miss();
        }
    }
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.client.seen().miss();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) ns: String,
    pub(crate) db: String,
    pub(crate) error: Option<Error>,
}

/// A handle on one database of a client.
#[derive(Clone)]
pub struct Database {
    client: Client,
    place: Arc<Place>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("ns", &self.place.ns)
            .field("db", &self.place.db)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Return the client of the handle.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn place(&self) -> Result<&Place> {
        match &self.place.error {
            Some(error) => Err(error.clone()),
            None => Ok(&self.place),
        }
    }

    pub(crate) fn place_shared(&self) -> Arc<Place> {
        Arc::clone(&self.place)
    }

    /// Run a script. One `BEGIN … COMMIT` is a transaction.
    pub fn run(&self, script: impl Into<String>) -> Run {
        Run::new(Runner::of_database(self), script.into())
    }

    /// Run a script and decode the value of its last statement.
    pub fn query<T: DeserializeOwned>(&self, script: impl Into<String>) -> Query<T> {
        Query::new(self.run(script))
    }

    /// Return a stream of the rows of a SELECT from one table, in the order of their ids.
    ///
    /// It reads page by page. The fields must include `id`, and the text has no VALUE, SPLIT, GROUP, ORDER, LIMIT, START,
    /// FETCH or TIMEOUT. Each page shows what is committed when it is read; of a moment all show the same.
    pub fn rows<T: DeserializeOwned>(&self, select: impl Into<String>) -> Rows<T> {
        Rows::new(Runner::of_database(self), select.into())
    }

    /// Return a transaction to add statements to. It sends nothing before it is awaited.
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// Take a snapshot of the store to read in.
    pub fn moment(&self) -> MomentBuilder {
        MomentBuilder::new(self.clone())
    }

    /// Return a handle on the keys of a cache space.
    pub fn cache(&self, space: &str) -> Cache {
        Cache::new(self, space)
    }

    /// Return a handle on a topic.
    pub fn topic(&self, name: &str) -> Topic {
        Topic::new(self.clone(), name)
    }

    /// Return a stream of the changes of a table.
    pub fn watch(&self, table: &str) -> Watch {
        Watch::new(self.clone(), table)
    }

    /// Return a mirror of a table: a copy that is kept in step.
    pub fn mirror<T>(&self, table: &str) -> MirrorBuilder<T>
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        MirrorBuilder::new(self.clone(), table)
    }

    /// Return a handle on a vault.
    pub fn vault(&self, name: &str) -> Vault {
        Vault::new(self.clone(), name)
    }
}

/// Convert a value that an operation takes.
pub(crate) fn given(value: impl Serialize, name: &str) -> Result<Value> {
    crate::convert::to_value(&value).map_err(|error| error.under(name).into())
}
