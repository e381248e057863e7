//! The program that the conformance suite drives: clients/conformance/README.md. It makes the calls that it reads.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::Stream;
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};
use storenode::*;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// An error of a call.
enum Failed {
    Store(Error),
    Loader,
    Skip(&'static str),
    Misuse(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

type Found = Result<Json, Failed>;

fn misuse<T>(text: impl Into<String>) -> Result<T, Failed> {
    Err(Failed::Misuse(text.into()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// --- values ------------------------------------------------------------------------------------------

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for some in bytes.chunks(3) {
        let all = some.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - some.len()));
        for n in 0..4 {
            let digit = DIGITS[(all >> (18 - 6 * n) & 63) as usize] as char;
            text.push(if n > some.len() { '=' } else { digit });
        }
    }
    text
}

fn of_base64(text: &str) -> Vec<u8> {
    let (mut sum, mut bits, mut bytes) = (0u32, 0, Vec::new());
    for digit in text.bytes().filter_map(|one| DIGITS.iter().position(|digit| *digit == one)) {
        sum = sum << 6 | digit as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((sum >> bits) as u8);
            sum &= (1 << bits) - 1;
        }
    }
    bytes
}

/// A tagged value, which serializes as the value that it stands for.
#[derive(Clone)]
struct Tagged(Json);

/// The tag of an object and its contents.
fn tag(fields: &Map<String, Json>) -> Option<(&str, &Json)> {
    let (name, inner) = fields.iter().next().filter(|_| fields.len() == 1)?;
    name.starts_with('$').then_some((name, inner))
}

fn key_of(json: &Json) -> Option<RecordKey> {
    if let Json::Array(keys) = json {
        return Some(RecordKey::Array(keys.iter().map(key_of).collect::<Option<_>>()?));
    }
    match to_value(&Tagged(json.clone())).ok()? {
        Value::Int(key) => Some(RecordKey::Int(key)),
        Value::String(key) => Some(RecordKey::String(key)),
        Value::Uuid(key) => Some(RecordKey::Uuid(key)),
        _ => None,
    }
}

impl Serialize for Tagged {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let fields = match &self.0 {
            Json::Null => return to.serialize_unit(),
            Json::Bool(value) => return to.serialize_bool(*value),
            Json::String(value) => return to.serialize_str(value),
            Json::Number(_) => return Err(S::Error::custom("a number is never a value")),
            Json::Array(items) => return to.collect_seq(items.iter().map(|item| Tagged(item.clone()))),
            Json::Object(fields) => fields,
        };
        let plain = |to: S, fields: &Map<String, Json>| {
            let mut map = to.serialize_map(Some(fields.len()))?;
            for (name, item) in fields {
                map.serialize_entry(name, &Tagged(item.clone()))?;
            }
            map.end()
        };
        let Some((name, inner)) = tag(fields) else { return plain(to, fields) };
        let text = inner.as_str().unwrap_or_default();
        let wrong = |error: &dyn std::fmt::Display| S::Error::custom(error);
        match name {
            "$int" => to.serialize_i64(text.parse().map_err(|error| wrong(&error))?),
            "$float" => to.serialize_f64(text.parse().map_err(|error| wrong(&error))?),
            "$none" => Value::None.serialize(to),
            "$dt" => text.parse::<DateTime>().map_err(|error| wrong(&error))?.serialize(to),
            "$dec" => text.parse::<Decimal>().map_err(|error| wrong(&error))?.serialize(to),
            "$uuid" => text.parse::<Uuid>().map_err(|error| wrong(&error))?.serialize(to),
            "$dur" => SignedDuration::from_micros(text.parse().map_err(|error| wrong(&error))?).serialize(to),
            "$bytes" => to.serialize_bytes(&of_base64(text)),
            "$rec" => match (inner[0].as_str(), key_of(&inner[1])) {
                (Some(table), Some(key)) => RecordId::new(table, key).serialize(to),
                _ => Err(wrong(&"no id of a record")),
            },
            "$obj" => plain(to, inner.as_object().unwrap_or(&Map::new())),
            "$bad" => match text {
                "nan" => to.serialize_f64(f64::NAN),
                "infinity" => to.serialize_f64(f64::INFINITY),
                "int" => to.serialize_u64(1 << 63),
                "object" => to.collect_map([(1, 2)]),
                "year" => Err(wrong(
                    &DateTime::from_micros(i64::MAX)
                        .map_or_else(|error| error.to_string(), |at| at.to_string()),
                )),
                "deep" => (0..2000).fold(Value::Null, |inner, _| Value::Array(vec![inner])).serialize(to),
                _ => Err(wrong(&"unknown")),
            },
            "$search" => query(inner).ok_or_else(|| wrong(&"no query"))?.serialize(to),
            "$vector" => {
                let texts = inner.as_array().into_iter().flatten().filter_map(Json::as_str);
                let numbers: Result<Vec<f32>, _> = texts.map(str::parse).collect();
                numbers.map_err(|error| wrong(&error))?.serialize(to)
            }
            _ => plain(to, fields),
        }
    }
}

/// The query that a function of the client makes.
fn query(made: &Json) -> Option<Value> {
    let (name, given) = made.as_array()?.split_first()?;
    let given: Vec<Value> =
        given.iter().map(|one| to_value(&Tagged(one.clone()))).collect::<Result<_, _>>().ok()?;
    let text = || given.first()?.as_str();
    let count = || u32::try_from(given.get(1)?.as_int()?).ok();
    Some(match name.as_str()? {
        "any" => search::any(given),
        "all" => search::all(given),
        "not" => search::not(given.first()?.clone()),
        "phrase" => search::phrase(text()?, count()?),
        "prefix" => search::prefix(text()?),
        "fuzzy" => search::fuzzy(text()?, count()?),
        "boost" => match given.as_slice() {
            [query, Value::Float(by)] => search::boost(query.clone(), *by),
            _ => return None,
        },
        _ => return None,
    })
}

/// The tagged form of a value.
fn tagged(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => int(*value),
        Value::Float(value) => json!({ "$float": format!("{value:?}") }),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!({ "$bytes": to_base64(value) }),
        Value::Decimal(value) => json!({ "$dec": value.as_str() }),
        Value::DateTime(value) => json!({ "$dt": value.to_string() }),
        Value::Duration(value) => json!({ "$dur": value.as_micros().to_string() }),
        Value::Uuid(value) => json!({ "$uuid": value.to_string() }),
        Value::Record(value) => json!({ "$rec": [value.table, tagged_key(&value.key)] }),
        Value::Array(items) => items.iter().map(tagged).collect(),
        Value::Object(fields) => tagged_object(fields),
        _ => json!({ "$none": true }),
    }
}

