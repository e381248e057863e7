//! Consumer groups.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::answers::{Answer, as_field, needed, optional};
use crate::attempts::Outages;
use crate::client::check_positive;
use crate::errors::{Error, InvalidArgument, Result};
use crate::feeds::sleep_or;
use crate::frames::Body;
use crate::runs::{Call, Run};
use crate::tables::Code;
use crate::topics::{LONGEST_WAIT, Message, Topic};
use crate::values::{DateTime, Object, SignedDuration, Value, check_name, quote};
use crate::waits::{BoxFuture, Exclusive, Flag, News, lock};

/// Messages of one TAKE.
const TAKE_MOST: usize = 1000;
/// Receipts in one request.
const RECEIPTS_MOST: usize = 250;
/// Extensions within a deadline.
const EXTENSIONS: u32 = 3;
/// Pause between two extensions, however short the group's deadline is.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

const RECEIPT: &str = "storeclient_receipt";
const STALE: &str = "storeclient: the receipt is stale";
const GIVEN_BACK: &str = "given back: its consumer stopped before it was worked on";

/// Result of settling messages by their receipts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Number of messages that were settled.
    pub done: u64,
    /// Receipts that came too late: the message was delivered again, settled before, or is gone.
    pub stale: Vec<String>,
}

/// An operation that settles messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Ack,
    Nack,
    Extend,
    GiveUp,
}

impl Op {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Ack => ("ack", "acked"),
            Self::Nack => ("nack", "nacked"),
            Self::Extend => ("extend", "extended"),
            Self::GiveUp => ("give_up", "given_up"),
        }
    }
}

/// A handle on a consumer group: its members share the messages of a topic.
///
/// A message is delivered again if it is not acknowledged before its deadline.
#[derive(Clone)]
pub struct Group {
    topic: Topic,
    name: Arc<str>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("topic", &self.topic).field("name", &self.name).finish()
    }
}

impl Group {
    pub(crate) fn new(topic: Topic, name: &str) -> Self {
        Self { topic, name: name.into() }
    }

    fn body(&self, op: &str) -> Result<Body> {
        check_name(&self.name)?;
        Ok(self.topic.body(op)?.str("group", &self.name))
    }

    /// Take messages: await it. Options come before.
    pub fn take(&self) -> Take {
        Take { group: self.clone(), count: 1, member: None, wait: None }
    }

    async fn take_for(&self, owner: &Owner, take: &Take, stop: Option<Arc<Flag>>) -> Result<Vec<Delivery>> {
        if let Some(wait) = take.wait {
            check_positive("wait", wait)?;
        }
        let body =
            self.body("take")?.int("count", take.count.into()).str_if("member", take.member.as_deref());
        let body = body.duration_if("wait", take.wait.map(SignedDuration::from));
        let mut found = self.topic.ask("take", body, take.wait, stop).await?;
        let messages: Vec<Value> = needed(&mut found, "messages")?;
        messages.into_iter().map(|message| Delivery::read(message, owner.clone())).collect()
    }

    async fn settle<T: AsRef<str>>(
        &self,
        op: Op,
        receipts: &[T],
        add: impl FnOnce(Body) -> Body,
    ) -> Result<Settled> {
        let (name, done) = op.names();
        let body = add(self.body(name)?.strings("receipts", receipts));
        let mut found = self.topic.ask(name, body, None, None).await?;
        Ok(Settled { done: needed(&mut found, done)?, stale: needed(&mut found, "stale_receipts")? })
    }

    /// Acknowledge messages by their receipts.
    pub async fn ack<T: AsRef<str>>(&self, receipts: &[T]) -> Result<Settled> {
        self.settle(Op::Ack, receipts, |body| body).await
    }

    /// Return messages to the group: await it. Options come before.
    pub fn nack<T: AsRef<str>>(&self, receipts: &[T]) -> Nack<Settled> {
        let receipts = receipts.iter().map(|receipt| receipt.as_ref().to_owned()).collect();
        Nack { group: self.clone(), held_by: None, receipts, delay: None, error: None, read: Ok }
    }

