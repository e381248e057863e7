//! State of one connection: requests under way, bytes to write, messages that come. It does no I/O.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::answers::{Answer, read_answer, read_error, read_welcome};
use crate::errors::{Error, Failure, Refusal, Result};
use crate::feeds::Queue;
use crate::frames::{Body, FRAME_MOST, Fields, Kind, Message, write_frame};
use crate::tables::Code;

/// Size of a frame beside which a node may hear no PING.
const LARGE_FRAME: usize = 4 << 10;
/// Bytes that wait to be written; past them requests wait.
const OUT_MOST: usize = 1 << 20;

/// Times of a connection that may have been lost without a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    /// Without a byte while something is open; then the peer is asked.
    pub(crate) quiet: Duration,
    /// For anything to come of that.
    pub(crate) answer: Duration,
    /// Likewise, of a node that has said BYE and cannot be asked.
    pub(crate) leaving: Duration,
    /// For an AUTH to be answered, and for a node to close that has answered all.
    pub(crate) grace: Duration,
}

/// Time past a request's own timeout for the node's answer about it to arrive.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

impl Default for Pulse {
    fn default() -> Self {
        let quiet = Duration::from_secs(20);
        Self { quiet, answer: quiet, leaving: Duration::from_secs(60), grace: GRACE }
    }
}

/// A request, apart from its id.
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) body: Option<Body>,
    /// True if it waits for future data: the end of the client ends it.
    pub(crate) waits: bool,
    /// Time after which it is given up; the node has its own.
    pub(crate) timeout: Option<Duration>,
    /// Minor that the node has to speak, and the reason.
    pub(crate) needs: Option<(i64, &'static str)>,
    /// Name of the operation, for traces.
    pub(crate) op: &'static str,
}

impl Request {
    pub(crate) fn new(kind: Kind, body: Body) -> Self {
        Self { body: Some(body), ..Self::bare(kind) }
    }

    pub(crate) fn bare(kind: Kind) -> Self {
        Self { kind, body: None, waits: false, timeout: None, needs: None, op: "" }
    }
}

/// Reply to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Answer(Box<Answer>),
    Fields(Fields),
    Nothing,
}

impl Reply {
    pub(crate) fn answer(self) -> Result<Answer> {
        match self {
            Self::Answer(answer) => Ok(*answer),
            _ => Err(Error::broken("the node sent no answer to a script")),
        }
    }

    pub(crate) fn fields(self) -> Result<Fields> {
        match self {
            Self::Fields(fields) => Ok(fields),
            _ => Err(Error::broken("the node sent no value")),
        }
    }
}

/// Receiver of the reply to a request.
pub(crate) enum Sink {
    Reply(oneshot::Sender<Result<Reply, Failure>>),
    /// Messages of a feed, or parts of a snapshot, and the end of them.
    Stream(Arc<Queue>),
    Ignored,
}

impl Sink {
    fn settle(self, outcome: Result<Reply, Failure>) {
        match self {
            // Nobody waits any more if this fails.
            Self::Reply(to) => drop(to.send(outcome)),
            Self::Stream(queue) => queue.end(outcome),
            Self::Ignored => {}
        }
    }
}

/// A request under way.
struct Call {
    kind: Kind,
    waits: bool,
    is_large: bool,
    sink: Sink,
}

/// Hasher of ids. They are counted up here, so that no peer can have them collide.
#[derive(Default)]
struct IdHasher {
    id: u64,
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, id: u64) {
        // Odd, and near 2^64 divided by the golden ratio: it spreads counted numbers over all bits.
        self.id = (self.id ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.id
    }
}

/// State of a request that is given up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    Unsent,
    Written,
    Answered,
}

/// Result of looking after a peer that says nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Look again then.
    At(Instant),
    /// The connection is lost.
    Lost(&'static str),
    /// Nothing is open, and the node does not close.
    Over,
}