fn tagged_key(key: &RecordKey) -> Json {
    match key {
        RecordKey::Int(key) => int(*key),
        RecordKey::String(key) => json!(key),
        RecordKey::Uuid(key) => json!({ "$uuid": key.to_string() }),
        RecordKey::Array(keys) => keys.iter().map(tagged_key).collect(),
        other => json!(other.to_string()),
    }
}

fn tagged_object(fields: &Object) -> Json {
    let found: Map<String, Json> = fields.iter().map(|(name, item)| (name.clone(), tagged(item))).collect();
    if tag(&found).is_some() { json!({ "$obj": found }) } else { Json::Object(found) }
}

fn int(value: impl std::fmt::Display) -> Json {
    json!({ "$int": value.to_string() })
}

fn maybe_int(value: Option<impl std::fmt::Display>) -> Json {
    value.map_or(Json::Null, int)
}

fn time(value: DateTime) -> Json {
    tagged(&Value::DateTime(value))
}

// --- answers -----------------------------------------------------------------------------------------

fn position_of(position: &Position) -> Json {
    json!({ "seq": int(position.seq), "store": position.store, "epoch": maybe_int(position.epoch) })
}

fn results_of(results: &[StatementResult]) -> Json {
    let result = |one: &StatementResult| {
        let kind = match &one.kind {
            ResultKind::Other(kind) => kind.clone(),
            kind => format!("{kind:?}").to_lowercase(),
        };
        let took = tagged(&Value::Duration(one.took.into()));
        json!({ "value": tagged(&one.value), "kind": kind, "rows": int(one.rows), "took": took, "changed": maybe_int(one.changed) })
    };
    results.iter().map(result).collect()
}

fn answer_of(answer: &Answer) -> Json {
    let mut found = position_of(&answer.position());
    found["results"] = results_of(&answer.results);
    found
}

fn message_of(message: &Message) -> Json {
    json!({
        "position": int(message.position), "at": time(message.at), "key": message.key, "id": message.id,
        "headers": message.headers, "value": tagged(&message.value), "bytes": int(message.bytes),
    })
}

fn delivery_of(delivery: &Delivery) -> Json {
    let mut found = message_of(delivery);
    found["receipt"] = json!(delivery.receipt());
    found["attempt"] = int(delivery.attempt());
    found["deadline"] = time(delivery.deadline());
    found["member"] = json!(delivery.member());
    found
}

fn commit_of(commit: &Commit) -> Json {
    let change = |one: &Change| {
        json!({
            "action": format!("{:?}", one.action).to_lowercase(),
            "id": tagged(&Value::Record(one.id.clone())),
            "value": one.value.as_ref().map(tagged),
            "before": one.before.as_ref().map(tagged),
            "missing": one.missing.map(|missing| format!("{missing:?}").to_lowercase()),
        })
    };
    json!({
        "seq": int(commit.seq), "at": time(commit.at), "by": commit.by, "reason": commit.reason,
        "changes": commit.changes.iter().map(change).collect::<Json>(), "position": position_of(&commit.position),
    })
}

fn settled_of(settled: Settled) -> Json {
    json!({ "done": int(settled.done), "stale": int(settled.stale.len()), "stale_receipts": settled.stale })
}

fn error_of(error: &Error) -> Json {
    let kind = match error {
        Error::Closed => "Closed",
        error if error.is_outcome_unknown() => "OutcomeUnknown",
        Error::Refused(_) => "Refused",
        Error::Unreachable { .. } => "Unreachable",
        Error::ProtocolBroken(_) => "ProtocolBroken",
        Error::Io(error) if error.kind() == std::io::ErrorKind::AlreadyExists => "Exists",
        Error::InvalidArgument(_) | Error::Decode(_) => "Invalid",
        _ => "Testee",
    };
    let mut text = format!("{error} {error:?}");
    let (mut cause, mut at) = (Json::Null, std::error::Error::source(error));
    while let Some(one) = at {
        text.push_str(&format!("\n{one}"));
        let code = one.downcast_ref::<Error>().and_then(Error::code);
        if let (Json::Null, Some(code)) = (&cause, code) {
            cause = json!(code.as_str());
        }
        at = one.source();
    }
    let mut found = json!({ "kind": kind, "text": text, "cause": cause });
    if let Error::InvalidArgument(argument) = error {
        found["path"] = json!(argument.path);
    }
    if let Some(refusal) = error.refusal() {
        found["code"] = json!(refusal.code.as_str());
        found["message"] = json!(refusal.message);
        found["status"] = json!(refusal.status);
        found["retry"] = json!(refusal.retry);
        found["detail"] = tagged_object(&refusal.detail);
        found["request"] = json!(refusal.request);
        found["statement"] = json!(refusal.statement);
        found["line"] = json!(refusal.line);
        found["column"] = json!(refusal.column);
        found["results"] = results_of(&refusal.results);
    }
    found
}

