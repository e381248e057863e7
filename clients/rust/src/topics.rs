//! Topics and readers.

use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answers::{Field, as_field, needed, optional};
use crate::attempts::{How, Outages, with_grace};
use crate::client::{Client, Database, check_positive, given};
use crate::convert::{from_value, to_value};
use crate::errors::{Error, Result};
use crate::exchange::Request;
use crate::frames::{Body, Fields, Kind};
use crate::groups::Group;
use crate::runs::{Call, Run};
use crate::values::{DateTime, Object, SignedDuration, Value, check_name, quote};
use crate::waits::{BoxFuture, Flag, Steps};

/// Messages that a reader asks for at once; the most a node gives.
const READ_PAGE: u32 = 1000;
/// Time for which one request for future messages waits at the node.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A message of a topic.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// Position in the topic, from 1.
    pub position: i64,
    /// Time of its commit.
    pub at: DateTime,
    /// Key. Groups ordered by key deliver messages of one key in order.
    pub key: Option<String>,
    /// Id. A second message with that id within the topic's DEDUP window is not appended.
    pub id: Option<String>,
    /// Headers.
    pub headers: BTreeMap<String, String>,
    /// Value.
    pub value: Value,
    /// Size in the store.
    pub bytes: u64,
    /// Earliest delivery to groups, of a delayed message.
    pub due: Option<DateTime>,
}

impl Message {
    /// Decode the value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(from_value(self.value.clone())?)
    }

    pub(crate) fn read(found: Value) -> Result<Self> {
        Self::take_from(&mut as_field(found, "a message")?)
    }

    pub(crate) fn take_from(body: &mut Object) -> Result<Self> {
        let headers: Object = needed(body, "headers")?;
        let header = |(name, value)| Some((name, String::of(value)?));
        let Some(headers) = headers.into_iter().map(header).collect::<Option<_>>() else {
            return Err(Error::broken("the node sent headers that are not text"));
        };
        Ok(Self {
            position: needed(body, "position")?,
            at: needed(body, "at")?,
            key: optional(body, "key")?,
            id: optional(body, "id")?,
            headers,
            value: body
                .remove("value")
                .ok_or_else(|| Error::broken("the node sent a message without a value"))?,
            bytes: needed(body, "bytes")?,
            due: optional(body, "due")?,
        })
    }
}

/// A handle on a topic.
#[derive(Clone)]
pub struct Topic {
    pub(crate) db: Database,
    own: Arc<Own>,
}

struct Own {
    name: String,
    /// Fields that name the topic in a request, or the error of a name.
    fields: Result<Body>,
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topic").field(&self.own.name).finish()
    }
}

impl Topic {
    pub(crate) fn new(db: Database, name: &str) -> Self {
        let fields = db.place().and_then(|place| {
            check_name(name)?;
            Ok(Body::new().str("ns", &place.ns).str("db", &place.db).str("topic", name))
        });
        Self { db, own: Arc::new(Own { name: name.to_owned(), fields }) }
    }

    pub(crate) fn quoted(&self) -> Result<String> {
        Ok(quote(&self.own.name)?)
    }

    pub(crate) fn body(&self, op: &str) -> Result<Body> {
        Body::of(op, &self.own.fields)
    }

    /// Do an operation. `stop` has the node end it, whose answer is waited for.
    pub(crate) async fn ask(
        &self,
        op: &'static str,
        body: Body,
        wait: Option<Duration>,
        stop: Option<Arc<Flag>>,
    ) -> Result<Fields> {
        let client = self.db.client();
        client.change(&request(client, op, body, wait), &How { stop, ..How::default() }).await
    }

    pub(crate) async fn info_of(&self, text: String) -> Result<Object> {
        as_field(self.db.run(text).repeatable().value().await?, "answer")
    }

    async fn page(
        &self,
        text: String,
        run: impl FnOnce(Run) -> Run,
        wait: Option<Duration>,
    ) -> Result<Vec<Message>> {
        let mut run = run(self.db.run(text).repeatable());
        if let Some(wait) = wait {
            check_positive("wait", wait)?;
            run.script.push_str(" WAIT $wait");
            run = run.bind("wait", SignedDuration::from(wait));
            run.wait = Some(wait);
        }
        let Value::Array(found) = run.value().await? else {
            return Err(Error::broken("the node answered READ with no messages"));
        };
        found.into_iter().map(Message::read).collect()
    }

