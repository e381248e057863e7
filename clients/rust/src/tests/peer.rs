//! A node that does what the test says.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Client, ClientBuilder};
use crate::codec::read_value;
use crate::exchange::Pulse;
use crate::frames::{Body, Kind, write_frame};
use crate::values::{Object, SignedDuration, Value};
use crate::{Error, Result};

/// Time that a test waits for what has to come: a failure, and never a measure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Run a test in a runtime. It fails where it does not end.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test goes on for ever") });
}

macro_rules! tests {
    ($(async fn $name:ident() $body:block)*) => {$(
        #[test]
        fn $name() {
            $crate::tests::peer::run(async $body);
        }
    )*};
}
pub(crate) use tests;

/// A message of the client.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) body: Object,
}

impl Asked {
    pub(crate) fn get(&self, name: &str) -> Value {
        self.body.get(name).cloned().unwrap_or(Value::None)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Object {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(crate) fn value_of<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(object(fields))
}

pub(crate) fn texts(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::from(*text)).collect())
}

fn body_of(fields: &Object) -> Body {
    fields.iter().fold(Body::new(), |body, (name, value)| body.value(name, value).unwrap())
}

pub(crate) struct Peer {
    listener: TcpListener,
    pub(crate) writable: bool,
    pub(crate) leader: Vec<String>,
    pub(crate) minor: i64,
    pub(crate) address: String,
}

impl Peer {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self { listener, writable: true, leader: Vec::new(), minor: 10, address }
    }

    pub(crate) async fn accept_socket(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    fn spoken<S>(&self, socket: S) -> Spoken<S> {
        let welcome = object([
            ("major", 1.into()),
            ("minor", self.minor.into()),
            ("version", "0".into()),
            ("node", self.address.as_str().into()),
            ("limits", value_of([])),
            ("user", value_of([("name", "root".into())])),
            ("writable", self.writable.into()),
            ("leader", Value::Array(self.leader.iter().map(|one| one.as_str().into()).collect())),
        ]);
        Spoken { socket, bytes: BytesMut::new(), reads: AtomicUsize::new(0), welcome }
    }

    pub(crate) async fn accept(&self) -> Spoken {
        self.spoken(self.accept_socket().await)
    }

    /// Accept a connection and welcome it.
    pub(crate) async fn greet(&self) -> Spoken {
        let mut one = self.accept().await;
        one.greet().await;
        one
    }

    pub(crate) fn spoken_over<S: AsyncRead + AsyncWrite + Unpin>(&self, socket: S) -> Spoken<S> {
        self.spoken(socket)
    }
}