// --- calls -------------------------------------------------------------------------------------------

/// A call, and its arguments.
#[derive(Clone)]
struct Call(Arc<Json>);

impl Call {
    fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    fn need(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    fn int(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Json::Bool(true))
    }

    fn time(&self, name: &str) -> Option<Duration> {
        let seconds = self.get(name)?.as_f64()? / 1000.0;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let items = self.get(name).and_then(Json::as_array).cloned().unwrap_or_default();
        items.iter().filter_map(Json::as_str).map(str::to_owned).collect()
    }

    fn value(&self, name: &str) -> Tagged {
        Tagged(self.0.get(name).cloned().unwrap_or_default())
    }

    fn params(&self) -> Map<String, Json> {
        self.get("params").and_then(Json::as_object).cloned().unwrap_or_default()
    }
}

/// Apply an option to a builder if the call has it.
macro_rules! with {
    ($builder:ident, $($method:ident($value:expr)),* $(,)?) => {
        $(if let Some(value) = $value { $builder = $builder.$method(value); })*
    };
}

/// Something that goes on for ever, of which items are asked for one at a time.
enum Going {
    Messages(Mutex<Option<Messages>>),
    Watch(Mutex<Option<Watch>>),
    Consumer(Consumer),
}

struct Iteration {
    going: Going,
    stopped: watch::Sender<bool>,
}

#[derive(Clone)]
enum Thing {
    Client(Client, Arc<Mutex<Vec<Json>>>),
    Moment(Moment),
    Lease(Arc<Lease>),
    Iteration(Arc<Iteration>),
    Mirror(Arc<Mirror<Object>>, Arc<Mutex<Vec<Json>>>),
}

#[derive(Default)]
struct State {
    names: HashMap<String, Thing>,
    deliveries: HashMap<String, Delivery>,
    running: HashMap<u64, AbortHandle>,
    lets: HashMap<String, watch::Sender<bool>>,
}

#[derive(Clone, Default)]
struct Testee(Arc<Mutex<State>>);

/// Poll a stream without keeping it locked while it waits.
async fn next_of<S: Stream + Unpin>(of: &Mutex<Option<S>>) -> Option<S::Item> {
    std::future::poll_fn(|cx| match &mut *lock(of) {
        Some(stream) => Pin::new(stream).poll_next(cx),
        None => std::task::Poll::Ready(None),
    })
    .await
}

/// A read of a stream: a watch ends with a read that is cancelled.
struct Reading<'a>(Option<&'a Going>);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(Going::Watch(watch)) = self.0 {
            drop(lock(watch).take());
        }
    }
}

impl Testee {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Begin a call, which is answered when it ends.
    fn begin(&self, json: Json) {
        let id = json["id"].as_u64().unwrap_or_default();
        let (testee, call) = (self.clone(), Call(Arc::new(json)));
        let running = tokio::spawn(async move { testee.make(&call).await });
        self.state().running.insert(id, running.abort_handle());
        let testee = self.clone();
        tokio::spawn(async move {
            let answer = match running.await {
                Ok(Ok(value)) => json!({ "id": id, "value": value }),
                Ok(Err(Failed::Skip(why))) => json!({ "id": id, "skip": why }),
                Ok(Err(Failed::Store(error))) => json!({ "id": id, "error": error_of(&error) }),
                Ok(Err(Failed::Loader)) => json!({ "id": id, "error": kind("Loader", "the loader failed") }),
                Ok(Err(Failed::Misuse(text))) => json!({ "id": id, "error": kind("Testee", &text) }),
                Err(error) if error.is_cancelled() => json!({ "id": id, "error": kind("Cancelled", "") }),
                Err(error) => json!({ "id": id, "error": kind("Testee", &error.to_string()) }),
            };
            testee.state().running.remove(&id);
            let mut out = std::io::stdout().lock();
            writeln!(out, "{answer}").and_then(|()| out.flush()).expect("stdout is closed");
        });
    }

    fn reset(&self, own: u64) {
        let state = std::mem::take(&mut *self.state());
        for (id, running) in &state.running {
            if *id != own {
                running.abort();
            }
        }
        for thing in state.names.values() {
            if let Thing::Client(client, _) = thing {
                client.abort();
            }
        }
    }

    fn keep(&self, call: &Call, thing: Thing) {
        self.state().names.insert(call.need("as").to_owned(), thing);
    }

    fn named(&self, call: &Call) -> Result<Thing, Failed> {
        match self.state().names.get(call.need("on")) {
            Some(thing) => Ok(thing.clone()),
            None => misuse(format!("nothing is named {:?}", call.need("on"))),
        }
    }

    fn client(&self, call: &Call) -> Result<Client, Failed> {
        match self.named(call)? {
            Thing::Client(client, _) => Ok(client),
            _ => misuse("it is no client"),
        }
    }

    fn database(&self, call: &Call) -> Result<Database, Failed> {
        Ok(self.client(call)?.database(call.need("ns"), call.need("db")))
    }

    fn cache(&self, call: &Call) -> Result<Cache, Failed> {
        Ok(self.database(call)?.cache(call.need("space")))
    }

    fn topic(&self, call: &Call) -> Result<Topic, Failed> {
        Ok(self.database(call)?.topic(call.need("topic")))
    }