    /// Append a message: await it. Options come before. The message is durable when it returns.
    pub fn publish(&self, value: impl Serialize) -> Publish {
        Publish { to: Publishing::new(self), value: given(value, "value"), id: None }
    }

    /// Append messages in one commit, all or none: await it. Options come before.
    pub fn publish_many<T: Serialize>(&self, values: impl IntoIterator<Item = T>) -> PublishMany {
        let value =
            |(n, value)| to_value(&value).map_err(|error| error.under(format_args!("values[{n}]")).into());
        let values = values.into_iter().enumerate().map(value).collect();
        PublishMany { to: Publishing::new(self), values }
    }

    /// Read messages behind a position, oldest first: await it. Options come before. The node also ends a page at
    /// 8 MiB.
    pub fn read(&self) -> Read {
        Read { topic: self.clone(), reader: None, after: 0, limit: READ_PAGE, wait: None }
    }

    /// Return a stream of messages, to the end of the topic or for ever.
    pub fn messages(&self) -> Messages {
        Messages::new(self.read())
    }

    /// Return a handle on a reader: a position in the topic that the node keeps.
    pub fn reader(&self, name: &str) -> Reader {
        Reader { topic: self.clone(), name: name.into() }
    }

    /// Return a handle on a consumer group.
    pub fn group(&self, name: &str) -> Group {
        Group::new(self.clone(), name)
    }

    /// Return the answer of INFO FOR TOPIC.
    pub async fn info(&self) -> Result<Object> {
        self.info_of(format!("INFO FOR TOPIC {}", self.quoted()?)).await
    }
}

fn request(client: &Client, op: &'static str, body: Body, wait: Option<Duration>) -> Request {
    let timeout = client.timeout().map(|timeout| timeout + wait.unwrap_or_default());
    let body = body.duration_if("timeout", timeout.map(SignedDuration::from));
    Request { waits: wait.is_some(), timeout: with_grace(timeout), op, ..Request::new(Kind::Topic, body) }
}

#[derive(Debug)]
struct Publishing {
    client: Client,
    body: Result<Body>,
    key: Option<String>,
    headers: Object,
    delay: Option<Duration>,
    at: Option<DateTime>,
    expect: Option<i64>,
}

impl Publishing {
    fn new(topic: &Topic) -> Self {
        let (client, body) = (topic.db.client().clone(), topic.body("publish"));
        Self { client, body, key: None, headers: Object::new(), delay: None, at: None, expect: None }
    }

    /// Return the request, to whose body the messages are added.
    fn into_request(self, add: impl FnOnce(Body) -> Result<Body>) -> Result<Request> {
        let mut body = self.body?.str_if("key", self.key.as_deref());
        if !self.headers.is_empty() {
            body = body.value("headers", &Value::Object(self.headers))?;
        }
        body = body.duration_if("delay", self.delay.map(SignedDuration::from)).int_if("expect", self.expect);
        if let Some(at) = self.at {
            body = body.value("at", &Value::DateTime(at))?;
        }
        Ok(request(&self.client, "publish", add(body)?, None))
    }
}

macro_rules! publishing {
    ($type:ident) => {
        impl $type {
            /// Set the key. Groups ordered by key deliver messages of one key in order.
            pub fn key(mut self, key: impl Into<String>) -> Self {
                self.to.key = Some(key.into());
                self
            }

            /// Add a header.
            pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.to.headers.insert(name.into(), Value::String(value.into()));
                self
            }

            /// Delay the delivery to groups.
            pub fn delay(mut self, delay: Duration) -> Self {
                self.to.delay = Some(delay);
                self
            }

            /// Set the time of the delivery to groups.
            pub fn at(mut self, at: DateTime) -> Self {
                self.to.at = Some(at);
                self
            }

            /// Refuse with [`AssertFailed`](crate::Code::AssertFailed) unless this is the position of the topic's
            /// last message.
            pub fn expect(mut self, position: i64) -> Self {
                self.to.expect = Some(position);
                self
            }
        }
    };
}

publishing!(Publish);
publishing!(PublishMany);

/// Place of a message that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Position of the message.
    pub position: i64,
    /// True if a message with that id was there already.
    pub duplicate: bool,
}