/// One connection to a peer.
pub(crate) struct Spoken<S = TcpStream> {
    pub(crate) socket: S,
    bytes: BytesMut,
    reads: AtomicUsize,
    welcome: Object,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Spoken<S> {
    pub(crate) async fn greet(&mut self) {
        let hello = self.wants(Kind::Hello).await;
        assert_eq!(hello.text("magic"), "STORE");
        assert_eq!(hello.text("user"), "root");
        self.welcome(0).await;
    }

    /// Return the number of reads so far.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Return the next message; `None`: the client has closed.
    pub(crate) async fn read(&mut self) -> Option<Asked> {
        loop {
            if let Some(head) = self.bytes.first_chunk::<4>() {
                let size = u32::from_be_bytes(*head) as usize;
                if self.bytes.len() >= 4 + size {
                    self.bytes.advance(4);
                    let frame = self.bytes.split_to(size).freeze();
                    let Value::Array(parts) = read_value(&frame).unwrap() else { panic!("no message") };
                    let [Value::Int(kind), Value::Int(id), body] = <[Value; 3]>::try_from(parts).unwrap()
                    else {
                        panic!("no message")
                    };
                    let body = if let Value::Object(fields) = body { fields } else { Object::new() };
                    return Some(Asked { kind: Kind::of(kind).unwrap(), id: id as u64, body });
                }
            }
            self.bytes.reserve(64 << 10);
            match self.socket.read_buf(&mut self.bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => self.reads.fetch_add(1, Ordering::SeqCst),
            };
        }
    }

    pub(crate) async fn next(&mut self) -> Asked {
        self.read().await.expect("the client has closed")
    }

    pub(crate) async fn wants(&mut self, kind: Kind) -> Asked {
        let found = self.next().await;
        assert_eq!(found.kind.name(), kind.name(), "{:?}", found.body);
        found
    }

    pub(crate) async fn say(&mut self, kind: Kind, id: u64, body: Option<&Object>) {
        let mut frame = Vec::new();
        write_frame(&mut frame, kind, id, body.map(body_of).as_ref(), None);
        // The client may have gone.
        drop(self.socket.write_all(&frame).await);
    }

    pub(crate) async fn value<const N: usize>(&mut self, id: u64, fields: [(&str, Value); N]) {
        self.say(Kind::Value, id, Some(&object(fields))).await;
    }

    pub(crate) async fn change(&mut self, id: u64, body: &Object) {
        self.say(Kind::Change, id, Some(body)).await;
    }

    pub(crate) async fn welcome(&mut self, id: u64) {
        let welcome = self.welcome.clone();
        self.say(Kind::Welcome, id, Some(&welcome)).await;
    }

    pub(crate) async fn refuse(&mut self, id: u64, code: &str) {
        self.refuse_with(id, code, [], false).await;
    }

    pub(crate) async fn refuse_with<const N: usize>(
        &mut self,
        id: u64,
        code: &str,
        detail: [(&str, Value); N],
        retry: bool,
    ) {
        let error = value_of([
            ("code", code.into()),
            ("message", "no".into()),
            ("status", 409.into()),
            ("retry", retry.into()),
            ("detail", value_of(detail)),
        ]);
        let body = object([("error", error), ("results", Value::Array(Vec::new()))]);
        self.say(Kind::Error, id, Some(&body)).await;
    }

    pub(crate) async fn answer(&mut self, id: u64, value: impl Into<Value>, seq: i64) {
        self.answer_all(id, vec![result("value", value.into())], seq).await;
    }

    pub(crate) async fn answer_all(&mut self, id: u64, results: Vec<Value>, seq: i64) {
        let body = answer_of(results, seq);
        self.say(Kind::Answer, id, Some(&body)).await;
    }

    /// Answer everything until the client leaves.
    pub(crate) async fn serve(mut self, value: Value) {
        while let Some(found) = self.read().await {
            match found.kind {
                Kind::Run => self.answer(found.id, value.clone(), 7).await,
                Kind::Ping => self.say(Kind::Pong, found.id, None).await,
                Kind::Cancel => self.refuse(found.id, "Cancelled").await,
                Kind::Unwatch => {
                    let body = object([("seq", 9.into()), ("epoch", 1.into())]);
                    self.say(Kind::Answer, found.id, Some(&body)).await;
                }
                Kind::Bye => break,
                _ => {}
            }
        }
    }

    /// Have a task answer everything until the client leaves.
    pub(crate) fn serves(self, value: impl Into<Value>)
    where
        S: Send + 'static,
    {
        tokio::spawn(self.serve(value.into()));
    }
}

pub(crate) fn answer_of(results: Vec<Value>, seq: i64) -> Object {
    object([
        ("results", Value::Array(results)),
        ("seq", seq.into()),
        ("store", "s".into()),
        ("epoch", 1.into()),
    ])
}

pub(crate) fn result(kind: &str, value: Value) -> Value {
    let took = SignedDuration::from_micros(1).into();
    value_of([("value", value), ("kind", kind.into()), ("rows", 0.into()), ("took", took)])
}

pub(crate) fn builder(address: &str) -> ClientBuilder {
    let pulse = Pulse { grace: PATIENCE, ..Pulse::default() };
    Client::builder(address).user("root", "secret").connect_timeout(PATIENCE).pulse(pulse)
}

pub(crate) fn client_of(address: &str) -> Client {
    builder(address).build().unwrap()
}

/// Close a client behind a peer that answers what is left.
pub(crate) async fn ends(client: Client, one: Spoken) {
    tokio::join!(client.close(), one.serve(Value::Null));
}

/// Begin a call, which a test waits for later.
pub(crate) fn begin<F>(call: F) -> tokio::task::JoinHandle<F::Output>
where
    F: IntoFuture<IntoFuture: Send + 'static>,
    F::Output: Send + 'static,
{
    tokio::spawn(call.into_future())
}

/// Return the outcome of a call that was begun.
pub(crate) async fn outcome<T>(call: tokio::task::JoinHandle<Result<T>>) -> Result<T> {
    call.await.unwrap()
}

/// Return the error of a call that was begun.
pub(crate) async fn failure<T: std::fmt::Debug>(call: tokio::task::JoinHandle<Result<T>>) -> Error {
    call.await.unwrap().unwrap_err()
}

/// Wait for a condition that others bring about.
pub(crate) async fn until(is_met: impl Fn() -> bool) {
    while !is_met() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A folder of a test, removed with this.
pub(crate) struct Folder {
    pub(crate) path: std::path::PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("storenode-{}", crate::tls::random_name().unwrap()));
        std::fs::create_dir(&path).unwrap();
        Self { path }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap();
    }
}