    fn group(&self, call: &Call) -> Result<Group, Failed> {
        Ok(self.topic(call)?.group(call.need("group")))
    }

    fn reader(&self, call: &Call) -> Result<Reader, Failed> {
        Ok(self.topic(call)?.reader(call.need("reader")))
    }

    fn vault(&self, call: &Call) -> Result<Vault, Failed> {
        Ok(self.database(call)?.vault(call.need("vault")))
    }

    fn seal(&self, call: &Call) -> Result<Seal, Failed> {
        match call.get("vault") {
            Some(_) => Ok(self.vault(call)?.own_seal()),
            None => Ok(self.client(call)?.store_seal()),
        }
    }

    fn delivery(&self, call: &Call) -> Result<Delivery, Failed> {
        match self.state().deliveries.get(call.need("receipt")) {
            Some(delivery) => Ok(delivery.clone()),
            None => misuse("no such delivery"),
        }
    }

    fn run(&self, call: &Call) -> Result<Run, Failed> {
        let script = call.need("script");
        let mut run = match self.named(call)? {
            Thing::Moment(moment) => moment.run(script),
            Thing::Client(client, _) if call.get("ns").is_none() => client.run(script),
            Thing::Client(client, _) => client.database(call.need("ns"), call.need("db")).run(script),
            _ => return misuse("it runs no scripts"),
        };
        for (name, value) in call.params() {
            run = run.bind(&name, Tagged(value));
        }
        with!(run, timeout(call.time("timeout")), reason(call.text("reason")), after(call.int("after")));
        if call.flag("repeatable") {
            run = run.repeatable();
        }
        if call.flag("record") {
            run = run.record();
        }
        if call.flag("current") {
            run = run.current();
        }
        Ok(run)
    }

    async fn make(&self, call: &Call) -> Found {
        if call.0.to_string().contains(r#"{"$bad":"naive"}"#) {
            return Err(Failed::Skip("a datetime of this client is in UTC"));
        }
        let name = call.need("call");
        match name.split_once('.').map_or(name, |(kind, _)| kind) {
            "cache" | "lease" => self.of_cache(call, name).await,
            "topic" | "reader" => self.of_topic(call, name).await,
            "group" | "delivery" => self.of_group(call, name).await,
            "watch" | "mirror" | "next" | "stop" => self.of_feed(call, name).await,
            "publisher" => Err(Failed::Skip("this client gathers no messages")),
            "seal" | "vault" | "backup" => self.of_vault(call, name).await,
            _ => self.of_client(call, name).await,
        }
    }

    async fn of_client(&self, call: &Call, name: &str) -> Found {
        match name {
            "hello" => Ok(json!({ "language": "rust", "version": VERSION, "minor": int(10) })),
            "reset" => {
                self.reset(call.0["id"].as_u64().unwrap_or_default());
                Ok(Json::Null)
            }
            "cancel" => {
                let running = self.state().running.get(&call.0["of"].as_u64().unwrap_or_default()).cloned();
                if let Some(running) = running {
                    running.abort();
                }
                Ok(Json::Null)
            }
            "let" => {
                self.let_of(call.need("name")).send_replace(true);
                Ok(Json::Null)
            }
            "open" => self.open(call),
            "connect" => {
                let welcome = self.client(call)?.connect().await?;
                let user = welcome.user.as_ref().and_then(|user| user.get("name")).map(tagged);
                Ok(
                    json!({ "node": welcome.node, "version": welcome.version, "minor": int(welcome.minor), "user": user }),
                )
            }
            "ping" => Ok(self.client(call)?.ping().await.map(|()| Json::Null)?),
            "close" => {
                self.client(call)?.close().await;
                Ok(Json::Null)
            }
            "describe" => Ok(json!(format!("{:?}", self.client(call)?))),
            "events" => {
                tokio::task::yield_now().await; // events of this turn are reported in the next one
                match self.named(call)? {
                    Thing::Client(_, events) => Ok(Json::Array(lock(&events).clone())),
                    _ => misuse("it is no client"),
                }
            }
            "run" => Ok(answer_of(&self.run(call)?.await?)),
            "transaction" => {
                let mut transaction = self.database(call)?.transaction();
                for one in call.get("statements").and_then(Json::as_array).cloned().unwrap_or_default() {
                    let statement = Call(Arc::new(one));
                    transaction = transaction.statement(statement.need("script"));
                    for (name, value) in statement.params() {
                        transaction = transaction.bind(&name, Tagged(value));
                    }
                }
                with!(transaction, timeout(call.time("timeout")), reason(call.text("reason")));
                if call.flag("repeatable") {
                    transaction = transaction.repeatable();
                }
                if call.flag("current") {
                    transaction = transaction.current();
                }
                Ok(answer_of(&transaction.await?))
            }
            "query" => Ok(tagged(&self.run(call)?.await?.value::<Value>()?)),
            "rows" => {
                let select = call.need("select");
                let mut rows = match self.named(call)? {
                    Thing::Moment(moment) => moment.rows::<Value>(select),
                    _ => self.database(call)?.rows::<Value>(select),
                };
                for (name, value) in call.params() {
                    rows = rows.bind(&name, Tagged(value));
                }
                with!(rows, page(call.int("page").map(|page| page.clamp(0, 1 << 31) as u32)));
                let mut found = Vec::new();
                while let Some(row) = rows.next().await {
                    found.push(tagged(&row?));
                }
                Ok(Json::Array(found))
            }
            "moment.open" => {
                let mut moment = self.database(call)?.moment();
                with!(moment, keep(call.time("keep")));
                let moment = moment.await?;
                let found = position_of(moment.position());
                self.keep(call, Thing::Moment(moment));
                Ok(found)
            }
            "moment.close" => match self.named(call)? {
                Thing::Moment(moment) => Ok(moment.close().await.map(|()| Json::Null)?),
                _ => misuse("it is no moment"),
            },
            "load" => self.load(call).await,
            _ => misuse(format!("no such call: {name}")),
        }
    }

