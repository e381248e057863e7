//! The nodes of a store, and the connections to them.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::connection::{Connection, DialError, MINOR_OF_AFTER, Settings};
use crate::errors::{Error, Result};
use crate::values::head;
use crate::waits::{Backoff, Flag, Resolver, Shared, Work, lock};

const DEFAULT_PORT: u16 = 8001;
/// Time for which a node is left alone that could not be reached, or was too far behind.
const AWAY: Duration = Duration::from_secs(5);
/// Nodes that a client knows.
const NODES_MOST: usize = 64;

/// A connection was made, made again, or lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The first connection to a node was made.
    #[non_exhaustive]
    Connected {
        /// Address of the node.
        address: String,
        /// Version of the node.
        version: String,
    },
    /// Another connection to a node was made.
    #[non_exhaustive]
    Reconnected {
        /// Address of the node.
        address: String,
        /// Version of the node.
        version: String,
    },
    /// A connection has ended.
    #[non_exhaustive]
    Lost {
        /// Address of the node.
        address: String,
        /// Cause of the loss; `None` if a side closed the connection.
        cause: Option<Error>,
    },
}

/// Receiver of connection events.
pub(crate) type OnConnection = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

type Dialed = Result<Arc<Connection>, DialError>;

#[derive(Default)]
struct NodeState {
    conn: Option<Arc<Connection>>,
    /// `None`: not known.
    takes_changes: Option<bool>,
    is_foreign: bool,
    rests_until: Option<Instant>,
    was_connected: bool,
    opening: Option<Arc<Shared<Dialed>>>,
}

/// One node of a store: its address, and the connection to it.
pub(crate) struct Node {
    host: String,
    port: u16,
    state: Mutex<NodeState>,
}

impl Node {
    fn new(host: String, port: u16) -> Arc<Self> {
        Arc::new(Self { host, port, state: Mutex::default() })
    }

    pub(crate) fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    pub(crate) fn usable(&self) -> Option<Arc<Connection>> {
        lock(&self.state).conn.clone().filter(|conn| conn.is_usable())
    }

    pub(crate) fn cause(&self) -> Option<Error> {
        lock(&self.state).conn.as_ref().and_then(|conn| conn.cause())
    }

    pub(crate) fn may_take_changes(&self) -> bool {
        lock(&self.state).takes_changes != Some(false)
    }

    /// Leave the node alone for a while.
    pub(crate) fn rest(&self) {
        lock(&self.state).rests_until = Some(Instant::now() + AWAY);
    }

    /// Read nothing from the node any more.
    pub(crate) fn shun(&self) {
        lock(&self.state).is_foreign = true;
    }

    #[cfg(test)]
    pub(crate) fn conn(&self) -> Option<Arc<Connection>> {
        lock(&self.state).conn.clone()
    }
}

/// Split `host:port`, `host`, `:port` or `[::1]:port`.
fn split_address(address: &str) -> Result<(String, u16)> {
    let wrong =
        || Error::argument(format!("{:?} is no address: write host:port or [host]:port", head(address)));
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or_else(wrong)?;
            let port = if behind.is_empty() { "" } else { behind.strip_prefix(':').ok_or_else(wrong)? };
            (host, port)
        }
        None => address.split_once(':').unwrap_or((address, "")),
    };
    let in_brackets = address.starts_with('[');
    if (!in_brackets && host.contains(['[', ']', ':'])) || !port.bytes().all(|one| one.is_ascii_digit()) {
        return Err(wrong());
    }
    let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().map_err(|_| wrong())? };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    if port == 0 {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

#[derive(Default)]
struct NodesState {
    all: Vec<Arc<Node>>,
    /// Node that everything goes to that does not go elsewhere on purpose.
    home: Option<Arc<Node>>,
    /// Nodes that another has named as the leader.
    named: Vec<Arc<Node>>,
    search: Option<Arc<Shared<Result<Arc<Node>>>>>,
    turn: usize,
    is_closed: bool,
}

/// All nodes of a store.
pub(crate) struct Nodes {
    state: Mutex<NodesState>,
    pub(crate) settings: Settings,
    pub(crate) connect_timeout: Duration,
    /// Set when the client closes.
    pub(crate) closing: Arc<Flag>,
    pub(crate) given: String,
    work: Work,
    on_connection: Option<OnConnection>,
    events: Mutex<Option<mpsc::UnboundedSender<ConnectionEvent>>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nodes").field(&self.given).finish()
    }
}