    /// Set the deadlines of messages to `by` from now.
    pub async fn extend<T: AsRef<str>>(&self, receipts: &[T], by: Duration) -> Result<Settled> {
        check_positive("by", by)?;
        self.settle(Op::Extend, receipts, |body| body.duration_if("by", Some(by.into()))).await
    }

    /// Make messages dead letters.
    pub async fn give_up<T: AsRef<str>>(&self, receipts: &[T], error: Option<&str>) -> Result<Settled> {
        self.settle(Op::GiveUp, receipts, |body| body.str_if("error", error)).await
    }

    /// Run a script and acknowledge a message in one transaction; see [`Delivery::done`].
    pub fn done(&self, receipt: &str, script: impl Into<String>) -> Done {
        let run = self.topic.db.run(script);
        Done { group: self.clone(), held_by: None, receipt: receipt.to_owned(), run }
    }

    /// Return a consumer, which takes messages as they arrive. Options come before.
    pub fn messages(&self) -> ConsumerBuilder {
        ConsumerBuilder { group: self.clone(), member: None, prefetch: 32, extend: false }
    }

    /// Return the answer of INFO FOR GROUP.
    pub async fn info(&self) -> Result<Object> {
        self.topic.info_of(format!("INFO FOR GROUP {} ON {}", quote(&self.name)?, self.topic.quoted()?)).await
    }
}

/// Messages to take: await it. Options come before.
#[must_use = "messages are taken when this is awaited"]
#[derive(Debug)]
pub struct Take {
    group: Group,
    count: u32,
    member: Option<String>,
    wait: Option<Duration>,
}

impl Take {
    /// Take so many messages at most, 1 to 1000. The default is 1.
    pub fn count(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// Name the consumer in INFO FOR GROUP.
    pub fn member(mut self, name: impl Into<String>) -> Self {
        self.member = Some(name.into());
        self
    }

    /// Wait for the first message, at most five minutes.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = Some(time).filter(|time| !time.is_zero());
        self
    }
}

impl IntoFuture for Take {
    type Output = Result<Vec<Delivery>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.group.take_for(&Owner::Group(self.group.clone()), &self, None).await })
    }
}

/// Settles deliveries: one by one, or with others of a consumer.
#[derive(Clone)]
enum Owner {
    Group(Group),
    Consumer(Arc<Shared>),
}

impl Owner {
    fn group(&self) -> &Group {
        match self {
            Self::Group(group) => group,
            Self::Consumer(shared) => &shared.group,
        }
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        match self {
            Self::Group(_) => None,
            Self::Consumer(shared) => Some(Arc::clone(shared)),
        }
    }
}

/// A message that was delivered to a member of a group.
#[derive(Clone)]
pub struct Delivery {
    message: Message,
    receipt: String,
    attempt: u32,
    deadline: DateTime,
    member: Option<String>,
    owner: Owner,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, receipt, attempt, .. } = self;
        f.debug_struct("Delivery")
            .field("message", message)
            .field("receipt", receipt)
            .field("attempt", attempt)
            .finish_non_exhaustive()
    }
}

impl Deref for Delivery {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl Delivery {
    fn read(found: Value, owner: Owner) -> Result<Self> {
        let mut body: Object = as_field(found, "a message")?;
        Ok(Self {
            message: Message::take_from(&mut body)?,
            receipt: needed(&mut body, "receipt")?,
            attempt: needed(&mut body, "attempt")?,
            deadline: needed(&mut body, "deadline")?,
            member: optional(&mut body, "member")?,
            owner,
        })
    }

    /// Return the receipt, by which the group settles the message.
    pub fn receipt(&self) -> &str {
        &self.receipt
    }