    fn let_of(&self, name: &str) -> watch::Sender<bool> {
        self.state().lets.entry(name.to_owned()).or_insert_with(|| watch::Sender::new(false)).clone()
    }

    fn open(&self, call: &Call) -> Found {
        let addresses = match call.get("addresses") {
            Some(Json::String(text)) => vec![text.clone()],
            _ => call.texts("addresses"),
        };
        let mut addresses = addresses.into_iter();
        let mut builder = Client::builder(addresses.next().unwrap_or_default());
        for address in addresses {
            builder = builder.address(address);
        }
        if let Some(user) = call.text("user") {
            builder = builder.user(user, call.need("password"));
        }
        with!(
            builder,
            token(call.text("token")),
            timeout(call.time("timeout")),
            connect_timeout(call.time("connect_timeout"))
        );
        if call.text("reads") == Some("any") {
            builder = builder.reads(Reads::Any);
        }
        if let Some(tls) = call.get("tls") {
            let pem = std::fs::read(tls["ca"].as_str().unwrap_or_default()).map_err(Error::from)?;
            builder = builder.tls(Tls::new().ca(pem));
        }
        if let Some(times) = call.get("times") {
            let time = |name: &str, usual| Duration::from_millis(times[name].as_u64().unwrap_or(usual));
            builder = builder.times([
                time("quiet", 20_000),
                time("answer", 20_000),
                time("leaving", 60_000),
                time("grace", 5000),
            ]);
        }
        let events = Arc::<Mutex<Vec<Json>>>::default();
        let seen = Arc::clone(&events);
        let report = move |event| {
            let found = match event {
                ConnectionEvent::Connected { address, .. } => {
                    json!({ "change": "connected", "address": address, "cause": null })
                }
                ConnectionEvent::Reconnected { address, .. } => {
                    json!({ "change": "reconnected", "address": address, "cause": null })
                }
                ConnectionEvent::Lost { address, cause, .. } => {
                    json!({ "change": "lost", "address": address, "cause": cause.map(|cause| cause.to_string()) })
                }
                _ => Json::Null,
            };
            lock(&seen).push(found);
        };
        let client = builder.on_connection(report).build()?;
        self.keep(call, Thing::Client(client, events));
        Ok(Json::Null)
    }

    async fn of_cache(&self, call: &Call, name: &str) -> Found {
        if let Some(op) = name.strip_prefix("lease.") {
            let Thing::Lease(lease) = self.named(call)? else { return misuse("it is no lease") };
            return match op {
                "extend" => Ok(json!(match call.time("ttl") {
                    Some(ttl) => lease.extend_by(ttl).await?,
                    None => lease.extend().await?,
                })),
                "release" => Ok(json!(lease.release().await?)),
                "state" => Ok(
                    json!({ "lost": lease.is_lost(), "fence": int(lease.fence()), "until": time(lease.until()) }),
                ),
                _ => {
                    lease.lost().await;
                    Ok(Json::Null)
                }
            };
        }
        let (cache, key) = (self.cache(call)?, call.need("key"));
        match name {
            "cache.get" => {
                let found = cache.get::<Value>(key).await?;
                Ok(json!({ "found": found.is_some(), "value": found.as_ref().map(tagged) }))
            }
            "cache.set" => {
                let mut set = cache.set(key, call.value("value"));
                with!(set, ttl(call.time("ttl")));
                if call.flag("keep_ttl") {
                    set = set.keep_ttl();
                }
                Ok(set.await.map(|()| Json::Null)?)
            }
            "cache.set_if_absent" | "cache.set_if_present" | "cache.compare_and_set" => {
                let value = call.value("value");
                let mut set = match name {
                    "cache.set_if_absent" => cache.set_if_absent(key, value),
                    "cache.set_if_present" => cache.set_if_present(key, value),
                    _ => cache.compare_and_set(key, call.value("expect"), value),
                };
                with!(set, ttl(call.time("ttl")));
                Ok(json!(set.await?))
            }
            "cache.incr" => {
                let by = match call.get("by") {
                    Some(_) => to_value(&call.value("by")).map_err(Error::from)?.as_int().unwrap_or(1),
                    None => 1,
                };
                Ok(int(cache.incr(key, by).await?))
            }
            "cache.delete" => Ok(json!(cache.delete(key).await?)),
            "cache.persist" => Ok(json!(cache.persist(key).await?)),
            "cache.expire" => Ok(json!(cache.expire(key, call.time("ttl").unwrap_or_default()).await?)),
            "cache.ttl" => Ok(match cache.ttl(key).await? {
                None => Json::Null,
                Some(Ttl::In(left)) => tagged(&Value::Duration(left.into())),
                Some(_) => json!("never"),
            }),
            "cache.keys" => {
                let mut keys = cache.keys();
                with!(
                    keys,
                    prefix(call.text("prefix")),
                    after(call.text("after")),
                    limit(call.int("limit").map(|limit| limit as u32))
                );
                Ok(json!(keys.await?))
            }
            "cache.all_keys" => {
                let mut keys = cache.all_keys(call.text("prefix").unwrap_or_default());
                let mut found = Vec::new();
                while let Some(key) = keys.next().await {
                    found.push(key?);
                }
                Ok(json!(found))
            }
            "cache.get_or_set" => {
                let loads = Mutex::new(0);
                let (load, testee) = (call.value("load").0, self);
                let (load, count) = (&load, &loads);
                let loader = || async move {
                    *lock(count) += 1;
                    if let Some(name) = load["after"].as_str() {
                        let mut waiting = testee.let_of(name).subscribe();
                        drop(waiting.wait_for(|is_let| *is_let).await);
                    }
                    match load["fail"].as_bool() {
                        Some(true) => Err(Failed::Loader),
                        _ => Ok(to_value(&Tagged(load["value"].clone())).map_err(Error::from)?),
                    }
                };
                let value: Value = cache.get_or_set(key, call.time("ttl"), loader).await?;
                Ok(json!({ "value": tagged(&value), "loads": int(*lock(&loads)) }))
            }
            "cache.lock" => {
                let mut lock = cache.lock(key, call.time("ttl").unwrap_or_default());
                with!(lock, holder(call.text("holder")));
                if call.flag("renew") {
                    lock = lock.renew();
                }
                let Some(lease) = lock.await? else { return Ok(Json::Null) };
                let found = json!({ "fence": int(lease.fence()), "until": time(lease.until()) });
                self.keep(call, Thing::Lease(Arc::new(lease)));
                Ok(found)
            }
            _ => misuse(format!("no such call: {name}")),
        }
    }