/// A message to append: await it. Options come before.
#[must_use = "a message is appended when this is awaited"]
#[derive(Debug)]
pub struct Publish {
    to: Publishing,
    value: Result<Value>,
    id: Option<String>,
}

impl Publish {
    /// Set the id. A second message with that id within the topic's DEDUP window is not appended.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    fn into_request(self) -> Result<Request> {
        self.to.into_request(|body| body.str_if("id", self.id.as_deref()).value("value", &self.value?))
    }
}

impl IntoFuture for Publish {
    type Output = Result<Published>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // Built here: what the future holds is moved with it.
        let client = self.to.client.clone();
        let request = self.into_request();
        Box::pin(async move {
            let request = request.as_ref().map_err(Error::clone)?;
            let mut found = client.change(request, How::once()).await?;
            let duplicate = optional(&mut found, "duplicate")?.unwrap_or(false);
            Ok(Published { position: needed(&mut found, "position")?, duplicate })
        })
    }
}

/// Places of messages that were published together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// Position of the first message.
    pub first: i64,
    /// Position of the last message.
    pub last: i64,
}

/// Messages to append in one commit: await it. Options come before.
#[must_use = "messages are appended when this is awaited"]
#[derive(Debug)]
pub struct PublishMany {
    to: Publishing,
    values: Result<Vec<Value>>,
}

impl PublishMany {
    async fn send(self) -> Result<Appended> {
        let client = self.to.client.clone();
        let request = self.to.into_request(|body| body.values("values", &self.values?))?;
        let mut found = client.change(&request, How::once()).await?;
        Ok(Appended { first: needed(&mut found, "first")?, last: needed(&mut found, "last")? })
    }
}

impl IntoFuture for PublishMany {
    type Output = Result<Appended>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A page of messages to read: await it. Options come before.
#[must_use = "messages are read when this is awaited"]
#[derive(Clone, Debug)]
pub struct Read {
    topic: Topic,
    reader: Option<Arc<str>>,
    after: i64,
    limit: u32,
    wait: Option<Duration>,
}

impl Read {
    /// Read behind a position; 0: from the start. That of a reader is its own.
    pub fn after(mut self, position: i64) -> Self {
        self.after = position;
        self
    }

    /// Read so many messages at most. The default is 1000, which is the most.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Wait for the first message, at most five minutes.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = Some(time).filter(|time| !time.is_zero());
        self
    }

    async fn send(self) -> Result<Vec<Message>> {
        let topic = self.topic.quoted()?;
        let (after, limit) = (self.after, self.limit);
        match self.reader {
            None => {
                let text = format!("READ FROM {topic} AFTER $after LIMIT $limit");
                self.topic.page(text, |run| run.bind("after", after).bind("limit", limit), self.wait).await
            }
            Some(name) => {
                let text = format!("READ FROM {topic} AS {} LIMIT $limit", quote(&name)?);
                self.topic.page(text, |run| run.bind("limit", limit), self.wait).await
            }
        }
    }
}

impl IntoFuture for Read {
    type Output = Result<Vec<Message>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A place in a topic.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Place {
    /// Behind a position, which counts as read; 0: the start.
    After(i64),
    /// The first message of that time or later.
    Time(DateTime),
    /// Behind the last message.
    End,
}

/// A named position in a topic, which the node keeps.
#[derive(Clone, Debug)]
pub struct Reader {
    topic: Topic,
    name: Arc<str>,
}

impl Reader {
    async fn run(&self, before: &str, behind: &str, place: Option<Place>) -> Result<()> {
        let on = format!("{} ON {}", quote(&self.name)?, self.topic.quoted()?);
        let (clause, at) = match place {
            None => ("", None),
            Some(Place::After(position)) => ("$at", Some(Value::Int(position))),
            Some(Place::Time(at)) => ("TIME $at", Some(Value::DateTime(at))),
            Some(Place::End) => ("END", None),
        };
        let mut run = self.topic.db.run(format!("{before} {on}{behind}{clause}"));
        if let Some(at) = at {
            run = run.bind("at", at);
        }
        run.answer().await.map(drop)
    }

    /// Declare the reader at the start of the topic if it does not exist.
    pub async fn define(&self) -> Result<()> {
        self.run("DEFINE READER IF NOT EXISTS", "", None).await
    }