pub(crate) struct Exchange {
    pulse: Pulse,
    out: Vec<u8>,
    /// Requests in `out`: their ids, and where their frames begin and end.
    unsent: Vec<(u64, usize, usize)>,
    /// Frames that wait for room, with their ids.
    waiting: VecDeque<(u64, Vec<u8>)>,
    calls: HashMap<u64, Call, BuildHasherDefault<IdHasher>>,
    large: usize,
    last: u64,
    /// The last request that was written. All before it were, too.
    written: u64,
    pub(crate) is_leaving: bool,
    said_bye: bool,
    is_over: bool,
    cause: Option<Error>,
    /// True if parts of a backup are not taken, so that nothing is read.
    pub(crate) is_stalled: bool,
    heard: Instant,
    /// Time since which something is open, or nothing.
    changed: Instant,
    pinged: Option<Instant>,
}

impl Exchange {
    pub(crate) fn new(pulse: Pulse, now: Instant) -> Self {
        Self {
            pulse,
            out: Vec::new(),
            unsent: Vec::new(),
            waiting: VecDeque::new(),
            calls: HashMap::default(),
            large: 0,
            last: 0,
            written: 0,
            is_leaving: false,
            said_bye: false,
            is_over: false,
            cause: None,
            is_stalled: false,
            heard: now,
            changed: now,
            pinged: None,
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_over && !self.is_leaving
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn cause(&self) -> Option<Error> {
        self.cause.clone()
    }

    // --- requests ------------------------------------------------------------------------------------

    /// Send a request, or have it wait for room. Return its id. The node has to show the sequence `after` before.
    pub(crate) fn begin(
        &mut self,
        request: &Request,
        after: Option<i64>,
        sink: Sink,
        now: Instant,
    ) -> Result<u64, Failure> {
        if !self.is_usable() {
            return Err(Failure::NotSent);
        }
        self.open(request, after, sink, now)
    }

    fn open(
        &mut self,
        request: &Request,
        after: Option<i64>,
        sink: Sink,
        now: Instant,
    ) -> Result<u64, Failure> {
        let id = self.last + 1;
        let waits_for_room = self.out.len() > OUT_MOST || !self.waiting.is_empty();
        let mut own = Vec::new();
        let to = if waits_for_room { &mut own } else { &mut self.out };
        let start = to.len();
        let size = write_frame(to, request.kind, id, request.body.as_ref(), after);
        let end = to.len();
        if size > FRAME_MOST {
            to.truncate(start);
            let reason = format!("a request has at most {FRAME_MOST} bytes, this one has {size}");
            return Err(Error::argument(reason).into());
        }
        match waits_for_room {
            true => self.waiting.push_back((id, own)),
            false => self.unsent.push((id, start, end)),
        }
        self.last = id;
        if self.calls.is_empty() {
            self.changed = now;
        }
        let is_large = size > LARGE_FRAME;
        self.large += usize::from(is_large);
        let Request { kind, waits, .. } = *request;
        self.calls.insert(id, Call { kind, waits, is_large, sink });
        Ok(id)
    }

    /// Put what is to be written into an empty vector, and count it as written.
    pub(crate) fn take_output(&mut self, into: &mut Vec<u8>) -> bool {
        if self.is_over || self.out.is_empty() {
            return false;
        }
        into.clear();
        into.shrink_to(2 * OUT_MOST);
        std::mem::swap(&mut self.out, into);
        if let Some((last, _, _)) = self.unsent.last() {
            self.written = *last;
        }
        self.unsent.clear();
        while self.out.len() <= OUT_MOST {
            let Some((id, frame)) = self.waiting.pop_front() else { break };
            let start = self.out.len();
            self.out.extend_from_slice(&frame);
            self.unsent.push((id, start, self.out.len()));
        }
        true
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    fn say(&mut self, kind: Kind, id: u64) {
        write_frame(&mut self.out, kind, id, None, None);
    }

    /// Return if an open request was written; `None`: it is not open.
    fn is_written(&self, id: u64) -> Option<bool> {
        self.calls.contains_key(&id).then_some(id <= self.written)
    }

    /// Ask the node to end a request early. Its answer is waited for.
    pub(crate) fn send_end(&mut self, id: u64) {
        if self.is_over || self.said_bye {
            return;
        }
        match self.calls.get(&id).map(|call| call.kind) {
            Some(Kind::Run | Kind::Topic) => self.say(Kind::Cancel, id),
            Some(Kind::Watch) => self.say(Kind::Unwatch, id),
            _ => {}
        }
    }

    /// Have the node end a request early. One that was not written is over at once.
    pub(crate) fn stop(&mut self, id: u64, now: Instant) {
        match self.is_written(id) {
            Some(true) => self.send_end(id),
            Some(false) => {
                if let Some(call) = self.take_back(id, now) {
                    let refusal = Refusal::local(Code::Cancelled, 408, "it was ended before it was sent");
                    call.sink.settle(Err(Error::from(refusal).into()));
                }
            }
            None => {}
        }
    }

    /// End a request that nobody waits for any more. Its answer is dropped.
    pub(crate) fn give_up(&mut self, id: u64, now: Instant) -> GivenUp {
        match self.is_written(id) {
            None => GivenUp::Answered,
            Some(true) => {
                self.send_end(id);
                self.forget(id, now);
                GivenUp::Written
            }
            Some(false) => {
                self.take_back(id, now);
                GivenUp::Unsent
            }
        }
    }

    /// Remove a request of which nothing was written.
    fn take_back(&mut self, id: u64, now: Instant) -> Option<Call> {
        if let Some(at) = self.unsent.iter().position(|(one, _, _)| *one == id) {
            let (_, start, end) = self.unsent.remove(at);
            self.out.drain(start..end);
            for (_, from, to) in &mut self.unsent[at..] {
                *from -= end - start;
                *to -= end - start;
            }
        } else {
            self.waiting.retain(|(one, _)| *one != id);
        }
        self.forget(id, now)
    }

    fn forget(&mut self, id: u64, now: Instant) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.large -= usize::from(call.is_large);
        if self.calls.is_empty() {
            self.changed = now;
        }
        Some(call)
    }

    // --- messages ------------------------------------------------------------------------------------

    /// Act on a message. An error ends the connection.
    pub(crate) fn on_message(&mut self, message: Message, now: Instant) -> Result<()> {
        let Message { kind, id, body, size } = message;
        match kind {
            Kind::Bye => {
                self.is_leaving = true;
                self.reject_waiting();
                self.say_bye(now);
            }
            Kind::Error | Kind::Refused if id == 0 => return Err(read_error(body)),
            Kind::Change | Kind::Part => self.on_stream(kind, id, body, size)?,
            // The answer of a request that was given up is dropped.
            _ => {
                if let Some(call) = self.forget(id, now) {
                    call.sink.settle(read_reply(call.kind, kind, body));
                }
            }
        }
        Ok(())
    }

    fn on_stream(&mut self, kind: Kind, id: u64, body: Fields, size: usize) -> Result<()> {
        let Some(call) = self.calls.get(&id) else { return Ok(()) };
        let queue = match &call.sink {
            Sink::Stream(queue) if (call.kind == Kind::Watch) == (kind == Kind::Change) => queue,
            _ => return Err(Error::broken(format!("the node sent {} to {}", kind.name(), call.kind.name()))),
        };
        let is_full = queue.push(body, size);
        match kind {
            Kind::Part => self.is_stalled |= is_full,
            _ if is_full => self.send_end(id),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn on_bytes(&mut self, now: Instant) {
        self.heard = now;
    }

    // --- liveness ------------------------------------------------------------------------------------

    /// Judge a peer that says nothing.
    pub(crate) fn look(&mut self, now: Instant) -> Look {
        let pulse = self.pulse;
        if self.calls.is_empty() {
            self.pinged = None;
            if !self.said_bye {
                return Look::At(now + pulse.quiet);
            }
            let end = self.changed + pulse.grace;
            return if now >= end { Look::Over } else { Look::At(end) };
        }
        let silence = self.heard.max(self.changed);
        match self.pinged {
            Some(at) if self.heard <= at => {
                let time = if self.said_bye { pulse.leaving } else { pulse.answer };
                return match now >= at + time {
                    false => Look::At(at + time),
                    true if self.said_bye => Look::Lost("nothing came any more behind the node's BYE"),
                    true => Look::Lost("nothing came any more, not in answer to a PING either"),
                };
            }
            _ => self.pinged = None,
        }
        if now < silence + pulse.quiet {
            return Look::At(silence + pulse.quiet);
        }
        // A node may read on only once a large request is answered, and hears no PING meanwhile.
        if self.is_stalled || (self.large > 0 && !self.said_bye) {
            return Look::At(now + pulse.quiet);
        }
        self.pinged = Some(now);
        if self.said_bye {
            return Look::At(now + pulse.leaving);
        }
        if let Err(Failure::Error(error)) = self.open(&Request::bare(Kind::Ping), None, Sink::Ignored, now) {
            debug_assert!(false, "{error}");
        }
        Look::At(now + pulse.answer)
    }

    // --- the end -------------------------------------------------------------------------------------

    /// Say BYE behind the last request, once.
    pub(crate) fn say_bye(&mut self, now: Instant) {
        if !self.said_bye && !self.is_over {
            self.said_bye = true;
            self.say(Kind::Bye, 0);
            if self.calls.is_empty() {
                self.changed = now;
            }
        }
    }

    /// Begin nothing more, and end all that waits for future data.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        self.reject_waiting();
        let waits = |call: &Call| call.waits || call.kind == Kind::Watch;
        let ended: Vec<u64> = self.calls.iter().filter(|(_, call)| waits(call)).map(|(id, _)| *id).collect();
        for id in ended {
            self.send_end(id);
        }
    }

    /// Return requests that wait for room: they go elsewhere.
    fn reject_waiting(&mut self) {
        for (id, _) in std::mem::take(&mut self.waiting) {
            if let Some(call) = self.calls.remove(&id) {
                self.large -= usize::from(call.is_large);
                call.sink.settle(Err(Failure::NotSent));
            }
        }
    }

    /// End the connection. Written requests have an unknown outcome, the others go elsewhere.
    pub(crate) fn end(&mut self, cause: Option<Error>) -> bool {
        if self.is_over {
            return false;
        }
        self.is_over = true;
        self.waiting.clear();
        self.unsent.clear();
        self.out = Vec::new();
        // In their order, so that those which go elsewhere keep it.
        let mut calls: Vec<_> = self.calls.drain().collect();
        calls.sort_unstable_by_key(|(id, _)| *id);
        for (id, call) in calls {
            call.sink.settle(Err(match id <= self.written {
                true => {
                    let message = format!("the connection ended before {} was answered", call.kind.name());
                    Error::unknown(message, cause.clone()).into()
                }
                false => Failure::NotSent,
            }));
        }
        self.cause = cause;
        true
    }
}

fn read_reply(asked: Kind, kind: Kind, body: Fields) -> Result<Reply, Failure> {
    match (kind, asked) {
        (Kind::Value, Kind::Kv | Kind::Topic | Kind::Vault) => Ok(Reply::Fields(body)),
        (Kind::Answer, Kind::Run) => Ok(Reply::Answer(Box::new(read_answer(body)?))),
        (Kind::Answer, Kind::Watch) | (Kind::Pong, Kind::Ping) => Ok(Reply::Nothing),
        (Kind::Welcome, Kind::Auth) => read_welcome(body).map(|_| Reply::Nothing).map_err(Failure::from),
        (Kind::Error, _) => Err(read_error(body).into()),
        _ => Err(Error::broken(format!("the node answered {} with {}", asked.name(), kind.name())).into()),
    }
}

#[cfg(test)]
impl Exchange {
    pub(crate) fn open_calls(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn written_calls(&self) -> usize {
        self.calls.keys().filter(|id| **id <= self.written).count()
    }
}