    /// Return the number of deliveries, this one included.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Return the time from which another member may get the message, by the node's log time.
    pub fn deadline(&self) -> DateTime {
        self.deadline
    }

    /// Return the name of the member, as it was given.
    pub fn member(&self) -> Option<&str> {
        self.member.as_deref()
    }

    /// Acknowledge the message, durably. False: it came too late, and another member may have the message.
    ///
    /// Of a consumer, acknowledgements travel together and go through outages;
    /// [outcome unknown](Error::is_outcome_unknown) means that the connection broke and the message is settled, by this
    /// acknowledgement or by its deadline.
    pub async fn ack(&self) -> Result<bool> {
        match &self.owner {
            Owner::Group(group) => Ok(group.ack(&[&self.receipt]).await?.done > 0),
            Owner::Consumer(shared) => shared.ack(&self.receipt).await,
        }
    }

    /// Run a script and acknowledge the message in one transaction: the message takes effect exactly once.
    ///
    /// The script has no BEGIN, COMMIT or CANCEL. Awaited, it returns `None` if it came too late: nothing was changed.
    pub fn done(&self, script: impl Into<String>) -> Done {
        Done { held_by: self.owner.shared(), ..self.owner.group().done(&self.receipt, script) }
    }

    /// Return the message to the group: await it. Options come before. False: it came too late.
    pub fn nack(&self) -> Nack<bool> {
        let receipts = vec![self.receipt.clone()];
        let read = |settled: Settled| Ok(settled.done > 0);
        Nack {
            group: self.owner.group().clone(),
            held_by: self.owner.shared(),
            receipts,
            delay: None,
            error: None,
            read,
        }
    }

    /// Set the deadline to `by` from now. False: it came too late.
    pub async fn extend(&self, by: Duration) -> Result<bool> {
        let shared = self.owner.shared();
        if let Some(shared) = &shared {
            shared.extended(&self.receipt, Some(Instant::now() + by));
        }
        let found = self.owner.group().extend(&[&self.receipt], by).await;
        if let (Err(_), Some(shared)) = (&found, &shared) {
            shared.extended(&self.receipt, None); // it may not have been extended
        }
        Ok(found?.done > 0)
    }

    /// Make the message a dead letter. False: it came too late.
    pub async fn give_up(&self, error: Option<&str>) -> Result<bool> {
        if let Some(shared) = self.owner.shared() {
            shared.settled(&self.receipt);
        }
        Ok(self.owner.group().give_up(&[&self.receipt], error).await?.done > 0)
    }
}

/// Messages to return to their group: await it. Options come before.
#[must_use = "messages are returned when this is awaited"]
pub struct Nack<T> {
    group: Group,
    held_by: Option<Arc<Shared>>,
    receipts: Vec<String>,
    delay: Option<Duration>,
    error: Option<String>,
    read: fn(Settled) -> Result<T>,
}

impl<T> fmt::Debug for Nack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nack").field("receipts", &self.receipts).finish_non_exhaustive()
    }
}

impl<T> Nack<T> {
    /// Set the time before the next delivery, in the place of the group's backoff.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Keep an error with the message, and in the headers of its dead letter.
    pub fn error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    async fn send(self) -> Result<T> {
        if let Some(shared) = &self.held_by {
            self.receipts.iter().for_each(|receipt| shared.settled(receipt));
        }
        let delay = self.delay.map(SignedDuration::from);
        let add = |body: Body| body.duration_if("delay", delay).str_if("error", self.error.as_deref());
        (self.read)(self.group.settle(Op::Nack, &self.receipts, add).await?)
    }
}

impl<T: 'static> IntoFuture for Nack<T> {
    type Output = Result<T>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A script to run in one transaction with the acknowledgement of a message: await it. Options come before.
#[must_use = "a script runs when it is awaited"]
pub struct Done {
    group: Group,
    held_by: Option<Arc<Shared>>,
    receipt: String,
    run: Run,
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").field("receipt", &self.receipt).field("run", &self.run).finish_non_exhaustive()
    }
}

