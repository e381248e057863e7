//! One connection to a node: its socket, and the tasks that read and write it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::rustls;

use crate::answers::{Welcome, read_error, read_welcome};
use crate::convert::to_value;
use crate::errors::{Error, Failure, Refusal, Result};
use crate::exchange::{Exchange, GivenUp, Look, Pulse, Reply, Request, Sink};
use crate::frames::{Body, Kind, Message, next_message, write_frame};
use crate::tables::{Code, VERSION};
use crate::tls::Connector;
use crate::waits::{Flag, News, lock};

/// Newest minor of the wire that this client speaks.
const MINOR: i64 = 10;
pub(crate) const MINOR_OF_FEEDS: i64 = 1;
pub(crate) const MINOR_OF_STREAMS: i64 = 5;
pub(crate) const MINOR_OF_VAULTS: i64 = 6;
pub(crate) const MINOR_OF_AFTER: i64 = 7;
pub(crate) const MINOR_OF_SEQUENCES: i64 = 8;

/// Room that is made for one read.
const READ_ROOM: usize = 16 << 10;

/// A credential, never printed.
#[derive(Clone)]
pub(crate) enum Credential {
    Nobody,
    Password { user: String, password: String },
    Token(String),
}

impl Credential {
    fn add_to(&self, body: Body) -> Body {
        match self {
            Self::Nobody => body,
            Self::Password { user, password } => body.str("user", user).str("password", password),
            Self::Token(token) => body.str("token", token),
        }
    }

    pub(crate) fn has_password(&self) -> bool {
        matches!(self, Self::Password { .. })
    }
}

pub(crate) struct Settings {
    pub(crate) credential: Credential,
    pub(crate) tls: Option<Connector>,
    pub(crate) pulse: Pulse,
}

/// An attempt to connect failed.
#[derive(Clone, Debug)]
pub(crate) enum DialError {
    Refused(Error),
    Untrusted(Error),
    NoTls(Error),
    Broken(Error),
    Io(Error),
}

impl DialError {
    pub(crate) fn error(&self) -> &Error {
        let (Self::Refused(error) | Self::Untrusted(error) | Self::NoTls(error)) = self else {
            let (Self::Broken(error) | Self::Io(error)) = self else { return &Error::Closed };
            return error;
        };
        error
    }

    /// Return true if another attempt may help.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_retryable(),
            Self::Io(_) => true,
            Self::Untrusted(_) | Self::NoTls(_) | Self::Broken(_) => false,
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
        let error = Error::from(error);
        match tls {
            Some(rustls::Error::InvalidCertificate(_)) => Self::Untrusted(error),
            Some(rustls::Error::InvalidMessage(_)) => Self::NoTls(error),
            _ => Self::Io(error),
        }
    }
}

impl From<Error> for DialError {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(_) => Self::Refused(error),
            Error::ProtocolBroken(_) => Self::Broken(error),
            _ => Self::Io(error),
        }
    }
}

/// Called with the cause when a connection ends.
pub(crate) type OnEnd = Box<dyn FnOnce(Option<Error>) + Send>;

pub(crate) struct Connection {
    exchange: Mutex<Exchange>,
    /// There is something to write.
    output: Notify,
    /// Parts of a backup were taken.
    resumed: News,
    /// Nothing is open any more.
    quiet: News,
    ended: Flag,
    pub(crate) welcome: Welcome,
    /// Number of AUTHs that were answered.
    session: AtomicU64,
    /// The refusal of the last AUTH, held while there is one under way.
    signing: tokio::sync::Mutex<Option<Error>>,
    grace: Duration,
    on_end: Mutex<Option<OnEnd>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("node", &self.welcome.node).finish_non_exhaustive()
    }
}

impl Connection {
    /// Make a connection that has been welcomed.
    pub(crate) async fn dial(
        host: &str,
        port: u16,
        settings: &Settings,
        within: Duration,
        on_end: Option<OnEnd>,
    ) -> Result<Arc<Self>, DialError> {
        let dialing = Self::dial_now(host, port, settings, on_end);
        match timeout(within, dialing).await {
            Ok(found) => found,
            Err(_) => {
                let message = format!("no welcome within {within:?}");
                Err(DialError::Io(io::Error::new(io::ErrorKind::TimedOut, message).into()))
            }
        }
    }

