//! Keys of a cache space.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answers::{needed, optional};
use crate::attempts::{How, with_grace};
use crate::client::{Client, Database, check_positive, given};
use crate::convert::from_value;
use crate::errors::{Error, Result};
use crate::exchange::{Reply, Request};
use crate::frames::{Body, Fields, Kind};
use crate::runs::Call;
use crate::tls::random_name;
use crate::values::{DateTime, SignedDuration, Value, check_name};
use crate::waits::{BoxFuture, Flag, Steps, lock};

/// Keys in one listing.
const KEYS_MOST: u32 = 1000;
/// Renewals of a lease within its time.
const RENEWALS: u32 = 3;

/// Time to live of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ttl {
    /// The key does not expire.
    Never,
    /// The key expires after that time.
    In(Duration),
}

/// A handle on the keys of one cache space.
///
/// Calls that are made at one time travel together and share a commit.
#[derive(Clone)]
pub struct Cache {
    client: Client,
    space: Arc<Space>,
}

struct Space {
    name: String,
    /// Fields that name the space in a request, or the error of a name.
    fields: Result<Body>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cache").field(&self.space.name).finish()
    }
}

impl Cache {
    pub(crate) fn new(db: &Database, space: &str) -> Self {
        let fields = db.place().and_then(|place| {
            check_name(space)?;
            Ok(Body::new().str("ns", &place.ns).str("db", &place.db).str("space", space))
        });
        Self { client: db.client().clone(), space: Arc::new(Space { name: space.to_owned(), fields }) }
    }

    fn body(&self, op: &str) -> Result<Body> {
        Body::of(op, &self.space.fields)
    }

    async fn read(&self, op: &'static str, body: Body) -> Result<Fields> {
        self.client.ask(&request(&self.client, op, body), How::repeatable()).await.and_then(Reply::fields)
    }

    async fn write(&self, op: &'static str, body: Body) -> Result<Fields> {
        self.client.change(&request(&self.client, op, body), How::once()).await
    }

