//! Waits.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Lock a mutex. State behind one is whole even where a holder has panicked: each changes it in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pause between attempts: longer each time, and somewhat at random.
#[derive(Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, next: least }
    }

    /// Return the pauses between attempts of a request.
    pub(crate) fn of_requests() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(5))
    }

    pub(crate) fn step(&mut self) -> Duration {
        let share = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
        let now = self.next.mul_f64(0.5 + share / 2.0);
        self.next = (2 * self.next).min(self.most);
        now
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.step()).await;
    }

    /// Wait until the next attempt, or until a flag is set.
    pub(crate) async fn wait_or(&mut self, stop: &Flag) {
        stop.or(self.wait()).await;
    }
}

/// A condition that several wait for: each change wakes all of them.
#[derive(Debug, Default)]
pub(crate) struct News {
    notify: Notify,
}

impl News {
    pub(crate) fn announce(&self) {
        self.notify.notify_waiters();
    }

    /// Wait until a check finds something. It is made at once, and after each change.
    pub(crate) async fn until<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.notify.notified());
            changed.as_mut().enable();
            if let Some(found) = check() {
                return found;
            }
            changed.await;
        }
    }
}

/// A flag that is set once and stays set.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    news: News,
}

impl Flag {
    /// Set the flag. Return true if it was not set before.
    pub(crate) fn set(&self) -> bool {
        let is_first = !self.is_set.swap(true, Ordering::SeqCst);
        self.news.announce();
        is_first
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        self.news.until(|| self.is_set().then_some(())).await;
    }

    /// Return what a future comes to; `None`: the flag is set.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.wait() => None,
            found = work => Some(found),
        }
    }
}

/// Counter of work that the end of the client waits for.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    count: watch::Sender<usize>,
}

impl Default for Work {
    fn default() -> Self {
        Self { count: watch::Sender::new(0) }
    }
}

impl Work {
    pub(crate) fn begin(&self) -> Working {
        self.count.send_modify(|count| *count += 1);
        Working { work: self.clone() }
    }

    pub(crate) async fn wait(&self) {
        // The sender lives in `self`, so that this cannot fail.
        drop(self.count.subscribe().wait_for(|count| *count == 0).await);
    }
}

#[derive(Debug)]
pub(crate) struct Working {
    work: Work,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.work.count.send_modify(|count| *count -= 1);
    }
}

/// One result that several wait for: they get it in the order in which they began to wait.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    state: Mutex<SharedState<T>>,
    news: News,
}

#[derive(Debug)]
enum SharedState<T> {
    Pending,
    Found(T),
    /// The work for it was dropped.
    Dropped,
}

impl<T: Clone> Shared<T> {
    /// Return a result that is to come, and the place to put it.
    pub(crate) fn new() -> (Arc<Self>, Resolver<T>) {
        let shared = Arc::new(Self { state: Mutex::new(SharedState::Pending), news: News::default() });
        (Arc::clone(&shared), Resolver { shared })
    }

    /// Wait for the result; `None`: the work for it was dropped.
    pub(crate) async fn wait(&self) -> Option<T> {
        let check = || match &*lock(&self.state) {
            SharedState::Pending => None,
            SharedState::Found(found) => Some(Some(found.clone())),
            SharedState::Dropped => Some(None),
        };
        self.news.until(check).await
    }
}

/// Puts a shared result.
pub(crate) struct Resolver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Resolver<T> {
    pub(crate) fn resolve(self, found: T) {
        *lock(&self.shared.state) = SharedState::Found(found);
    }
}

impl<T> Drop for Resolver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if matches!(*state, SharedState::Pending) {
            *state = SharedState::Dropped;
        }
        drop(state);
        self.shared.news.announce();
    }
}

/// A step of a stream: it takes the state, and returns it with an item; `None` ends the stream.
type Step<S, T> = fn(S) -> BoxFuture<(S, Option<T>)>;
type Stepping<S, T> = BoxFuture<(S, Option<T>)>;

/// Stream of the items that steps find.
pub(crate) struct Steps<S, T> {
    state: Option<S>,
    step: Step<S, T>,
    running: Exclusive<Option<Stepping<S, T>>>,
}

/// A value that only its owner uses, so that a type with a future in it is [`Sync`].
#[derive(Default)]
pub(crate) struct Exclusive<T> {
    inner: Mutex<T>,
}

impl<T> Exclusive<T> {
    pub(crate) fn get(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, T> Steps<S, T> {
    pub(crate) fn new(state: S, step: Step<S, T>) -> Self {
        Self { state: Some(state), step, running: Exclusive { inner: Mutex::new(None) } }
    }

    /// Poll the running step, or begin the next.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(state) = self.state.take() {
            *self.running.get() = Some((self.step)(state));
        }
        let Some(running) = self.running.get() else { return Poll::Ready(None) };
        match running.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((state, found)) => {
                *self.running.get() = None;
                if found.is_some() {
                    self.state = Some(state);
                }
                Poll::Ready(found)
            }
        }
    }

    /// Change the state before the first step, or between two steps.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut S)) -> Self {
        if let Some(state) = &mut self.state {
            change(state);
        }
        self
    }

    /// Return the state between two steps; `None`: a step is running, or the stream has ended.
    pub(crate) fn into_state(self) -> Option<S> {
        self.state
    }
}
