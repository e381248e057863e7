//! Vaults: sealed records.

use std::fmt;
use std::future::IntoFuture;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answers::{as_field, needed};
use crate::attempts::How;
use crate::client::{Client, Database, given};
use crate::connection::MINOR_OF_VAULTS;
use crate::convert::from_value;
use crate::errors::{Error, Result};
use crate::exchange::Request;
use crate::frames::{Body, Fields, Kind};
use crate::runs::{Call, Run};
use crate::values::{DateTime, Object, Value, quote};

/// Opens and closes vaults. Passphrases are never statement text.
#[derive(Clone)]
pub struct Seal {
    client: Client,
    vault: Option<Vault>,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal")
            .field("vault", &self.vault.as_ref().map(|vault| &vault.name))
            .finish_non_exhaustive()
    }
}

impl Seal {
    pub(crate) fn new(client: Client, vault: Option<Vault>) -> Self {
        Self { client, vault }
    }

    async fn ask(&self, op: &'static str, add: impl FnOnce(Body) -> Body) -> Result<Fields> {
        let mut body = Body::new().str("op", op);
        if let Some(vault) = &self.vault {
            let place = vault.db.place()?;
            quote(&vault.name)?;
            body = body.str("ns", &place.ns).str("db", &place.db).str("vault", &vault.name);
        }
        let needs = Some((MINOR_OF_VAULTS, "vaults"));
        let request = Request { needs, op, ..Request::new(Kind::Vault, add(body)) };
        self.client.change(&request, How::once()).await
    }

    /// Open the vaults, and return the time at which they close. Use does not extend it.
    pub async fn unseal(&self, passphrase: &str) -> Result<DateTime> {
        needed(&mut self.ask("unseal", |body| body.str("passphrase", passphrase)).await?, "until")
    }

    /// Close the vaults.
    pub async fn seal(&self) -> Result<()> {
        self.ask("seal", |body| body).await.map(drop)
    }

    /// Change the passphrase, and return the number of keys wrapped again. Without `old` it sets the first.
    pub async fn change_passphrase(&self, old: Option<&str>, new: &str) -> Result<u64> {
        self.change(old, new, false).await
    }

    /// Change the passphrase after a leak: all keys are replaced and every value is encrypted again.
    pub async fn rekey(&self, old: &str, new: &str) -> Result<u64> {
        self.change(Some(old), new, true).await
    }

    async fn change(&self, old: Option<&str>, new: &str, rekey: bool) -> Result<u64> {
        let add = |body: Body| body.str_if("old", old).str("new", new).bool("rekey", rekey);
        needed(&mut self.ask("passphrase", add).await?, "rewrapped")
    }
}

/// A handle on a vault.
#[derive(Clone)]
pub struct Vault {
    db: Database,
    name: String,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vault").field(&self.name).finish()
    }
}

async fn object(run: Run) -> Result<Object> {
    as_field(run.value().await?, "answer")
}

impl Vault {
    pub(crate) fn new(db: Database, name: &str) -> Self {
        Self { db, name: name.to_owned() }
    }

    /// Return the seal of a vault with a passphrase of its own.
    pub fn own_seal(&self) -> Seal {
        Seal::new(self.db.client().clone(), Some(self.clone()))
    }

    fn run(&self, before: &str, behind: &str) -> Result<Run> {
        Ok(self.db.run(format!("{before} {}{behind}", quote(&self.name)?)))
    }

    /// Write the next version of a record: await it. Options come before.
    pub fn write(&self, id: &str, value: impl Serialize) -> VaultWrite {
        let value = given(value, "value");
        VaultWrite { vault: self.clone(), id: id.to_owned(), value, clause: None, reason: None }
    }

    /// Reveal the value of a record: await it. Options come before. The access is audited before it is answered.
    pub fn reveal(&self, id: &str) -> Reveal {
        Reveal { vault: self.clone(), id: id.to_owned(), version: None, reason: None }
    }

    /// List ids in the order of their bytes: await it. Options come before.
    pub fn list(&self) -> VaultList {
        VaultList { vault: self.clone(), prefix: String::new(), after: String::new(), limit: 1000 }
    }

    /// Erase a record with all of its versions: await it. It returns true if the record existed.
    pub fn erase(&self, id: &str) -> Erase {
        Erase { vault: self.clone(), id: id.to_owned(), reason: None }
    }

    /// Return the answer of INFO FOR VAULT.
    pub async fn info(&self) -> Result<Object> {
        object(self.run("INFO FOR VAULT", "")?).await
    }

    /// Return entries of the audit trail, newest first, before a sequence if one is given.
    pub async fn audit(&self, limit: u32, before: Option<i64>) -> Result<Vec<Object>> {
        let page = if before.is_some() { " BEFORE $before LIMIT $limit" } else { " LIMIT $limit" };
        let mut run = self.run("INFO FOR AUDIT OF VAULT", page)?.bind("limit", limit);
        if let Some(before) = before {
            run = run.bind("before", before);
        }
        let entries: Vec<Value> = as_field(run.value().await?, "answer")?;
        entries.into_iter().map(|entry| as_field(entry, "an entry")).collect()
    }
}