    /// Return the value of a key; `None`: there is no such key.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let mut found = self.read("get", self.body("get")?.str("key", key)).await?;
        Ok(found.remove("value").map(from_value).transpose()?)
    }

    fn set_op<T>(
        &self,
        op: &'static str,
        key: &str,
        value: Result<Value>,
        read: fn(Fields) -> Result<T>,
    ) -> Set<T> {
        let body = || self.body(op)?.str("key", key).value("value", &value?);
        Set {
            client: self.client.clone(),
            op,
            body: body(),
            ttl: None,
            keep_ttl: false,
            condition: None,
            read,
        }
    }

    /// Set a key: await it. Options come before.
    pub fn set(&self, key: &str, value: impl Serialize) -> Set<()> {
        self.set_op("set", key, given(value, "value"), |_| Ok(()))
    }

    /// Set a key that does not exist. Awaited, it returns true if the key was set.
    pub fn set_if_absent(&self, key: &str, value: impl Serialize) -> Set<bool> {
        Set { condition: Some("absent"), ..self.set_op("set", key, given(value, "value"), written) }
    }

    /// Set a key that exists. Awaited, it returns true if the key was set.
    pub fn set_if_present(&self, key: &str, value: impl Serialize) -> Set<bool> {
        Set { condition: Some("present"), ..self.set_op("set", key, given(value, "value"), written) }
    }

    /// Set a key that holds `expect`, in type and value. Awaited, it returns true if the key was set.
    ///
    /// [`Value::None`] as `expect` means that the key does not exist.
    pub fn compare_and_set(&self, key: &str, expect: impl Serialize, value: impl Serialize) -> Set<bool> {
        let set = self.set_op("swap", key, given(value, "value"), written);
        let expected = given(expect, "expect");
        Set { body: set.body.and_then(|body| body.value("expect", &expected?)), ..set }
    }

    /// Delete a key, and return true if it existed.
    pub async fn delete(&self, key: &str) -> Result<bool> {
        needed(&mut self.write("delete", self.body("delete")?.str("key", key)).await?, "deleted")
    }

    /// Add to a counter, which starts at 0, and return the new value.
    pub async fn incr(&self, key: &str, by: i64) -> Result<i64> {
        let body = self.body("incr")?.str("key", key).int("by", by);
        needed(&mut self.write("incr", body).await?, "value")
    }

    /// Return the time to live of a key; `None`: there is no such key.
    pub async fn ttl(&self, key: &str) -> Result<Option<Ttl>> {
        let mut found = self.read("get", self.body("get")?.str("key", key)).await?;
        if found.get("value").is_none() {
            return Ok(None);
        }
        Ok(Some(match optional::<SignedDuration>(&mut found, "ttl")? {
            Some(left) => Ttl::In(Duration::try_from(left).unwrap_or_default()),
            None => Ttl::Never,
        }))
    }

    /// Set the expiry of a key, and return true if it exists.
    pub async fn expire(&self, key: &str, ttl: Duration) -> Result<bool> {
        check_positive("ttl", ttl)?;
        let body = self.body("expire")?.str("key", key).duration_if("expire", Some(ttl.into()));
        needed(&mut self.write("expire", body).await?, "found")
    }

    /// Remove the expiry of a key, and return true if it exists.
    pub async fn persist(&self, key: &str) -> Result<bool> {
        needed(&mut self.write("persist", self.body("persist")?.str("key", key)).await?, "found")
    }

    /// List keys in the order of their bytes: await it. Options come before.
    pub fn keys(&self) -> Keys {
        Keys { cache: self.clone(), prefix: String::new(), after: String::new(), limit: KEYS_MOST }
    }

    /// Return a stream of all keys with a prefix, in the order of their bytes.
    pub fn all_keys(&self, prefix: &str) -> AllKeys {
        let listing =
            Listing { keys: self.keys().prefix(prefix), found: Vec::new().into_iter(), is_over: false };
        AllKeys { steps: Steps::new(listing, step) }
    }

    /// Return the value of a key. Without one, call `load` and store the result.
    ///
    /// Racing callers each call `load`; the first to store wins, and all return its value. Without `ttl` the default
    /// of the space applies.
    pub async fn get_or_set<T, F, E>(
        &self,
        key: &str,
        ttl: impl Into<Option<Duration>>,
        load: impl FnOnce() -> F,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let ttl = ttl.into();
        if let Some(found) = self.get(key).await? {
            return Ok(found);
        }
        let made = load().await?;
        loop {
            let set = self.set_if_absent(key, &made);
            if (Set { ttl, ..set }).await? {
                return Ok(made);
            }
            if let Some(theirs) = self.get(key).await? {
                return Ok(theirs);
            }
        }
    }

    /// Acquire a lease on a key: await it. Options come before. It returns `None` if another holder has the key.
    pub fn lock(&self, key: &str, ttl: Duration) -> Lock {
        Lock { cache: self.clone(), key: key.to_owned(), ttl, holder: None, renew: false }
    }
}

fn request(client: &Client, op: &'static str, body: Body) -> Request {
    Request { timeout: with_grace(client.timeout()), op, ..Request::new(Kind::Kv, body) }
}

fn written(mut found: Fields) -> Result<bool> {
    needed(&mut found, "written")
}

/// A key to set: await it. Options come before.
#[must_use = "a key is set when this is awaited"]
pub struct Set<T> {
    client: Client,
    op: &'static str,
    body: Result<Body>,
    ttl: Option<Duration>,
    keep_ttl: bool,
    condition: Option<&'static str>,
    read: fn(Fields) -> Result<T>,
}

impl<T> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl<T> Set<T> {
    /// Have the key expire. Without it the key does not, or gets the default of its space.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Keep the key's expiry, which is cleared otherwise.
    pub fn keep_ttl(mut self) -> Self {
        self.keep_ttl = true;
        self
    }