impl Done {
    /// Bind a value to `$name` in the script.
    pub fn bind(mut self, name: &str, value: impl Serialize) -> Self {
        self.run = self.run.bind(name, value);
        self
    }

    /// Limit the script at the node, in the place of the client's limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.run = self.run.timeout(timeout);
        self
    }

    fn whole(&self) -> Result<(Run, usize)> {
        if self.run.params.get()?.contains_key(RECEIPT) {
            let error = InvalidArgument::new("the client names its own parameter so");
            return Err(error.under(format_args!("${RECEIPT}")).into());
        }
        let (topic, group) = (self.group.topic.quoted()?, quote(&self.group.name)?);
        // On the line where the script begins, so that its lines keep their numbers.
        let before = format!(
            "BEGIN; LET ${RECEIPT}_ack = ACK {topic} AS {group} RECEIPTS [${RECEIPT}]; \
             IF ${RECEIPT}_ack.stale > 0 {{ THROW '{STALE}' }}; "
        );
        let mut run = self.run.again();
        run.script = format!("{before}{}\n;COMMIT", self.run.script);
        Ok((run.bind(RECEIPT, &self.receipt).repeatable(), before.chars().count()))
    }

    async fn once(&self) -> Result<Option<Answer>> {
        let (run, before) = self.whole()?;
        match run.answer().await {
            Ok(answer) => Ok(Some(answer.within(3))),
            Err(Error::Refused(mut refusal)) => {
                let thrown = refusal.detail.get("value").and_then(Value::as_str);
                if refusal.code == Code::Thrown && thrown == Some(STALE) {
                    return Ok(None);
                }
                refusal.statement = refusal.statement.map(|statement| statement.saturating_sub(3).max(1));
                if refusal.line == Some(1) {
                    let before = before as u32;
                    refusal.column = refusal.column.map(|column| column.saturating_sub(before).max(1));
                }
                Err(Error::Refused(refusal))
            }
            Err(error) => Err(error),
        }
    }

    async fn send(self) -> Result<Option<Answer>> {
        let Some(shared) = &self.held_by else { return self.once().await };
        let mut outages = Outages::new();
        loop {
            match self.once().await {
                Ok(found) => {
                    shared.settled(&self.receipt);
                    return Ok(found);
                }
                Err(error) => outages.wait(error, Some(&shared.stopping)).await?,
            }
        }
    }
}

impl IntoFuture for Done {
    type Output = Result<Option<Answer>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// Options of a [`Consumer`].
#[must_use = "a consumer is made by build"]
#[derive(Debug)]
pub struct ConsumerBuilder {
    group: Group,
    member: Option<String>,
    prefetch: usize,
    extend: bool,
}

impl ConsumerBuilder {
    /// Name the consumer in INFO FOR GROUP.
    pub fn member(mut self, name: impl Into<String>) -> Self {
        self.member = Some(name.into());
        self
    }

    /// Take so many messages ahead. The default is 32. The deadline of a message starts when it is taken.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages;
        self
    }

    /// Extend the deadlines of messages until they are settled, for work that takes longer than these.
    pub fn extend(mut self) -> Self {
        self.extend = true;
        self
    }

    /// Return the consumer. It takes nothing before its first message is asked for.
    pub fn build(self) -> Consumer {
        let failure = match self.prefetch {
            0 => Some(
                InvalidArgument::new("a consumer takes at least one message ahead").under("prefetch").into(),
            ),
            _ => None,
        };
        let state = State { failure, ..State::default() };
        let shared = Shared {
            group: self.group,
            member: self.member,
            prefetch: self.prefetch,
            extends: self.extend,
            state: Mutex::new(state),
            news: News::default(),
            stopping: Arc::default(),
            stopped: Flag::default(),
        };
        Consumer { handle: Arc::new(Handle { shared: Arc::new(shared) }), waiting: Exclusive::default() }
    }
}