fn with_reason(run: Run, reason: Option<String>) -> Run {
    match reason {
        Some(reason) => run.reason(reason),
        None => run,
    }
}

/// Result of a write to a vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// False if the condition did not hold.
    pub written: bool,
    /// Newest version of the record.
    pub version: i64,
}

/// A record of a vault to write: await it. Options come before.
#[must_use = "a record is written when this is awaited"]
pub struct VaultWrite {
    vault: Vault,
    id: String,
    value: Result<Value>,
    clause: Option<Option<i64>>,
    reason: Option<String>,
}

impl fmt::Debug for VaultWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultWrite").field("vault", &self.vault).finish_non_exhaustive()
    }
}

impl VaultWrite {
    /// Write only if the record does not exist.
    pub fn if_absent(mut self) -> Self {
        self.clause = Some(None);
        self
    }

    /// Write only if the record has this version; 0: it does not exist.
    pub fn expect_version(mut self, version: i64) -> Self {
        self.clause = Some(Some(version));
        self
    }

    /// Keep a reason in the vault's audit trail.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    async fn send(self) -> Result<Written> {
        let (clause, expect) = match self.clause {
            None => ("", None),
            Some(None) => (" IF ABSENT", None),
            Some(Some(version)) => (" EXPECT VERSION $expect", Some(version)),
        };
        let mut run = self.vault.run("WRITE $id IN VAULT", &format!(" VALUE $value{clause}"))?;
        run = run.bind("id", &self.id).bind("value", &self.value?);
        if let Some(expect) = expect {
            run = run.bind("expect", expect);
        }
        let mut found = object(with_reason(run, self.reason)).await?;
        Ok(Written { written: needed(&mut found, "written")?, version: needed(&mut found, "version")? })
    }
}

impl IntoFuture for VaultWrite {
    type Output = Result<Written>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// The value of a record of a vault. It is not shown where the struct is printed.
#[derive(Clone)]
#[non_exhaustive]
pub struct Revealed {
    /// Id of the record.
    pub id: String,
    /// Version of the value.
    pub version: i64,
    /// Time of that version.
    pub at: DateTime,
    /// The value.
    pub value: Value,
}

impl fmt::Debug for Revealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, version, at, .. } = self;
        f.debug_struct("Revealed")
            .field("id", id)
            .field("version", version)
            .field("at", at)
            .finish_non_exhaustive()
    }
}

impl Revealed {
    /// Decode the value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(from_value(self.value.clone())?)
    }
}

/// A record of a vault to reveal: await it. Options come before.
#[must_use = "a record is revealed when this is awaited"]
#[derive(Debug)]
pub struct Reveal {
    vault: Vault,
    id: String,
    version: Option<i64>,
    reason: Option<String>,
}

impl Reveal {
    /// Reveal a version in the place of the newest.
    pub fn version(mut self, version: i64) -> Self {
        self.version = Some(version);
        self
    }

    /// Keep a reason in the vault's audit trail.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    async fn send(self) -> Result<Revealed> {
        let clause = if self.version.is_some() { " VERSION $version" } else { "" };
        let mut run = self.vault.run("REVEAL $id FROM VAULT", clause)?.bind("id", &self.id);
        if let Some(version) = self.version {
            run = run.bind("version", version);
        }
        let mut found = object(with_reason(run, self.reason)).await?;
        Ok(Revealed {
            id: needed(&mut found, "id")?,
            version: needed(&mut found, "version")?,
            at: needed(&mut found, "at")?,
            value: found.remove("value").ok_or_else(|| Error::broken("the node sent no value"))?,
        })
    }
}

impl IntoFuture for Reveal {
    type Output = Result<Revealed>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A listing of ids of a vault: await it. Options come before.
#[must_use = "ids are listed when this is awaited"]
#[derive(Debug)]
pub struct VaultList {
    vault: Vault,
    prefix: String,
    after: String,
    limit: u32,
}

impl VaultList {
    /// List ids with a prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// List ids behind one.
    pub fn after(mut self, id: impl Into<String>) -> Self {
        self.after = id.into();
        self
    }

    /// List so many ids at most. The default is 1000, which is the most.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    async fn send(self) -> Result<Vec<String>> {
        let run = self.vault.run("LIST FROM VAULT", " PREFIX $prefix AFTER $after LIMIT $limit")?;
        let run = run.bind("prefix", self.prefix).bind("after", self.after).bind("limit", self.limit);
        needed(&mut object(run).await?, "ids")
    }
}

impl IntoFuture for VaultList {
    type Output = Result<Vec<String>>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A record of a vault to erase: await it. Options come before.
#[must_use = "a record is erased when this is awaited"]
#[derive(Debug)]
pub struct Erase {
    vault: Vault,
    id: String,
    reason: Option<String>,
}

impl Erase {
    /// Keep a reason in the vault's audit trail.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    async fn send(self) -> Result<bool> {
        let run = self.vault.run("ERASE $id FROM VAULT", "")?.bind("id", self.id);
        needed(&mut object(with_reason(run, self.reason)).await?, "erased")
    }
}

impl IntoFuture for Erase {
    type Output = Result<bool>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