    fn into_request(self) -> Result<Request> {
        if let Some(ttl) = self.ttl {
            check_positive("ttl", ttl)?;
        }
        let body = self.body?.duration_if("expire", self.ttl.map(SignedDuration::from));
        let body = body.flag_if("keep", self.keep_ttl).str_if("if", self.condition);
        Ok(request(&self.client, self.op, body))
    }
}

impl<T: 'static> IntoFuture for Set<T> {
    type Output = Result<T>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        // Built here: what the future holds is moved with it.
        let (client, read) = (self.client.clone(), self.read);
        let request = self.into_request();
        Box::pin(async move {
            let request = request.as_ref().map_err(Error::clone)?;
            read(client.change(request, How::once()).await?)
        })
    }
}

/// A listing of keys: await it. Options come before.
#[must_use = "keys are listed when this is awaited"]
#[derive(Clone, Debug)]
pub struct Keys {
    cache: Cache,
    prefix: String,
    after: String,
    limit: u32,
}

impl Keys {
    /// List keys with a prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// List keys behind one.
    pub fn after(mut self, key: impl Into<String>) -> Self {
        self.after = key.into();
        self
    }

    /// List so many keys at most. The default is 1000, which is the most.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    async fn list(self) -> Result<Vec<String>> {
        let body = self.cache.body("keys")?.str("prefix", &self.prefix).str("after", &self.after);
        needed(&mut self.cache.read("keys", body.int("limit", self.limit.into())).await?, "keys")
    }
}

impl IntoFuture for Keys {
    type Output = Result<Vec<String>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.list())
    }
}

struct Listing {
    keys: Keys,
    found: std::vec::IntoIter<String>,
    is_over: bool,
}

impl Listing {
    async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(key) = self.found.next() {
                return Ok(Some(key));
            }
            if self.is_over {
                return Ok(None);
            }
            let page = self.keys.clone().list().await?;
            self.is_over = page.len() < KEYS_MOST as usize;
            if let Some(last) = page.last() {
                self.keys.after.clone_from(last);
            }
            self.found = page.into_iter();
        }
    }
}

fn step(mut listing: Listing) -> BoxFuture<(Listing, Option<Result<String>>)> {
    Box::pin(async move {
        let found = listing.next().await;
        listing.is_over |= found.is_err();
        (listing, found.transpose())
    })
}

/// A stream of keys.
#[must_use = "a stream sends nothing before it is polled"]
pub struct AllKeys {
    steps: Steps<Listing, Result<String>>,
}

impl fmt::Debug for AllKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllKeys").finish_non_exhaustive()
    }
}

impl AllKeys {
    /// Return the next key; `None` behind the last.
    pub async fn next(&mut self) -> Option<Result<String>> {
        std::future::poll_fn(|cx| self.steps.poll_next(cx)).await
    }
}

impl Stream for AllKeys {
    type Item = Result<String>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().steps.poll_next(cx)
    }
}

/// A lease to acquire: await it. Options come before.
#[must_use = "a lease is acquired when this is awaited"]
#[derive(Debug)]
pub struct Lock {
    cache: Cache,
    key: String,
    ttl: Duration,
    holder: Option<String>,
    renew: bool,
}

impl Lock {
    /// Name the holder, which is random otherwise. The same holder extends its lease by locking again.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Extend the lease by itself until it is released, lost or dropped.
    pub fn renew(mut self) -> Self {
        self.renew = true;
        self
    }

    async fn acquire(self) -> Result<Option<Lease>> {
        check_positive("ttl", self.ttl)?;
        let holder = self.holder.map_or_else(random_name, Ok)?;
        let body = self.cache.body("lock")?.str("key", &self.key).str("holder", &holder);
        let body = body.duration_if("expire", Some(self.ttl.into()));
        let mut found = self.cache.write("lock", body).await?;
        if !needed::<bool>(&mut found, "held")? {
            return Ok(None);
        }
        let state = Arc::new(LeaseState {
            cache: self.cache,
            key: self.key,
            holder,
            fence: needed(&mut found, "fence")?,
            ttl: self.ttl,
            until: Mutex::new(needed(&mut found, "until")?),
            lost: Flag::default(),
            released: Flag::default(),
            renewing: tokio::sync::Mutex::new(()),
        });
        if self.renew {
            tokio::spawn(Arc::clone(&state).renew());
        }
        Ok(Some(Lease { state }))
    }
}