    /// Declare the reader at a place if it does not exist.
    pub async fn define_at(&self, place: Place) -> Result<()> {
        self.run("DEFINE READER IF NOT EXISTS", " AT ", Some(place)).await
    }

    /// Read messages behind the reader's position, without moving it: await it. Options come before.
    pub fn read(&self) -> Read {
        Read { reader: Some(Arc::clone(&self.name)), ..self.topic.read() }
    }

    /// Move the reader behind a position.
    pub async fn commit(&self, position: i64) -> Result<()> {
        self.run("COMMIT READER", " AT ", Some(Place::After(position))).await
    }

    /// Move the reader to a place.
    pub async fn move_to(&self, place: Place) -> Result<()> {
        self.run("ALTER READER", " SET POSITION ", Some(place)).await
    }

    /// Return a stream of the messages behind the reader's position.
    ///
    /// The position is committed after each page, and by [`Messages::commit`]: an interrupted reader gets messages of
    /// its last page again.
    pub fn messages(&self) -> Messages {
        Messages::new(self.read())
    }

    /// Drop the reader in the store.
    pub async fn remove(&self) -> Result<()> {
        self.run("DROP READER", "", None).await
    }
}

struct Paging {
    read: Read,
    follow: bool,
    page: std::vec::IntoIter<Message>,
    /// Position of the last message that the caller has got.
    done: i64,
    committed: i64,
    has_read: bool,
    is_over: bool,
}

impl Paging {
    async fn commit(&mut self) -> Result<()> {
        if self.done > self.committed {
            match &self.read.reader {
                Some(name) => {
                    Reader { topic: self.read.topic.clone(), name: Arc::clone(name) }
                        .commit(self.done)
                        .await?
                }
                None => self.read.after = self.done,
            }
            self.committed = self.done;
        }
        Ok(())
    }

    async fn fetch(&mut self) -> Result<Vec<Message>> {
        self.commit().await?;
        let wait = self.follow.then_some(LONGEST_WAIT);
        Read { wait, ..self.read.clone() }.send().await
    }

    async fn next(&mut self) -> Result<Option<Message>> {
        let mut outages = Outages::new();
        loop {
            if let Some(message) = self.page.next() {
                self.done = message.position;
                return Ok(Some(message));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.fetch().await {
                Ok(page) => {
                    outages.reset();
                    self.has_read = true;
                    self.is_over = page.is_empty() && !self.follow;
                    self.page = page.into_iter();
                }
                Err(error) if self.follow && (self.has_read || error.is_retryable()) => {
                    outages.wait(error, None).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn step(mut paging: Paging) -> BoxFuture<(Paging, Option<Result<Message>>)> {
    Box::pin(async move {
        let found = paging.next().await;
        paging.is_over |= found.is_err();
        (paging, found.transpose())
    })
}

/// A stream of messages. Options come before its first message.
#[must_use = "a stream sends nothing before it is polled"]
pub struct Messages {
    steps: Steps<Paging, Result<Message>>,
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").finish_non_exhaustive()
    }
}

impl Messages {
    fn new(read: Read) -> Self {
        let page = Vec::new().into_iter();
        let paging =
            Paging { read, follow: false, page, done: 0, committed: 0, has_read: false, is_over: false };
        Self { steps: Steps::new(paging, step) }
    }

    /// Begin behind a position; 0: the start. That of a reader is its own.
    pub fn after(self, position: i64) -> Self {
        Self { steps: self.steps.with(|paging| paging.read.after = position) }
    }

    /// Go on for ever, through outages, in the place of ending with the topic's last message.
    pub fn follow(self) -> Self {
        Self { steps: self.steps.with(|paging| paging.follow = true) }
    }

    /// Return the next message; `None` behind the last.
    pub async fn next(&mut self) -> Option<Result<Message>> {
        std::future::poll_fn(|cx| self.steps.poll_next(cx)).await
    }

    /// Commit the position of a reader behind the last message that came, and end the stream.
    pub async fn commit(self) -> Result<()> {
        match self.steps.into_state() {
            Some(mut paging) => paging.commit().await,
            None => Ok(()),
        }
    }
}

impl Stream for Messages {
    type Item = Result<Message>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().steps.poll_next(cx)
    }
}
