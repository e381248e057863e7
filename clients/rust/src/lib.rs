//! Client of storenode over its wire protocol: scripts, typed rows, transactions, cache keys and locks, topics, change
//! feeds, vaults and backups.
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() -> storenode::Result<()> {
//! use serde::Deserialize;
//! use storenode::{Client, RecordId};
//!
//! #[derive(Deserialize)]
//! struct Item {
//!     id: RecordId,
//!     name: String,
//! }
//!
//! let client = Client::builder("127.0.0.1:8001").user("root", "...").build()?;
//! let db = client.database("shop", "main");
//! let items: Vec<Item> = db.query("SELECT * FROM item WHERE name = $name").bind("name", "lamp").await?;
//! for item in items {
//!     println!("{} {}", item.id, item.name);
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is a handle on a store, one for a whole program. Most calls return a builder: options first, then
//! `await`. Streams implement [`futures_core::Stream`], and have a `next` of their own. All futures have to run in a tokio
//! runtime. Dropping the future of a call cancels it, and asks the node to end the request.
//!
//! Features: `chrono`, `jiff`, `time`, `uuid` and `bigdecimal` convert to and from the types of these crates; see [`via`]
//! for their use in fields.

#![forbid(unsafe_code)]

mod answers;
mod attempts;
mod backups;
mod cache;
mod client;
mod codec;
mod connection;
mod convert;
mod errors;
mod exchange;
mod feeds;
mod frames;
mod groups;
mod mirrors;
mod moments;
mod nodes;
mod pages;
mod runs;
pub mod search;
mod seen;
mod tables;
mod tls;
mod topics;
mod transactions;
mod values;
mod vaults;
mod waits;
mod watches;

#[cfg(test)]
mod tests;

pub use answers::{Answer, ResultKind, StatementResult, Welcome};
pub use backups::{Backup, Snapshot};
pub use cache::{AllKeys, Cache, Keys, Lease, Lock, Set, Ttl};
pub use client::{Client, ClientBuilder, Database, Reads};
pub use convert::{FromValueDeserializer, from_value, to_value, via};
pub use errors::{DecodeError, Error, InvalidArgument, Refusal, Result};
pub use feeds::{Action, Change, Commit, Missing};
pub use groups::{Consumer, ConsumerBuilder, Delivery, Done, Group, Nack, Settled, Take};
pub use mirrors::{Copied, Mirror, MirrorBuilder};
pub use moments::{Moment, MomentBuilder};
pub use nodes::ConnectionEvent;
pub use pages::Rows;
pub use runs::{Call, Query, Run};
pub use seen::Position;
pub use tables::{Code, VERSION};
pub use tls::Tls;
pub use topics::{Appended, Message, Messages, Place, Publish, PublishMany, Published, Read, Reader, Topic};
pub use transactions::Transaction;
pub use values::{DateTime, Decimal, Object, RecordId, RecordKey, SignedDuration, Uuid, Value};
pub use vaults::{Erase, Reveal, Revealed, Seal, Vault, VaultList, VaultWrite, Written};
pub use watches::Watch;

/// Handles and streams go to other threads, and are used from several.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Client>();
    is_shared::<Consumer>();
    is_shared::<Delivery>();
    is_shared::<Error>();
    is_shared::<Lease>();
    is_shared::<Messages>();
    is_shared::<Mirror<Value>>();
    is_shared::<Rows<Value>>();
    is_shared::<Watch>();
};
