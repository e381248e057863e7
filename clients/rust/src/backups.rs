//! Backups: snapshots to a file or a stream.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::fs;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::answers::{as_field, needed};
use crate::client::Client;
use crate::connection::MINOR_OF_STREAMS;
use crate::errors::{Error, Failure, Result};
use crate::exchange::{Request, Sink};
use crate::feeds::{Next, Queue};
use crate::frames::{Body, Kind};
use crate::tls::random_name;
use crate::values::{Object, quote};

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Size in bytes.
    pub bytes: u64,
    /// Form of the backup.
    pub form: String,
    /// Number of records of tables.
    pub records: u64,
    /// Version of the node.
    pub version: String,
}

type OnProgress = Box<dyn FnMut(u64, u64) + Send>;

/// A snapshot to take, of the store or a part of it. Options come before.
#[must_use = "a backup is taken by to_file or to_writer"]
pub struct Backup {
    client: Client,
    ns: Option<String>,
    db: Option<String>,
    reason: Option<String>,
    on_progress: Option<OnProgress>,
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("ns", &self.ns).field("db", &self.db).finish_non_exhaustive()
    }
}

impl Backup {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, ns: None, db: None, reason: None, on_progress: None }
    }

    /// Limit the backup to a namespace.
    pub fn namespace(mut self, ns: impl Into<String>) -> Self {
        self.ns = Some(ns.into());
        self
    }

    /// Limit the backup to a database.
    pub fn database(mut self, ns: impl Into<String>, db: impl Into<String>) -> Self {
        self.ns = Some(ns.into());
        self.db = Some(db.into());
        self
    }

    /// Keep a reason with the statement in the statement log.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Call a function after each part with the bytes written and the bytes in total.
    pub fn on_progress(mut self, report: impl FnMut(u64, u64) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(report));
        self
    }

    fn statement(&self) -> Result<String> {
        Ok(match (&self.ns, &self.db) {
            (None, _) => "BACKUP".to_owned(),
            (Some(ns), None) => format!("BACKUP OF NAMESPACE {}", quote(ns)?),
            (Some(ns), Some(db)) => format!("BACKUP OF {}.{}", quote(ns)?, quote(db)?),
        })
    }

    /// Write the snapshot to a stream, no faster than it takes the data.
    pub async fn to_writer<W: AsyncWrite + Unpin + Send>(mut self, to: &mut W) -> Result<Snapshot> {
        let body = Body::new().str("script", &self.statement()?).flag_if("stream", true);
        let body = body.str_if("reason", self.reason.as_deref());
        let request = Request { needs: Some((MINOR_OF_STREAMS, "streams")), ..Request::new(Kind::Run, body) };
        let own = self.client.nodes().own().await?;
        let parts = Queue::of_parts();
        let begun = own.conn.begin(&request, None, Sink::Stream(std::sync::Arc::clone(&parts)));
        begun.map_err(whole)?;
        let (mut done, mut total) = (0, 0);
        let answer = loop {
            match parts.next().await.map_err(whole)? {
                Next::Message(mut part, is_last) => {
                    if is_last {
                        own.conn.resume();
                    }
                    let bytes: Bytes = needed(&mut part, "bytes")?;
                    total = needed(&mut part, "total")?;
                    done += bytes.len() as u64;
                    if needed::<u64>(&mut part, "done")? != done || done > total {
                        return Err(Error::broken("a part of the snapshot is missing"));
                    }
                    to.write_all(&bytes).await?;
                    if let Some(report) = &mut self.on_progress {
                        report(done, total);
                    }
                }
                Next::End(answer) => break answer,
            }
        };
        to.flush().await?;
        let Some(answer) = answer.filter(|_| done > 0 && done == total) else {
            return Err(Error::broken("the snapshot ended before its last part"));
        };
        let mut told: Object = as_field::<Object>(answer.into_value(), "answer")?;
        Ok(Snapshot {
            bytes: done,
            form: needed(&mut told, "form")?,
            records: needed(&mut told, "records")?,
            version: needed(&mut told, "version")?,
        })
    }

    /// Write the snapshot to a new file, which gets its name once it is complete and synced.
    ///
    /// A file that exists is refused with [`io::ErrorKind::AlreadyExists`]. A backup that fails leaves no file.
    pub async fn to_file(self, path: impl AsRef<Path>) -> Result<Snapshot> {
        let path = path.as_ref();
        if fs::symlink_metadata(path).await.is_ok() {
            let message = format!("{} exists", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message).into());
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", random_name()?));
        let partial = Partial { path: path.with_file_name(name) };
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        options.mode(0o600);
        let mut file = options.open(&partial.path).await?;
        let found = self.to_writer(&mut file).await?;
        file.sync_all().await?;
        drop(file);
        fs::hard_link(&partial.path, path).await?; // a link replaces nothing
        drop(partial);
        sync_folder(path).await?;
        Ok(found)
    }
}

/// A request of a connection of its own is not sent on another.
fn whole(failure: Failure) -> Error {
    match failure {
        Failure::NotSent => Error::unreachable("the connection ended before anything was sent", None),
        Failure::Error(error) => error,
    }
}

#[cfg(unix)]
async fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(fs::File::open(folder).await?.sync_all().await?)
}

#[cfg(not(unix))]
async fn sync_folder(_: &Path) -> Result<()> {
    Ok(())
}

/// The file of a backup that is not whole: it is removed with this.
struct Partial {
    path: PathBuf,
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Where it cannot be removed, its name tells what it is.
        drop(std::fs::remove_file(&self.path));
    }
}