    async fn dial_now(
        host: &str,
        port: u16,
        settings: &Settings,
        on_end: Option<OnEnd>,
    ) -> Result<Arc<Self>, DialError> {
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let keep_alive = TcpKeepalive::new()
            .with_time(Duration::from_secs(30))
            .with_interval(Duration::from_secs(10))
            .with_retries(3);
        SockRef::from(&socket).set_tcp_keepalive(&keep_alive)?;
        match &settings.tls {
            None => {
                let mut socket = socket;
                let (welcome, buffer) = greet(&mut socket, settings).await?;
                let (reader, writer) = socket.into_split();
                Ok(Self::start(reader, writer, welcome, buffer, settings, on_end))
            }
            Some(connector) => {
                let mut socket = connector.connect(host, socket).await?;
                let (welcome, buffer) = greet(&mut socket, settings).await?;
                let (reader, writer) = tokio::io::split(socket);
                Ok(Self::start(reader, writer, welcome, buffer, settings, on_end))
            }
        }
    }

    fn start<R, W>(
        reader: R,
        writer: W,
        welcome: Welcome,
        buffer: BytesMut,
        settings: &Settings,
        on_end: Option<OnEnd>,
    ) -> Arc<Self>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let conn = Arc::new(Self {
            exchange: Mutex::new(Exchange::new(settings.pulse, Instant::now())),
            output: Notify::new(),
            resumed: News::default(),
            quiet: News::default(),
            ended: Flag::default(),
            welcome,
            session: AtomicU64::new(0),
            signing: tokio::sync::Mutex::new(None),
            grace: settings.pulse.grace,
            on_end: Mutex::new(on_end),
        });
        tokio::spawn(Arc::clone(&conn).write(writer));
        tokio::spawn(Arc::clone(&conn).read(reader, buffer));
        conn
    }

    pub(crate) fn is_usable(&self) -> bool {
        lock(&self.exchange).is_usable()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        lock(&self.exchange).is_leaving
    }

    pub(crate) fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    pub(crate) fn cause(&self) -> Option<Error> {
        lock(&self.exchange).cause()
    }

    /// Refuse a request that the node is too old for.
    pub(crate) fn check_minor(&self, minor: i64, what: &str) -> Result<()> {
        let Welcome { node, version, minor: spoken, .. } = &self.welcome;
        if *spoken >= minor {
            return Ok(());
        }
        let message = format!(
            "node {node} of version {version} speaks minor {spoken} of the wire, which has no {what}: \
             they came with {minor}"
        );
        Err(Refusal::local(Code::VersionNotSupported, 505, message).into())
    }

    // --- requests ------------------------------------------------------------------------------------

    /// Send a request and wait for its reply. `stop` has the node end it, whose answer is waited for.
    /// Dropping the future cancels the request.
    pub(crate) async fn ask(
        &self,
        request: &Request,
        after: Option<i64>,
        stop: Option<&Flag>,
    ) -> Result<Reply, Failure> {
        let (to, from) = oneshot::channel();
        let call = CallGuard { conn: self, id: Some(self.begin(request, after, Sink::Reply(to))?) };
        match (request.timeout, stop) {
            (None, None) => call.settle(from.await),
            (within, stop) => Box::pin(call.limited(from, within, stop)).await,
        }
    }

    /// Send a request whose outcome goes to the sink. Return its id.
    pub(crate) fn begin(&self, request: &Request, after: Option<i64>, sink: Sink) -> Result<u64, Failure> {
        if let Some((minor, what)) = request.needs {
            self.check_minor(minor, what)?;
        }
        let id = lock(&self.exchange).begin(request, after, sink, Instant::now())?;
        self.output.notify_one();
        Ok(id)
    }

    /// End a request that nobody waits for any more.
    pub(crate) fn give_up(&self, id: u64) -> GivenUp {
        let found = lock(&self.exchange).give_up(id, Instant::now());
        self.output.notify_one();
        self.quiet.announce();
        found
    }

    /// Open another session with the password: one AUTH for all requests that found the same session ended.
    pub(crate) async fn sign_in_again(&self, credential: &Credential, ended_session: u64) -> Result<()> {
        let mut refusal = self.signing.lock().await;
        if self.session() == ended_session {
            let mut request = Request::new(Kind::Auth, credential.add_to(Body::new()));
            request.timeout = Some(self.grace);
            *refusal = match self.ask(&request, None, None).await {
                Ok(_) => None,
                Err(Failure::Error(error @ Error::Refused(_))) => Some(error),
                // The connection has gone, and the next one signs in by itself.
                Err(_) => return Ok(()),
            };
            self.session.fetch_add(1, Ordering::SeqCst);
        }
        match &*refusal {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    // --- reading and writing -------------------------------------------------------------------------

    async fn write<W: AsyncWrite + Unpin>(self: Arc<Self>, mut writer: W) {
        let mut bytes = Vec::new();
        while self.ended.or(self.output.notified()).await.is_some() {
            // Requests that are made in this turn of the runtime leave in one write.
            tokio::task::yield_now().await;
            while lock(&self.exchange).take_output(&mut bytes) {
                let written = self.ended.or(async {
                    writer.write_all(&bytes).await?;
                    writer.flush().await
                });
                match written.await {
                    Some(Ok(())) => {}
                    Some(Err(error)) => return self.end(Some(error.into())),
                    None => return,
                }
            }
        }
        // The peer may have gone first; nothing is left to be said to it.
        drop(timeout(self.grace, writer.shutdown()).await);
    }

    async fn read<R: AsyncRead + Unpin>(self: Arc<Self>, mut reader: R, mut buffer: BytesMut) {
        let first = lock(&self.exchange).look(Instant::now());
        let Look::At(at) = first else { return };
        let mut timer = Box::pin(sleep_until(at));
        self.take_messages(&mut buffer);
        loop {
            let is_stalled = lock(&self.exchange).is_stalled;
            buffer.reserve(READ_ROOM);
            tokio::select! {
                biased;
                () = self.ended.wait() => return,
                found = reader.read_buf(&mut buffer), if !is_stalled => match found {
                    Ok(0) => return self.end(None),
                    Ok(_) => {
                        self.take_messages(&mut buffer);
                        if !lock(&self.exchange).is_leaving {
                            continue;
                        }
                    }
                    Err(error) => return self.end(Some(error.into())),
                },
                () = self.resumed.until(|| (!lock(&self.exchange).is_stalled).then_some(())), if is_stalled => {
                    continue;
                }
                () = &mut timer => {}
            }
            let found = lock(&self.exchange).look(Instant::now());
            self.output.notify_one();
            match found {
                Look::At(at) => timer.as_mut().reset(at),
                Look::Lost(message) => {
                    let error = io::Error::new(io::ErrorKind::TimedOut, message);
                    return self.end(Some(error.into()));
                }
                Look::Over => return self.end(None),
            }
        }
    }

    /// Act on all messages that have come.
    fn take_messages(&self, buffer: &mut BytesMut) {
        let (mut messages, mut failure) = (Vec::<Message>::new(), None);
        loop {
            match next_message(buffer) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let now = Instant::now();
        let mut exchange = lock(&self.exchange);
        exchange.on_bytes(now);
        for message in messages {
            if exchange.is_over() {
                return;
            }
            if let Err(error) = exchange.on_message(message, now) {
                failure = Some(error);
                break;
            }
        }
        let (has_output, is_quiet) = (exchange.has_output(), exchange.is_quiet());
        drop(exchange);
        if has_output {
            self.output.notify_one();
        }
        if is_quiet {
            self.quiet.announce();
        }
        if let Some(error) = failure {
            self.end(Some(error));
        }
    }

    /// Read on after parts of a backup were taken.
    pub(crate) fn resume(&self) {
        let mut exchange = lock(&self.exchange);
        exchange.is_stalled = false;
        exchange.on_bytes(Instant::now());
        drop(exchange);
        self.resumed.announce();
    }

    // --- the end -------------------------------------------------------------------------------------

    /// End what only waits, wait for all answers, say BYE, and end the connection.
    pub(crate) async fn close(&self) {
        lock(&self.exchange).leave();
        self.output.notify_one();
        let is_quiet = || {
            let exchange = lock(&self.exchange);
            (exchange.is_quiet() || exchange.is_over()).then_some(())
        };
        self.quiet.until(is_quiet).await;
        self.abandon();
        if timeout(self.grace, self.ended.wait()).await.is_err() {
            self.end(None);
        }
    }

    /// Say BYE, and let the node end the connection.
    pub(crate) fn abandon(&self) {
        let mut exchange = lock(&self.exchange);
        exchange.leave();
        exchange.say_bye(Instant::now());
        drop(exchange);
        self.output.notify_one();
    }

    /// Wait until the connection has ended.
    pub(crate) async fn ended(&self) {
        self.ended.wait().await;
    }

    /// End the connection now. Open requests that were written have an unknown outcome.
    pub(crate) fn end(&self, cause: Option<Error>) {
        if !lock(&self.exchange).end(cause.clone()) {
            return;
        }
        let on_end = lock(&self.on_end).take();
        if let Some(on_end) = on_end {
            on_end(cause);
        }
        self.ended.set();
        self.quiet.announce();
        self.resumed.announce();
    }

    #[cfg(test)]
    pub(crate) fn exchange(&self) -> std::sync::MutexGuard<'_, Exchange> {
        lock(&self.exchange)
    }
}

type Outcome = Result<Reply, Failure>;

/// Gives up a request where its future is dropped.
struct CallGuard<'a> {
    conn: &'a Connection,
    id: Option<u64>,
}