impl Nodes {
    pub(crate) fn new(
        addresses: &[String],
        settings: Settings,
        connect_timeout: Duration,
        on_connection: Option<OnConnection>,
    ) -> Result<Arc<Self>> {
        let mut all: Vec<Arc<Node>> = Vec::new();
        for one in addresses.iter().flat_map(|text| text.split(',')) {
            let (host, port) = split_address(one.trim())?;
            if !all.iter().any(|node| node.host == host && node.port == port) {
                all.push(Node::new(host, port));
            }
        }
        if all.len() > NODES_MOST {
            return Err(Error::argument(format!(
                "a client knows at most {NODES_MOST} nodes, not {}",
                all.len()
            )));
        }
        if all.is_empty() {
            return Err(Error::argument("a client needs an address"));
        }
        if matches!(settings.credential, crate::connection::Credential::Token(_)) && all.len() > 1 {
            return Err(Error::argument(
                "a token is of one node: with several addresses, give user and password",
            ));
        }
        let given = all.iter().map(|node| node.address()).collect::<Vec<_>>().join(", ");
        Ok(Arc::new(Self {
            state: Mutex::new(NodesState { all, ..NodesState::default() }),
            settings,
            connect_timeout,
            closing: Arc::default(),
            given,
            work: Work::default(),
            on_connection,
            events: Mutex::default(),
        }))
    }

    pub(crate) fn are_several(&self) -> bool {
        lock(&self.state).all.len() > 1
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    pub(crate) fn home(&self) -> Option<Arc<Node>> {
        lock(&self.state).home.clone()
    }

    pub(crate) fn is_home(&self, node: &Arc<Node>) -> bool {
        lock(&self.state).home.as_ref().is_some_and(|home| Arc::ptr_eq(home, node))
    }

    /// Run work that the end of the client waits for.
    pub(crate) fn track(&self, work: impl Future<Output = ()> + Send + 'static) {
        let working = self.work.begin();
        tokio::spawn(async move {
            work.await;
            drop(working);
        });
    }

    // --- home ----------------------------------------------------------------------------------------

    /// Return the node to ask if it is connected.
    pub(crate) fn usable_home(&self) -> Option<(Arc<Node>, Arc<Connection>)> {
        let state = lock(&self.state);
        let home = state.home.as_ref().filter(|_| !state.is_closed)?;
        Some((Arc::clone(home), home.usable()?))
    }

    /// Return the node to ask, connected. All that need one share a search.
    pub(crate) async fn find_home(self: &Arc<Self>) -> Result<(Arc<Node>, Arc<Connection>)> {
        loop {
            let search = {
                let mut state = lock(&self.state);
                if state.is_closed {
                    return Err(Error::Closed);
                }
                if let Some(home) = &state.home {
                    if let Some(conn) = home.usable() {
                        return Ok((Arc::clone(home), conn));
                    }
                }
                match &state.search {
                    Some(search) => Arc::clone(search),
                    None => {
                        let (from, to) = Shared::new();
                        state.search = Some(Arc::clone(&from));
                        self.track(Arc::clone(self).search(to));
                        from
                    }
                }
            };
            // It has ended again in this moment if it is not usable: the attempt counts that.
            let home = search.wait().await.unwrap_or(Err(Error::Closed))?;
            if let Some(conn) = lock(&home.state).conn.clone() {
                return Ok((Arc::clone(&home), conn));
            }
        }
    }

    async fn search(self: Arc<Self>, to: Resolver<Result<Arc<Node>>>) {
        let found = self.find().await;
        let found = {
            let mut state = lock(&self.state);
            state.search = None;
            match found {
                Ok(node) => {
                    state.home = Some(Arc::clone(&node));
                    Ok(node)
                }
                Err(_) if state.is_closed => Err(Error::Closed),
                Err(error) => Err(error),
            }
        };
        to.resolve(found);
    }

    async fn find(self: &Arc<Self>) -> Result<Arc<Node>> {
        let deadline = Instant::now() + self.connect_timeout;
        let mut pause = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let mut errors = Vec::new();
            if let Some(found) = self.ask_round(deadline, &mut errors).await {
                return Ok(found);
            }
            let may_pass = errors.iter().any(DialError::may_pass);
            let Some(last) = errors.pop() else { return Err(Error::Closed) };
            if !may_pass {
                return Err(self.end_of_search(&last));
            }
            let step = pause.step();
            if Instant::now() + step >= deadline || self.is_closed() {
                let error = last.error();
                let message =
                    format!("no connection to {} in {:?}: {error}", self.given, self.connect_timeout);
                return Err(Error::unreachable(message, Some(error.clone())));
            }
            self.closing.or(tokio::time::sleep(step)).await;
        }
    }