    fn iterate(&self, call: &Call, going: Going) -> Found {
        self.keep(call, Thing::Iteration(Arc::new(Iteration { going, stopped: watch::Sender::new(false) })));
        Ok(Json::Null)
    }

    fn place(call: &Call) -> Result<Option<Place>, Failed> {
        Ok(match call.get("at") {
            None => None,
            Some(Json::String(_)) => Some(Place::End),
            Some(Json::Number(at)) => Some(Place::After(at.as_i64().unwrap_or_default())),
            Some(_) => match to_value(&call.value("at")).map_err(Error::from)? {
                Value::DateTime(at) => Some(Place::Time(at)),
                _ => return misuse("no place"),
            },
        })
    }

    async fn of_topic(&self, call: &Call, name: &str) -> Found {
        let topic = self.topic(call)?;
        let headers = call.get("headers").and_then(Json::as_object).cloned().unwrap_or_default();
        let headers =
            headers.into_iter().map(|(name, value)| (name, value.as_str().unwrap_or_default().to_owned()));
        let messages = |found: Vec<Message>| found.iter().map(message_of).collect::<Json>();
        match name {
            "topic.publish" => {
                let mut publish = topic.publish(call.value("value"));
                with!(
                    publish,
                    key(call.text("key")),
                    id(call.text("message_id")),
                    delay(call.time("delay")),
                    expect(call.int("expect"))
                );
                if let Some(Place::Time(at)) = Self::place(call)? {
                    publish = publish.at(at);
                }
                for (name, value) in headers {
                    publish = publish.header(name, value);
                }
                let found = publish.await?;
                Ok(json!({ "position": int(found.position), "duplicate": found.duplicate }))
            }
            "topic.publish_many" => {
                let values = call.get("values").and_then(Json::as_array).cloned().unwrap_or_default();
                let mut publish = topic.publish_many(values.into_iter().map(Tagged));
                with!(publish, key(call.text("key")), delay(call.time("delay")), expect(call.int("expect")));
                for (name, value) in headers {
                    publish = publish.header(name, value);
                }
                let found = publish.await?;
                Ok(json!({ "first": int(found.first), "last": int(found.last) }))
            }
            "topic.read" | "reader.read" => {
                let mut read = if name == "topic.read" { topic.read() } else { self.reader(call)?.read() };
                with!(
                    read,
                    after(call.int("after")),
                    limit(call.int("limit").map(|limit| limit as u32)),
                    wait(call.time("wait"))
                );
                Ok(messages(read.await?))
            }
            "topic.messages" | "reader.messages" => {
                let mut found =
                    if name == "topic.messages" { topic.messages() } else { self.reader(call)?.messages() };
                with!(found, after(call.int("after")));
                if call.flag("follow") {
                    found = found.follow();
                }
                self.iterate(call, Going::Messages(Mutex::new(Some(found))))
            }
            "reader.define" => {
                let reader = self.reader(call)?;
                match Self::place(call)? {
                    Some(place) => reader.define_at(place).await?,
                    None => reader.define().await?,
                }
                Ok(Json::Null)
            }
            "reader.commit" => {
                self.reader(call)?.commit(call.int("position").unwrap_or_default()).await?;
                Ok(Json::Null)
            }
            "reader.move" => {
                self.reader(call)?.move_to(Self::place(call)?.unwrap_or(Place::After(0))).await?;
                Ok(Json::Null)
            }
            "reader.drop" => {
                self.reader(call)?.remove().await?;
                Ok(Json::Null)
            }
            _ => misuse(format!("no such call: {name}")),
        }
    }