struct PendingAck {
    receipt: String,
    to: oneshot::Sender<Result<bool>>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Delivery>,
    /// Messages that were given out and not settled, with the time until which each was extended by hand.
    held: HashMap<String, Option<Instant>>,
    acks: Vec<PendingAck>,
    is_acking: bool,
    has_begun: bool,
    stale: u64,
    failure: Option<Error>,
    /// Result of returning messages when the consumer stopped.
    given_back: Option<Result<()>>,
}

struct Shared {
    group: Group,
    member: Option<String>,
    prefetch: usize,
    extends: bool,
    state: Mutex<State>,
    news: News,
    stopping: Arc<Flag>,
    stopped: Flag,
}

impl Shared {
    fn settled(&self, receipt: &str) {
        lock(&self.state).held.remove(receipt);
    }

    fn extended(&self, receipt: &str, until: Option<Instant>) {
        if let Some(held) = lock(&self.state).held.get_mut(receipt) {
            *held = until;
        }
    }

    fn fail(&self, error: Error) {
        lock(&self.state).failure.get_or_insert(error);
        self.news.announce();
    }

    /// Begin to take messages, once.
    fn begin(self: &Arc<Self>) {
        {
            let mut state = lock(&self.state);
            if state.has_begun || state.failure.is_some() || self.stopping.is_set() {
                return;
            }
            state.has_begun = true;
        }
        let shared = Arc::clone(self);
        self.group.topic.db.client().nodes().track(async move { shared.work().await });
    }

    async fn work(self: Arc<Self>) {
        let taking = async {
            if let Err(error) = self.take_ahead().await {
                self.fail(error);
            }
        };
        let extending = async {
            if self.extends {
                if let Err(error) = self.keep_extending().await {
                    self.fail(error);
                }
            }
        };
        tokio::join!(taking, extending);
        let closing = &self.group.topic.db.client().nodes().closing;
        tokio::select! {
            () = self.stopping.wait() => {}
            () = closing.wait() => {}
        }
        self.news.until(|| (!lock(&self.state).is_acking).then_some(())).await;
        let given_back = self.give_back().await;
        lock(&self.state).given_back = Some(given_back);
        self.stopped.set();
    }