impl CallGuard<'_> {
    fn stop(&self) {
        if let Some(id) = self.id {
            lock(&self.conn.exchange).stop(id, Instant::now());
            self.conn.output.notify_one();
        }
    }

    /// Wait for the outcome. `stop` has the node end the request, and behind `within` it is given up.
    async fn limited(
        mut self,
        mut from: oneshot::Receiver<Outcome>,
        within: Option<Duration>,
        stop: Option<&Flag>,
    ) -> Outcome {
        let replied = async {
            if let Some(stop) = stop {
                tokio::select! {
                    biased;
                    found = &mut from => return found,
                    () = stop.wait() => self.stop(),
                }
            }
            (&mut from).await
        };
        let outcome = match within {
            None => replied.await,
            Some(within) => match timeout(within, replied).await {
                Ok(outcome) => outcome,
                Err(_) => match self.give_up() {
                    GivenUp::Answered => from.await,
                    GivenUp::Written => {
                        return Err(Error::unknown(format!("no answer within {within:?}"), None).into());
                    }
                    GivenUp::Unsent => {
                        let message = format!("the connection took nothing within {within:?}");
                        return Err(Error::unreachable(message, None).into());
                    }
                },
            },
        };
        self.settle(outcome)
    }

    /// Return the outcome that has come.
    fn settle(mut self, outcome: Result<Outcome, oneshot::error::RecvError>) -> Outcome {
        self.id = None;
        outcome.unwrap_or_else(|_| Err(Error::unknown("the connection was dropped", None).into()))
    }

    fn give_up(&mut self) -> GivenUp {
        self.id.take().map_or(GivenUp::Answered, |id| self.conn.give_up(id))
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Say HELLO and read the answer. Return the welcome and the bytes behind it.
async fn greet<S>(socket: &mut S, settings: &Settings) -> Result<(Welcome, BytesMut), DialError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let minors = to_value(&[0, MINOR]).map_err(Error::from)?;
    let body = Body::new().str("magic", "STORE").int("major", 1).value("minor", &minors)?;
    let body = settings.credential.add_to(body.str("client", &format!("storenode-rs/{VERSION}")));
    let mut hello = Vec::new();
    write_frame(&mut hello, Kind::Hello, 0, Some(&body), None);
    socket.write_all(&hello).await?;
    socket.flush().await?;
    let mut buffer = BytesMut::with_capacity(READ_ROOM);
    let message = loop {
        if let Some(message) = next_message(&mut buffer)? {
            break message;
        }
        if socket.read_buf(&mut buffer).await? == 0 {
            let message = "the peer closed the connection before its welcome";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message).into());
        }
    };
    match message.kind {
        Kind::Welcome => Ok((read_welcome(message.body)?, buffer)),
        Kind::Refused | Kind::Error => Err(read_error(message.body).into()),
        other => Err(Error::broken(format!("the node answered HELLO with {}", other.name())).into()),
    }
}