    async fn of_group(&self, call: &Call, name: &str) -> Found {
        let receipts = call.texts("receipts");
        let (by, error) = (call.time("by").unwrap_or_default(), call.text("error"));
        match name {
            "group.take" => {
                let mut take = self.group(call)?.take();
                with!(
                    take,
                    count(call.int("count").map(|count| count as u32)),
                    member(call.text("member")),
                    wait(call.time("wait"))
                );
                let found = take.await?;
                let mut state = self.state();
                state.deliveries.extend(found.iter().map(|one| (one.receipt().to_owned(), one.clone())));
                Ok(found.iter().map(delivery_of).collect())
            }
            "group.ack" => Ok(settled_of(self.group(call)?.ack(&receipts).await?)),
            "group.nack" => {
                let mut nack = self.group(call)?.nack(&receipts);
                with!(nack, delay(call.time("delay")), error(error));
                Ok(settled_of(nack.await?))
            }
            "group.extend" => Ok(settled_of(self.group(call)?.extend(&receipts, by).await?)),
            "group.give_up" => Ok(settled_of(self.group(call)?.give_up(&receipts, error).await?)),
            "group.messages" => {
                let mut consumer = self.group(call)?.messages();
                with!(
                    consumer,
                    prefetch(call.int("prefetch").map(|prefetch| prefetch as usize)),
                    member(call.text("member"))
                );
                if call.flag("extend") {
                    consumer = consumer.extend();
                }
                self.iterate(call, Going::Consumer(consumer.build()))
            }
            "delivery.ack" => Ok(json!(self.delivery(call)?.ack().await?)),
            "delivery.nack" => {
                let mut nack = self.delivery(call)?.nack();
                with!(nack, delay(call.time("delay")), error(error));
                Ok(json!(nack.await?))
            }
            "delivery.extend" => Ok(json!(self.delivery(call)?.extend(by).await?)),
            "delivery.give_up" => Ok(json!(self.delivery(call)?.give_up(error).await?)),
            "delivery.done" => {
                let mut done = self.delivery(call)?.done(call.need("script"));
                for (name, value) in call.params() {
                    done = done.bind(&name, Tagged(value));
                }
                Ok(done.await?.as_ref().map_or(Json::Null, answer_of))
            }
            _ => misuse(format!("no such call: {name}")),
        }
    }

    async fn of_feed(&self, call: &Call, name: &str) -> Found {
        match name {
            "watch" => {
                let mut watch = self.database(call)?.watch(call.need("table"));
                watch = match call.get("from") {
                    None => watch,
                    Some(Json::Number(seq)) => {
                        watch.from(Position { seq: seq.as_i64().unwrap_or_default(), ..Position::default() })
                    }
                    Some(position) => match serde_json::from_value(position.clone()) {
                        Ok(position) => watch.from(position),
                        Err(error) => return misuse(error.to_string()),
                    },
                };
                with!(watch, condition(call.text("where")));
                if call.get("actions").is_some() {
                    let actions = call.texts("actions");
                    let action = |name: &String| match name.as_str() {
                        "create" => Action::Create,
                        "update" => Action::Update,
                        _ => Action::Delete,
                    };
                    watch = watch.actions(actions.iter().map(action).collect::<Vec<_>>());
                }
                if call.flag("before") {
                    watch = watch.before();
                }
                self.iterate(call, Going::Watch(Mutex::new(Some(watch))))
            }
            "watch.position" => match self.named(call)? {
                Thing::Iteration(iteration) => match &iteration.going {
                    Going::Watch(watch) => {
                        let position = lock(watch).as_ref().and_then(Watch::position);
                        Ok(position.as_ref().map_or(Json::Null, position_of))
                    }
                    _ => misuse("it is no watch"),
                },
                _ => misuse("it is no watch"),
            },
            "next" => {
                let Thing::Iteration(iteration) = self.named(call)? else { return misuse("it has no next") };
                let mut stopped = iteration.stopped.subscribe();
                let mut reading = Reading(Some(&iteration.going));
                let found = tokio::select! {
                    found = self.next(&iteration) => found?,
                    _ = stopped.wait_for(|is_stopped| *is_stopped) => None,
                };
                reading.0 = None;
                Ok(found.map_or(json!({ "end": true }), |item| json!({ "item": item })))
            }
            "stop" => match self.named(call)? {
                Thing::Mirror(mirror, _) => {
                    mirror.close().await;
                    Ok(Json::Null)
                }
                Thing::Iteration(iteration) => {
                    match &iteration.going {
                        Going::Consumer(consumer) => consumer.stop().await?,
                        Going::Watch(watch) => drop(lock(watch).take()),
                        Going::Messages(messages) => {
                            let messages = lock(messages).take();
                            if let Some(messages) = messages {
                                messages.commit().await?;
                            }
                        }
                    }
                    iteration.stopped.send_replace(true);
                    Ok(Json::Null)
                }
                _ => misuse("it has no stop"),
            },
            "mirror.open" => {
                let mut mirror = self.database(call)?.mirror::<Object>(call.need("table"));
                with!(mirror, condition(call.text("where")), page(call.int("page").map(|page| page as u32)));
                let copies = Arc::<Mutex<Vec<Json>>>::default();
                let seen = Arc::clone(&copies);
                let mirror = mirror.on_copy(move |copied| {
                    let why = copied.why.as_ref().and_then(Error::code).map(|code| code.to_string());
                    lock(&seen).push(json!({ "rows": int(copied.rows), "why": why }));
                });
                let mirror = Arc::new(mirror.await?);
                self.keep(call, Thing::Mirror(mirror, copies));
                Ok(Json::Null)
            }
            _ => {
                let Thing::Mirror(mirror, copies) = self.named(call)? else {
                    return misuse("it is no mirror");
                };
                match name {
                    "mirror.rows" => match mirror.error() {
                        Some(error) => Err(error.into()),
                        None => Ok(mirror.rows().iter().map(|row| tagged_object(row)).collect()),
                    },
                    "mirror.seq" => Ok(int(mirror.seq())),
                    "mirror.reached" => {
                        Ok(mirror.reached(call.int("seq").unwrap_or_default()).await.map(|()| Json::Null)?)
                    }
                    "mirror.copies" => Ok(Json::Array(lock(&copies).clone())),
                    _ => misuse(format!("no such call: {name}")),
                }
            }
        }
    }