impl IntoFuture for Lock {
    type Output = Result<Option<Lease>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

struct LeaseState {
    cache: Cache,
    key: String,
    holder: String,
    fence: i64,
    ttl: Duration,
    until: Mutex<DateTime>,
    lost: Flag,
    released: Flag,
    /// Held during a renewal, so that a release comes behind it.
    renewing: tokio::sync::Mutex<()>,
}

impl LeaseState {
    async fn extend(&self, ttl: Duration) -> Result<bool> {
        check_positive("ttl", ttl)?;
        if self.lost.is_set() {
            return Ok(false);
        }
        let body = self.cache.body("lock")?.str("key", &self.key).str("holder", &self.holder);
        let body = body.int("fence", self.fence).duration_if("expire", Some(ttl.into()));
        let mut found = self.cache.write("lock", body).await?;
        if !needed::<bool>(&mut found, "held")? {
            self.lost.set();
            return Ok(false);
        }
        *lock(&self.until) = needed(&mut found, "until")?;
        Ok(true)
    }

    async fn renew(self: Arc<Self>) {
        let closing = Arc::clone(&self.cache.client.nodes().closing);
        loop {
            let pause = closing.or(tokio::time::sleep(self.ttl / RENEWALS));
            if self.released.or(pause).await.flatten().is_none() {
                return;
            }
            let _renewing = self.renewing.lock().await;
            if self.released.is_set() {
                return;
            }
            match self.extend(self.ttl).await {
                Ok(true) => {}
                Ok(false) | Err(Error::Closed) => return,
                // Any other error may pass before the lease ends, and the next extension tells.
                Err(_) => {}
            }
        }
    }
}

/// A lock that is held until it is released or expires.
///
/// It is a lease and no mutex: pass [`Lease::fence`] to the resource that it protects. Dropping it ends its renewal,
/// and leaves it to expire.
pub struct Lease {
    state: Arc<LeaseState>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.state.key)
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// Return the key.
    pub fn key(&self) -> &str {
        &self.state.key
    }

    /// Return the name of the holder.
    pub fn holder(&self) -> &str {
        &self.state.holder
    }

    /// Return the fencing token: it grows with each holder of the key.
    pub fn fence(&self) -> i64 {
        self.state.fence
    }

    /// Return the time at which the lease ends, by the node's clock.
    pub fn until(&self) -> DateTime {
        *lock(&self.state.until)
    }

    /// Return true once the lease is known to be over: it was released, or an extension found that it had expired.
    pub fn is_lost(&self) -> bool {
        self.state.lost.is_set()
    }

    /// Wait until the lease is known to be over.
    pub async fn lost(&self) {
        self.state.lost.wait().await;
    }

    /// Make the lease last as long as at first from now, and return true if it is held.
    pub async fn extend(&self) -> Result<bool> {
        self.state.extend(self.state.ttl).await
    }

    /// Make the lease last that long from now, and return true if it is held.
    pub async fn extend_by(&self, ttl: Duration) -> Result<bool> {
        self.state.extend(ttl).await
    }

    /// Release the lease, and return true if it was still held.
    pub async fn release(&self) -> Result<bool> {
        let state = &self.state;
        state.released.set();
        let _renewing = state.renewing.lock().await;
        if state.lost.is_set() {
            return Ok(false);
        }
        let body = state.cache.body("unlock")?.str("key", &state.key).str("holder", &state.holder);
        let mut found = state.cache.write("unlock", body.int("fence", state.fence)).await?;
        state.lost.set(); // nothing of it is left to be extended, whatever the answer
        needed(&mut found, "released")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.state.released.set();
    }
}