    fn end_of_search(&self, last: &DialError) -> Error {
        let given = &self.given;
        let said = match last {
            DialError::Refused(error) => return error.clone(),
            DialError::Untrusted(_) => format!("the certificate of {given} is not trusted"),
            DialError::NoTls(_) => {
                format!("no TLS is spoken at {given}: connect without it, or to another port")
            }
            DialError::Broken(_) | DialError::Io(_) => format!("no connection to {given}"),
        };
        Error::unreachable(format!("{said}: {}", last.error()), Some(last.error().clone()))
    }

    /// Return the node that takes changes, or else the first that answers.
    async fn ask_round(
        self: &Arc<Self>,
        deadline: Instant,
        errors: &mut Vec<DialError>,
    ) -> Option<Arc<Node>> {
        let mut waiting = self.in_order();
        let mut asked = HashSet::new();
        let mut second = None;
        while !waiting.is_empty() {
            let node = waiting.remove(0);
            if !asked.insert(Arc::as_ptr(&node) as usize) {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / (1 + waiting.len() as u32);
            let conn = match self.open(&node, share).await {
                Ok(conn) => conn,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if node.may_take_changes() {
                lock(&self.state).named.clear();
                return Some(node);
            }
            waiting.splice(0..0, self.nodes_at(&conn.welcome.leader));
            second.get_or_insert(node);
        }
        second
    }

    /// Return the named nodes, those that take changes or may, and the others.
    fn in_order(&self) -> Vec<Arc<Node>> {
        let state = lock(&self.state);
        let (writes, reads): (Vec<_>, Vec<_>) =
            state.all.iter().cloned().partition(|node| node.may_take_changes());
        state.named.iter().cloned().chain(writes).chain(reads).collect()
    }

    /// Return the nodes at addresses that a node has named. What is no address is passed over.
    fn nodes_at(&self, endpoints: &[String]) -> Vec<Arc<Node>> {
        let mut state = lock(&self.state);
        if state.all.len() <= 1 {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (host, port) in endpoints.iter().filter_map(|endpoint| split_address(endpoint).ok()) {
            let known = state.all.iter().find(|node| node.host == host && node.port == port).cloned();
            if let Some(known) = known {
                found.push(known);
            } else if state.all.len() < NODES_MOST {
                let node = Node::new(host, port);
                state.all.push(Arc::clone(&node));
                found.push(node);
            }
        }
        found
    }

    // --- connections ---------------------------------------------------------------------------------

    /// Return the connection of a node. Without one a single attempt is made.
    async fn open(self: &Arc<Self>, node: &Arc<Node>, within: Duration) -> Dialed {
        // The state of all nodes is locked before that of one.
        let is_closed = self.is_closed();
        let opening = {
            let mut state = lock(&node.state);
            if let Some(conn) = state.conn.clone().filter(|conn| conn.is_usable()) {
                return Ok(conn);
            }
            if is_closed {
                return Err(DialError::Io(Error::Closed));
            }
            self.begin_opening(node, &mut state, within)
        };
        match timeout(within, opening.wait()).await {
            Ok(found) => found.unwrap_or(Err(DialError::Io(Error::Closed))),
            Err(_) => {
                let error = std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("no welcome within {within:?}"),
                );
                Err(error.into())
            }
        }
    }

    fn begin_opening(
        self: &Arc<Self>,
        node: &Arc<Node>,
        state: &mut NodeState,
        within: Duration,
    ) -> Arc<Shared<Dialed>> {
        if let Some(opening) = &state.opening {
            return Arc::clone(opening);
        }
        let (from, to) = Shared::new();
        state.opening = Some(Arc::clone(&from));
        let (nodes, node) = (Arc::clone(self), Arc::clone(node));
        self.track(async move {
            let found = nodes.connect(&node, within).await;
            to.resolve(found);
        });
        from
    }

    async fn connect(self: &Arc<Self>, node: &Arc<Node>, within: Duration) -> Dialed {
        let address = node.address();
        let on_end = {
            let (nodes, address) = (Arc::downgrade(self), address.clone());
            Box::new(move |cause| {
                if let Some(nodes) = nodes.upgrade().filter(|nodes| !nodes.is_closed()) {
                    nodes.report(ConnectionEvent::Lost { address, cause });
                }
            })
        };
        let dialing = Connection::dial(&node.host, node.port, &self.settings, within, Some(on_end));
        let dialed = self.closing.or(dialing).await.unwrap_or(Err(DialError::Io(Error::Closed)));
        let (conn, was_connected) = self.keep(node, dialed)?;
        let version = conn.welcome.version.clone();
        self.report(match was_connected {
            true => ConnectionEvent::Reconnected { address, version },
            false => ConnectionEvent::Connected { address, version },
        });
        if self.is_closed() {
            conn.close().await;
        }
        Ok(conn)
    }

    /// Keep the connection that an attempt has made. Return it, and if there was one before.
    fn keep(&self, node: &Node, dialed: Dialed) -> Result<(Arc<Connection>, bool), DialError> {
        let mut state = lock(&node.state);
        state.opening = None;
        let conn = match dialed {
            Ok(conn) => conn,
            Err(error) => {
                state.rests_until = Some(Instant::now() + AWAY);
                return Err(error);
            }
        };
        if let Some(parting) = state.conn.replace(Arc::clone(&conn)) {
            // What is open there is answered.
            self.track(async move { parting.ended().await });
        }
        state.takes_changes = Some(conn.welcome.writable);
        state.rests_until = None;
        Ok((conn, std::mem::replace(&mut state.was_connected, true)))
    }

    /// Hand an event to a task of its own, so that a report disturbs no request.
    fn report(&self, event: ConnectionEvent) {
        let Some(on_connection) = &self.on_connection else { return };
        let mut events = lock(&self.events);
        let to = events.get_or_insert_with(|| {
            let (to, mut from) = mpsc::unbounded_channel();
            let on_connection = Arc::clone(on_connection);
            tokio::spawn(async move {
                while let Some(event) = from.recv().await {
                    // The panic of one report, which its hook has printed, does not end the others.
                    drop(catch_unwind(AssertUnwindSafe(|| on_connection(event))));
                }
            });
            to
        });
        // The task ends only with the sender.
        drop(to.send(event));
    }

    /// Return a node to read from, connected: each in its turn. The others are connected meanwhile.
    pub(crate) async fn near(self: &Arc<Self>) -> Result<(Arc<Node>, Arc<Connection>)> {
        let home = self.find_home().await?;
        let now = Instant::now();
        let (all, turn, is_closed) = {
            let mut state = lock(&self.state);
            state.turn += 1;
            (state.all.clone(), state.turn, state.is_closed)
        };
        let mut ready = Vec::new();
        for node in all {
            if Arc::ptr_eq(&node, &home.0) {
                ready.push(home.clone());
                continue;
            }
            let mut state = lock(&node.state);
            if state.is_foreign || state.rests_until.is_some_and(|until| until > now) {
                continue;
            }
            match state.conn.clone().filter(|conn| conn.is_usable()) {
                Some(conn) if conn.welcome.minor >= MINOR_OF_AFTER => ready.push((Arc::clone(&node), conn)),
                Some(_) => {}
                None if is_closed => {}
                // Home is asked meanwhile.
                None => drop(self.begin_opening(&node, &mut state, self.connect_timeout)),
            }
        }
        match ready.is_empty() {
            true => Ok(home),
            false => Ok(ready.swap_remove(turn % ready.len())),
        }
    }

    /// Have another home looked for: a node took no change.
    pub(crate) fn on_refused_by(&self, node: &Arc<Node>, leader: &[String]) {
        lock(&node.state).takes_changes = Some(false);
        {
            let mut state = lock(&self.state);
            state.all.retain(|one| !Arc::ptr_eq(one, node));
            state.all.push(Arc::clone(node));
        }
        let mut named = self.nodes_at(leader);
        named.retain(|one| !Arc::ptr_eq(one, node));
        for one in &named {
            lock(&one.state).takes_changes = None;
        }
        let mut state = lock(&self.state);
        state.named = named;
        if state.home.as_ref().is_some_and(|home| Arc::ptr_eq(home, node)) {
            state.home = None;
        }
    }

    /// Make a connection to home that nothing else uses. The client closes only behind it.
    pub(crate) async fn own(self: &Arc<Self>) -> Result<Own> {
        let (home, _) = self.find_home().await?;
        let working = self.work.begin();
        let dialing = Connection::dial(&home.host, home.port, &self.settings, self.connect_timeout, None);
        match dialing.await {
            Ok(conn) => Ok(Own { conn, _working: working }),
            Err(DialError::Refused(error)) => Err(error),
            Err(error) => {
                let error = error.error();
                let message = format!("no connection to {}: {error}", home.address());
                Err(Error::unreachable(message, Some(error.clone())))
            }
        }
    }

    // --- the end -------------------------------------------------------------------------------------

    fn connections(&self) -> Vec<Arc<Connection>> {
        let state = lock(&self.state);
        state.all.iter().filter_map(|node| lock(&node.state).conn.clone()).collect()
    }

    /// Wait for what is under way, then end all connections.
    pub(crate) async fn close(&self) {
        lock(&self.state).is_closed = true;
        self.closing.set();
        let closing: Vec<_> = self
            .connections()
            .into_iter()
            .map(|conn| tokio::spawn(async move { conn.close().await }))
            .collect();
        for one in closing {
            // A task that does not end by itself is that of a runtime that shuts down.
            drop(one.await);
        }
        self.work.wait().await;
    }

    /// Leave all nodes without waiting, where no handle is left.
    pub(crate) fn abandon(&self) {
        lock(&self.state).is_closed = true;
        self.closing.set();
        for conn in self.connections() {
            conn.abandon();
        }
    }

    /// End all connections now.
    pub(crate) fn abort(&self) {
        self.abandon();
        for conn in self.connections() {
            conn.end(None);
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        lock(&self.state).all.clone()
    }
}

/// A connection of one piece of work, which ends with it.
pub(crate) struct Own {
    pub(crate) conn: Arc<Connection>,
    _working: crate::waits::Working,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.conn.end(None);
    }
}