    async fn next(&self, iteration: &Iteration) -> Result<Option<Json>, Failed> {
        Ok(match &iteration.going {
            Going::Messages(messages) => next_of(messages).await.transpose()?.as_ref().map(message_of),
            Going::Watch(watch) => next_of(watch).await.transpose()?.as_ref().map(commit_of),
            Going::Consumer(consumer) => {
                let found = consumer.next().await.transpose()?;
                if let Some(delivery) = &found {
                    self.state().deliveries.insert(delivery.receipt().to_owned(), delivery.clone());
                }
                found.as_ref().map(delivery_of)
            }
        })
    }

    async fn of_vault(&self, call: &Call, name: &str) -> Found {
        let record = call.need("record");
        match name {
            "seal.unseal" => Ok(time(self.seal(call)?.unseal(call.need("passphrase")).await?)),
            "seal.seal" => Ok(self.seal(call)?.seal().await.map(|()| Json::Null)?),
            "seal.change" => {
                let (seal, old, new) = (self.seal(call)?, call.text("old"), call.need("new"));
                Ok(int(match old {
                    Some(old) if call.flag("rekey") => seal.rekey(old, new).await?,
                    old => seal.change_passphrase(old, new).await?,
                }))
            }
            "vault.write" => {
                let mut write = self.vault(call)?.write(record, call.value("value"));
                if call.flag("if_absent") {
                    write = write.if_absent();
                }
                with!(write, expect_version(call.int("expect")), reason(call.text("reason")));
                let found = write.await?;
                Ok(json!({ "written": found.written, "version": int(found.version) }))
            }
            "vault.reveal" => {
                let mut reveal = self.vault(call)?.reveal(record);
                with!(reveal, version(call.int("version")), reason(call.text("reason")));
                let found = reveal.await?;
                let text = format!("{found:?}");
                let (value, version) = (tagged(&found.value), int(found.version));
                Ok(
                    json!({ "id": found.id, "value": value, "version": version, "at": time(found.at), "text": text }),
                )
            }
            "vault.list" => {
                let mut list = self.vault(call)?.list();
                with!(
                    list,
                    prefix(call.text("prefix")),
                    after(call.text("after")),
                    limit(call.int("limit").map(|limit| limit as u32))
                );
                Ok(json!(list.await?))
            }
            "vault.erase" => {
                let mut erase = self.vault(call)?.erase(record);
                with!(erase, reason(call.text("reason")));
                Ok(json!(erase.await?))
            }
            "backup.file" => {
                let mut backup = self.client(call)?.backup();
                backup = match (call.text("ns"), call.text("db")) {
                    (Some(ns), Some(db)) => backup.database(ns, db),
                    (Some(ns), None) => backup.namespace(ns),
                    (None, _) => backup,
                };
                with!(backup, reason(call.text("reason")));
                let progress = Arc::<Mutex<Vec<Json>>>::default();
                let seen = Arc::clone(&progress);
                let found = backup
                    .on_progress(move |done, _| lock(&seen).push(int(done)))
                    .to_file(call.need("path"))
                    .await?;
                let progress = Json::Array(lock(&progress).clone());
                let (bytes, records) = (int(found.bytes), int(found.records));
                Ok(
                    json!({ "bytes": bytes, "form": found.form, "records": records, "version": found.version, "progress": progress }),
                )
            }
            _ => misuse(format!("no such call: {name}")),
        }
    }

    async fn load(&self, call: &Call) -> Found {
        let (operation, count) = (call.need("operation").to_owned(), call.int("count").unwrap_or_default());
        if operation == "rows" {
            let mut rows =
                self.database(call)?.rows::<Value>(format!("SELECT * FROM {}", call.need("table")));
            let mut found = 0;
            while let Some(row) = rows.next().await {
                row?;
                found += 1;
            }
            if found != count {
                return misuse(format!("{found} rows, not {count}"));
            }
        } else {
            let left = Arc::new(AtomicI64::new(0));
            let mut workers = JoinSet::new();
            for _ in 0..call.int("depth").unwrap_or(1) {
                let (cache, topic, left) = (self.cache(call)?, self.topic(call)?, Arc::clone(&left));
                let operation = operation.clone();
                workers.spawn(async move {
                    loop {
                        let number = left.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return Ok(());
                        }
                        match operation.as_str() {
                            "get" => drop(cache.get::<i64>(&format!("k{}", number % 1000)).await?),
                            "set" => cache.set(&format!("k{}", number % 1000), number).await?,
                            _ => drop(topic.publish(number).await?),
                        }
                    }
                });
            }
            while let Some(worker) = workers.join_next().await {
                worker
                    .map_err(|error| Failed::Misuse(error.to_string()))
                    .and_then(|done: Result<()>| Ok(done?))?;
            }
        }
        Ok(Json::Null)
    }
}

fn kind(kind: &str, text: &str) -> Json {
    json!({ "kind": kind, "text": text, "cause": null })
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (to, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let calls = line.map(|line| serde_json::from_str::<Json>(&line));
            let Ok(Ok(calls)) = calls else { return };
            if to.send(calls).is_err() {
                return;
            }
        }
    });
    let testee = Testee::default();
    while let Some(calls) = lines.recv().await {
        match calls {
            Json::Array(calls) => calls.into_iter().for_each(|call| testee.begin(call)),
            call => testee.begin(call),
        }
    }
    testee.reset(0);
}