    async fn take_ahead(self: &Arc<Self>) -> Result<()> {
        let mut outages = Outages::new();
        let mut has_taken = false;
        // Few large requests rather than one for each message.
        let missing = || {
            let missing = self.prefetch.saturating_sub(lock(&self.state).ready.len());
            (missing >= self.prefetch.div_ceil(2)).then_some(missing)
        };
        while let Some(missing) = self.stopping.or(self.news.until(missing)).await {
            let take = Take {
                group: self.group.clone(),
                count: missing.min(TAKE_MOST) as u32,
                member: self.member.clone(),
                wait: Some(LONGEST_WAIT),
            };
            let owner = Owner::Consumer(Arc::clone(self));
            match self.group.take_for(&owner, &take, Some(Arc::clone(&self.stopping))).await {
                Ok(found) => {
                    lock(&self.state).ready.extend(found);
                    self.news.announce();
                    outages.reset();
                    has_taken = true;
                }
                Err(error) if self.stopping.is_set() && error.is(Code::Cancelled) => break,
                Err(error) if has_taken || error.is_retryable() => {
                    outages.wait(error, Some(&self.stopping)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn keep_extending(&self) -> Result<()> {
        let closing = Arc::clone(&self.group.topic.db.client().nodes().closing);
        let mut outages = Outages::new();
        let mut deadline = None;
        while !self.stopping.is_set() && !closing.is_set() {
            match self.extend_once(&mut deadline).await {
                Ok(deadline) => {
                    outages.reset();
                    let pause = (deadline / EXTENSIONS).max(LEAST_PAUSE);
                    let sleeping = closing.or(sleep_or(pause, &self.stopping));
                    sleeping.await;
                }
                Err(_) if self.stopping.is_set() || closing.is_set() => break,
                Err(error) => outages.wait(error, Some(&self.stopping)).await?,
            }
        }
        Ok(())
    }

    async fn extend_once(&self, deadline: &mut Option<Duration>) -> Result<Duration> {
        if let Some(deadline) = *deadline {
            self.extend_all(deadline).await?;
            return Ok(deadline);
        }
        let found: SignedDuration = needed(&mut self.group.info().await?, "deadline")?;
        let found = Duration::try_from(found).unwrap_or_default();
        *deadline = Some(found);
        Ok(found)
    }

    /// Extend what is held, and forget what is not this consumer's any more.
    async fn extend_all(&self, deadline: Duration) -> Result<()> {
        let until = Instant::now() + deadline;
        let receipts: Vec<String> = {
            let state = lock(&self.state);
            let held = state.held.iter().filter(|(_, by_hand)| by_hand.is_none_or(|by_hand| by_hand < until));
            let ready = state.ready.iter().map(|delivery| delivery.receipt.clone());
            held.map(|(receipt, _)| receipt.clone()).chain(ready).collect()
        };
        for some in receipts.chunks(RECEIPTS_MOST) {
            let stale = self.group.extend(some, deadline).await?.stale;
            let mut state = lock(&self.state);
            state.ready.retain(|delivery| !stale.contains(&delivery.receipt));
            for gone in &stale {
                state.held.remove(gone);
            }
            drop(state);
            self.news.announce();
        }
        Ok(())
    }

    async fn ack(self: &Arc<Self>, receipt: &str) -> Result<bool> {
        let (to, from) = oneshot::channel();
        let begins = {
            let mut state = lock(&self.state);
            state.held.remove(receipt);
            state.acks.push(PendingAck { receipt: receipt.to_owned(), to });
            !std::mem::replace(&mut state.is_acking, true)
        };
        if begins {
            let shared = Arc::clone(self);
            self.group.topic.db.client().nodes().track(async move { shared.send_acks().await });
        }
        from.await.unwrap_or_else(|_| Err(Error::unknown("the acknowledgement was dropped", None)))
    }

    /// Send acknowledgements, one request after the other, until none is left.
    async fn send_acks(&self) {
        loop {
            // Acknowledgements of one turn leave in one request.
            tokio::task::yield_now().await;
            let batch = {
                let mut state = lock(&self.state);
                // Those that nobody waits for any more are not sent.
                state.acks.retain(|one| !one.to.is_closed());
                let count = state.acks.len().min(RECEIPTS_MOST);
                if count == 0 {
                    state.is_acking = false;
                    break;
                }
                state.acks.drain(..count).collect::<Vec<_>>()
            };
            let receipts: Vec<&str> = batch.iter().map(|one| one.receipt.as_str()).collect();
            let mut outages = Outages::new();
            let outcome = loop {
                match self.group.ack(&receipts).await {
                    Ok(settled) => break Ok(settled.stale),
                    Err(error) => {
                        if let Err(error) = outages.wait(error, Some(&self.stopping)).await {
                            break Err(error);
                        }
                    }
                }
            };
            self.settle_acks(batch, outcome, outages.unsure);
        }
        self.news.announce();
    }

    fn settle_acks(&self, batch: Vec<PendingAck>, outcome: Result<Vec<String>>, unsure: bool) {
        let stale = match outcome {
            Ok(stale) => stale,
            Err(error) => {
                // Nobody waits any more where this fails, here and below.
                batch.into_iter().for_each(|one| drop(one.to.send(Err(error.clone()))));
                return;
            }
        };
        let mut left: HashMap<&str, u32> = HashMap::new();
        for receipt in &stale {
            *left.entry(receipt).or_default() += 1;
        }
        let mut late = 0;
        // Of a receipt that stands there twice the first was in time.
        for one in batch.into_iter().rev() {
            let outcome = match left.get_mut(one.receipt.as_str()).filter(|count| **count > 0) {
                None => Ok(true),
                Some(count) => {
                    *count -= 1;
                    match unsure {
                        false => {
                            late += 1;
                            Ok(false)
                        }
                        true => Err(Error::unknown(
                            "the connection broke under the acknowledgement, and the node no longer has the message: \
                             it was in time, or it was not",
                            None,
                        )),
                    }
                }
            };
            drop(one.to.send(outcome));
        }
        lock(&self.state).stale += late;
    }

    async fn give_back(&self) -> Result<()> {
        let receipts: Vec<String> = {
            let mut state = lock(&self.state);
            let ready = std::mem::take(&mut state.ready);
            if state.failure.is_some() {
                return Ok(()); // the error is the caller's; the messages come again after their deadline
            }
            ready.into_iter().map(|delivery| delivery.receipt).collect()
        };
        for some in receipts.chunks(RECEIPTS_MOST) {
            self.group.nack(some).delay(Duration::ZERO).error(GIVEN_BACK).await?;
        }
        Ok(())
    }

    async fn next(self: Arc<Self>) -> Option<Result<Delivery>> {
        self.begin();
        let check = || {
            let mut state = lock(&self.state);
            if self.stopping.is_set() {
                return Some(None);
            }
            if let Some(found) = state.ready.pop_front() {
                if self.extends {
                    state.held.insert(found.receipt.clone(), None);
                }
                return Some(Some(Ok(found)));
            }
            state.failure.clone().map(|error| Some(Err(error)))
        };
        let found = self.news.until(check).await;
        self.news.announce();
        found
    }
}

/// Stops the consumer with its last handle.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stopping.set();
        self.shared.news.announce();
    }
}

/// A stream of the messages of a group as they arrive, for ever.
///
/// It prefetches, and goes through outages once the node has answered; a message whose delivery was lost is delivered
/// again after its deadline. Clones share the messages. With the last clone it stops: messages that were taken ahead go
/// back to the group. [`Consumer::stop`] waits for that.
pub struct Consumer {
    handle: Arc<Handle>,
    waiting: Exclusive<Option<BoxFuture<Option<Result<Delivery>>>>>,
}

impl Clone for Consumer {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), waiting: Exclusive::default() }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("group", &self.handle.shared.group).finish_non_exhaustive()
    }
}

impl Consumer {
    /// Return the number of acknowledgements that came too late.
    pub fn stale(&self) -> u64 {
        lock(&self.handle.shared.state).stale
    }

    /// Wait for the next message; `None`: the consumer was stopped.
    pub async fn next(&self) -> Option<Result<Delivery>> {
        Arc::clone(&self.handle.shared).next().await
    }

    /// Stop taking messages, wait for the acknowledgements in flight, and return prefetched messages to the group, which
    /// counts as an attempt of these. Streams end. A second stop does nothing more.
    pub async fn stop(&self) -> Result<()> {
        let shared = &self.handle.shared;
        shared.stopping.set();
        shared.news.announce();
        if !lock(&shared.state).has_begun {
            return Ok(());
        }
        shared.stopped.wait().await;
        lock(&shared.state).given_back.clone().unwrap_or(Ok(()))
    }
}

#[cfg(test)]
impl Consumer {
    /// Return the number of messages that are held, given out or not.
    pub(crate) fn held(&self) -> usize {
        let state = lock(&self.handle.shared.state);
        state.held.len() + state.ready.len()
    }
}

impl Stream for Consumer {
    type Item = Result<Delivery>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let shared = &this.handle.shared;
        let waiting = this.waiting.get().get_or_insert_with(|| Box::pin(Arc::clone(shared).next()));
        let found = std::task::ready!(waiting.as_mut().poll(cx));
        *this.waiting.get() = None;
        Poll::Ready(found)
    }
}
