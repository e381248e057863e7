"""Blocking client: the async client on an event loop in a thread of its own.

Generated from the async classes by `unasync.py`: change those, or `twins.py`, not this file.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from storeclient.answers import Answer
from storeclient.async_client import AsyncClient
from storeclient.backups import Backup, Progress
from storeclient.cache import KEYS_MOST, AsyncLease
from storeclient.changes import Action, Commit, Position
from storeclient.database import AsyncDatabase
from storeclient.events import OnConnection
from storeclient.exchange import Welcome
from storeclient.groups import AsyncConsumer, AsyncDelivery, Settled
from storeclient.loads import BATCH_ROWS, OnRows
from storeclient.messages import Message
from storeclient.mirrors import OnCopy
from storeclient.moments import KEEP, AsyncMoment
from storeclient.pages import PAGE
from storeclient.settings import Reads
from storeclient.topics import BATCH, AsyncReader, AsyncTopic, Headers, Published
from storeclient.transactions import AsyncTransaction
from storeclient.twins import (
    CacheTwin,
    ClientTwin,
    ContextTwin,
    EnteredTwin,
    GroupTwin,
    MirrorTwin,
    PublisherTwin,
    Twin,
    WatchTwin,
)
from storeclient.values import Seconds
from storeclient.vaults import AsyncSeal, AsyncVault, Entries, Ids, Revealed, Written


class Client(ClientTwin):
    """A client of a store, for use from any number of threads at once.

    All threads share one connection; a call blocks its own thread only. Otherwise it is like
    `AsyncClient`: it connects when first used, reconnects after a broken connection, and never
    repeats a request that may have run.

        with Client("localhost:8001", user="root", password=secret) as client:
            client.use("shop", "main")
            people = client.query("SELECT * FROM person WHERE age > $n", {"n": 30})

    Do not use it across a fork: make a client in each process.

    Parameters and errors are those of `AsyncClient`.
    """

    def __init__(
        self,
        address: str | Sequence[str] = "127.0.0.1:8001",
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ns: str | None = None,
        db: str | None = None,
        tls: ssl.SSLContext | bool = False,
        timeout: float | timedelta | None = None,
        connect_timeout: float = 10.0,
        on_connection: OnConnection | None = None,
        reads: Reads = "leader",
    ) -> None:
        super().__init__(
            AsyncClient(
                address,
                user=user,
                password=password,
                token=token,
                ns=ns,
                db=db,
                tls=tls,
                timeout=timeout,
                connect_timeout=connect_timeout,
                on_connection=on_connection,
                reads=reads,
            )
        )

    @property
    def ns(self) -> str | None:
        """Default namespace of scripts."""
        return self._twin.ns

    @property
    def db(self) -> str | None:
        """Default database of scripts."""
        return self._twin.db

    def database(self, ns: str, db: str) -> Database:
        """Return a handle of a database, with calls that need no ns and db; see
        `AsyncClient.database`."""
        return Database(self._twin.database(ns, db), self._submit)

    def use(self, ns: str | None, db: str | None = None) -> None:
        """Set the default namespace and database of later scripts; see `AsyncClient.use`. For all
        threads."""
        self._twin.use(ns, db)

    def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        ns: str | None = None,
        db: str | None = None,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        moment: str | None = None,
        keep: float | timedelta | None = None,
        record: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Answer:
        """Run a script and return all its results; see `AsyncClient.run`."""
        return self._wait(
            self._twin.run(
                script,
                params,
                ns=ns,
                db=db,
                timeout=timeout,
                reason=reason,
                repeatable=repeatable,
                moment=moment,
                keep=keep,
                record=record,
                after=after,
                current=current,
            )
        )

    def query(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        ns: str | None = None,
        db: str | None = None,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Any:
        """Run a script and return the value of its last statement. Otherwise like `run`."""
        return self._wait(
            self._twin.query(
                script,
                params,
                ns=ns,
                db=db,
                timeout=timeout,
                reason=reason,
                repeatable=repeatable,
                after=after,
                current=current,
            )
        )

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        ns: str | None = None,
        db: str | None = None,
        progress: Progress | None = None,
        reason: str | None = None,
    ) -> Backup:
        """Take a snapshot of the node into a new local file, over a separate connection; see
        `AsyncClient.backup`. `progress` is called in the client's thread."""
        return self._wait(self._twin.backup(path, ns=ns, db=db, progress=progress, reason=reason))

    def cache(self, ns: str, db: str, space: str) -> Cache:
        """Return a handle of a cache space; see `AsyncClient.cache`."""
        return Cache(self._twin.cache(ns, db, space), self._submit)

    def topic(self, ns: str, db: str, name: str) -> Topic:
        """Return a handle of a topic; see `AsyncClient.topic`."""
        return Topic(self._twin.topic(ns, db, name), self._submit)

    def vault(self, ns: str, db: str, name: str) -> Vault:
        """Return a handle of a vault; see `AsyncClient.vault`."""
        return Vault(self._twin.vault(ns, db, name), self._submit)

    def store_seal(self) -> Seal:
        """Return a handle of the store's seal, which opens vaults without a passphrase of their
        own; see `AsyncClient.store_seal`."""
        return Seal(self._twin.store_seal(), self._submit)

    def ping(self) -> None:
        """Make a round trip to the node. :raises StoreError: it failed"""
        self._wait(self._twin.ping())

    def connect(self) -> Welcome:
        """Connect, unless connected, and return the node's welcome message; see
        `AsyncClient.connect`."""
        return self._wait(self._twin.connect())


class Database(Twin[AsyncDatabase]):
    """Handle of a database. Made by `Client.database(ns, db)`; nothing is sent before its
    first call.

        db = client.database("shop", "main")
        lamps = db.query("SELECT * FROM item WHERE name = $n", {"n": "lamp"})
        for item in db.rows("SELECT * FROM item"):
            ...

    Blocks the calling thread; otherwise like `AsyncDatabase`.
    """

    @property
    def ns(self) -> str:
        return self._twin.ns

    @property
    def db(self) -> str:
        return self._twin.db

    def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Answer:
        """Run a script and return all its results; see `AsyncClient.run`."""
        return self._wait(
            self._twin.run(
                script,
                params,
                timeout=timeout,
                reason=reason,
                repeatable=repeatable,
                after=after,
                current=current,
            )
        )

    def query(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Any:
        """Run a script and return the value of its last statement; see `AsyncClient.query`."""
        return self._wait(
            self._twin.query(
                script,
                params,
                timeout=timeout,
                reason=reason,
                repeatable=repeatable,
                after=after,
                current=current,
            )
        )

    def transaction(self) -> Transaction:
        """Return a transaction, to which statements are added before it is run; see
        `AsyncDatabase.transaction`."""
        return Transaction(self._twin.transaction(), self._submit)

    def load(
        self,
        table: str,
        rows: Any,
        *,
        columns: Sequence[str] | None = None,
        batch: int = BATCH_ROWS,
        ignore: bool = False,
        progress: OnRows | None = None,
        reason: str | None = None,
    ) -> int:
        """Insert many rows, each batch in a commit of its own; see `AsyncDatabase.load`. `rows` are
        read, and `progress` is called, in the client's thread."""
        return self._wait(
            self._twin.load(
                table,
                rows,
                columns=columns,
                batch=batch,
                ignore=ignore,
                progress=progress,
                reason=reason,
            )
        )

    def moment(self, *, keep: float | timedelta = KEEP) -> Moment:
        """Return a pinned snapshot of the store; see `AsyncDatabase.moment`."""
        return Moment(self._twin.moment(keep=keep), self._submit)

    def rows(
        self,
        select: str,
        params: Mapping[str, Any] | None = None,
        *,
        page: int = PAGE,
        consistent: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a SELECT from one table, however many, in the order of their ids; see
        `AsyncDatabase.rows`."""
        return self._each(self._twin.rows(select, params, page=page, consistent=consistent))

    def watch(
        self,
        table: str,
        start: int | Position | None = None,
        *,
        actions: Collection[Action] | None = None,
        before: bool = False,
        where: str | None = None,
    ) -> Watch:
        """Follow the change feed of a table, without end; see `AsyncDatabase.watch`."""
        return Watch(
            self._twin.watch(table, start, actions=actions, before=before, where=where),
            self._submit,
        )

    def mirror(
        self,
        table: str,
        *,
        where: str | None = None,
        page: int = PAGE,
        on_copy: OnCopy | None = None,
    ) -> Mirror:
        """Return a local copy of a table, kept up to date; see `AsyncDatabase.mirror`. `on_copy` is
        called in the client's thread."""
        return Mirror(
            self._twin.mirror(table, where=where, page=page, on_copy=on_copy), self._submit
        )

    def cache(self, space: str) -> Cache:
        """Return a handle of a cache space; see `AsyncClient.cache`."""
        return Cache(self._twin.cache(space), self._submit)

    def topic(self, name: str) -> Topic:
        """Return a handle of a topic; see `AsyncClient.topic`."""
        return Topic(self._twin.topic(name), self._submit)

    def vault(self, name: str) -> Vault:
        """Return a handle of a vault; see `AsyncClient.vault`."""
        return Vault(self._twin.vault(name), self._submit)


class Transaction(Twin[AsyncTransaction]):
    """Statements that commit together, in one script. Made by `Database.transaction()`.

    buying = db.transaction()
    for item in cart:
        buying.add("CREATE sold CONTENT $item", {"item": item})
    answer = buying.run()

    Blocks the calling thread; otherwise like `AsyncTransaction`.
    """

    def add(self, statements: str, params: Mapping[str, Any] | None = None) -> Self:
        """Add one or more statements; see `AsyncTransaction.add`."""
        self._twin.add(statements, params)
        return self

    def run(
        self,
        *,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        current: bool = False,
    ) -> Answer:
        """Commit all statements or none; see `AsyncTransaction.run`."""
        return self._wait(
            self._twin.run(timeout=timeout, reason=reason, repeatable=repeatable, current=current)
        )


class Moment(EnteredTwin[AsyncMoment]):
    """A pinned snapshot, taken on entering `with`. Made by `Database.moment`.

    It belongs to the user, not to the connection, and survives a broken one. It ends when the node
    restarts, a user or grant changes, the disk was full, or no request has read it for its keep
    time. Then reads are refused with `errors.Unknown`.

    Blocks the calling thread; otherwise like `AsyncMoment`.
    """

    @property
    def seq(self) -> int:
        """Sequence of the snapshot; 0 before its entry."""
        return self._twin.seq

    @property
    def position(self) -> Position:
        """Position of the snapshot, to start a watch from."""
        return self._twin.position

    def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Answer:
        """Run a read-only script; see `AsyncMoment.run`."""
        return self._wait(self._twin.run(script, params, timeout=timeout))

    def query(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | timedelta | None = None,
    ) -> Any:
        """Run a script and return the value of the last statement. Otherwise like `run`."""
        return self._wait(self._twin.query(script, params, timeout=timeout))

    def rows(
        self, select: str, params: Mapping[str, Any] | None = None, *, page: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a SELECT in this snapshot; see `AsyncDatabase.rows`."""
        return self._each(self._twin.rows(select, params, page=page))


class Watch(WatchTwin):
    """Change feed of a table. Made by `Database.watch`; nothing is sent before its first
    iteration.

    Iterating yields the changes of the table one by one, without end; `commits` yields the same by
    commit. The watch resumes by itself after a broken connection, when a node is back or no longer
    busy, and after it fell behind. No change is skipped, none comes twice.

    Permanent errors are raised, with advice. `errors.LogPruned` and `errors.Diverged`: the log no
    longer has the commits after `position`, or has another history. `errors.Unknown`: the table was
    dropped. `errors.NotAllowed`; `errors.SessionEnded` of a client with a token; invalid arguments.
    Also if no node can be reached at the first attempt.

    Blocks the calling thread; otherwise like `AsyncWatch`.
    """

    @property
    def position(self) -> Position | None:
        """Cursor of the reader; see `AsyncWatch.position`."""
        return self._twin.position

    def commits(self) -> Iterator[Commit]:
        """Yield the commits that change the table, each whole, without end."""
        return self._each(self._twin.commits())

    def stop(self) -> None:
        """End the iteration after the commit in progress. Stopping twice is fine."""
        self._wait(self._twin.stop())


class Mirror(MirrorTwin):
    """Local copy of a table. Made by `Database.mirror`, filled on entering `with`.

    Its methods may be called from any thread; each sees whole commits. Otherwise it is like
    `AsyncMirror`.
    """

    @property
    def seq(self) -> int:
        """Commit that the mirror shows; see `AsyncMirror.seq`."""
        return self._twin.seq

    def changed(self, since: int | None = None) -> None:
        """Wait for the next change; see `AsyncMirror.changed`."""
        self._wait(self._twin.changed(since))

    def reached(self, seq: int) -> None:
        """Wait until the mirror shows a commit, such as the `seq` of an own answer (causal token);
        see `AsyncMirror.reached`."""
        self._wait(self._twin.reached(seq))


class Cache(CacheTwin):
    """Keys of one space. Made by `Client.cache(ns, db, space)`; each call names the space.

    A `ttl` is seconds or a timedelta, longer than 0. Without one a key gets the default of the
    space, or does not expire.

    Blocks the calling thread; otherwise like `AsyncCache`.
    """

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default`; see `AsyncCache.get`."""
        return self._wait(self._twin.get(key, default))

    def set(
        self, key: str, value: Any, ttl: Seconds | None = None, *, keep_ttl: bool = False
    ) -> None:
        """Set a key. :param keep_ttl: keep its current expiry; otherwise it is cleared"""
        self._wait(self._twin.set(key, value, ttl, keep_ttl=keep_ttl))

    def delete(self, key: str) -> bool:
        """Delete a key. Return whether it existed."""
        return self._wait(self._twin.delete(key))

    def set_if_absent(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """Set a key if it does not exist. Return whether it was set."""
        return self._wait(self._twin.set_if_absent(key, value, ttl))

    def set_if_present(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """Set a key if it exists. Return whether it was set."""
        return self._wait(self._twin.set_if_present(key, value, ttl))

    def compare_and_set(
        self, key: str, expect: Any, value: Any, ttl: Seconds | None = None
    ) -> bool:
        """Set a key if it holds `expect`, in type and value (compare-and-swap); see
        `AsyncCache.compare_and_set`."""
        return self._wait(self._twin.compare_and_set(key, expect, value, ttl))

    def incr(self, key: str, by: int = 1) -> int:
        """Add to a counter, from 0 if the key does not exist; see `AsyncCache.incr`."""
        return self._wait(self._twin.incr(key, by))

    def ttl(self, key: str) -> timedelta | None:
        """Return the time to live of a key: `NEVER` without expiry, None if it does not exist."""
        return self._wait(self._twin.ttl(key))

    def expire(self, key: str, ttl: Seconds) -> bool:
        """Set the expiry of a key. Return whether it exists."""
        return self._wait(self._twin.expire(key, ttl))

    def persist(self, key: str) -> bool:
        """Remove the expiry of a key. Return whether it exists."""
        return self._wait(self._twin.persist(key))

    def keys(self, prefix: str = "", after: str = "", limit: int = KEYS_MOST) -> list[str]:
        """Return keys in the order of their bytes, at most 1000; see `AsyncCache.keys`."""
        return self._wait(self._twin.keys(prefix, after, limit))

    def all_keys(self, prefix: str = "") -> Iterator[str]:
        """Yield all keys with a prefix, in the order of their bytes."""
        return self._each(self._twin.all_keys(prefix))

    def lock(
        self, key: str, ttl: Seconds, holder: str | None = None, *, renew: bool = False
    ) -> Lease | None:
        """Acquire a lease on a key; see `AsyncCache.lock`."""
        twin = self._wait(self._twin.lock(key, ttl, holder, renew=renew))
        return None if twin is None else Lease(twin, self._submit)


class Lease(ContextTwin[AsyncLease]):
    """A held lock, until it is released or expires. It is a lease, not a mutex: pass `fence`, a
    fencing token, to the resource that it protects.

    The lease is identified by its fence, not by its holder's name. Once it is lost, `extend` and
    `release` do not affect a later lock on the key, even of a holder with the same name.

        lease = cache.lock("job", 30)
        if lease is not None:
            with lease:
                ...

    Blocks the calling thread; otherwise like `AsyncLease`.
    """

    @property
    def key(self) -> str:
        return self._twin.key

    @property
    def holder(self) -> str:
        return self._twin.holder

    @property
    def fence(self) -> int:
        """Fencing token; see `AsyncLease.fence`."""
        return self._twin.fence

    @property
    def until(self) -> datetime | None:
        """Expiry of the lease, by the node's clock."""
        return self._twin.until

    @property
    def lost(self) -> bool:
        """True if the lease is known to have ended; see `AsyncLease.lost`."""
        return self._twin.lost

    def extend(self, ttl: Seconds | None = None) -> bool:
        """Extend the lease to `ttl` from the present, by default its original length; see
        `AsyncLease.extend`."""
        return self._wait(self._twin.extend(ttl))

    def release(self) -> bool:
        """Release the lease. Return whether it was still held."""
        return self._wait(self._twin.release())


class Topic(Twin[AsyncTopic]):
    """Handle of a topic. Made by `Client.topic(ns, db, name)`; nothing is sent before its
    first call.

    Times are seconds or timedeltas.

    Blocks the calling thread; otherwise like `AsyncTopic`.
    """

    @property
    def name(self) -> str:
        return self._twin.name

    def publish(
        self,
        value: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
        at: datetime | None = None,
        expect: int | None = None,
    ) -> Published:
        """Append a message; see `AsyncTopic.publish`."""
        return self._wait(
            self._twin.publish(
                value, key=key, id=id, headers=headers, delay=delay, at=at, expect=expect
            )
        )

    def publish_many(
        self,
        values: Sequence[Any],
        *,
        key: str | None = None,
        headers: Headers | None = None,
        delay: Seconds | None = None,
        expect: int | None = None,
    ) -> range:
        """Append messages in one commit, atomically, and return their positions; see
        `AsyncTopic.publish_many`."""
        return self._wait(
            self._twin.publish_many(values, key=key, headers=headers, delay=delay, expect=expect)
        )

    def publisher(self, *, batch: int = BATCH, linger: Seconds = 0.0) -> Publisher:
        """Return a publisher that batches the messages of many tasks; see `AsyncTopic.publisher`.
        Its `publish` does not block."""
        return Publisher(self._twin.publisher(batch=batch, linger=linger), self._submit)

    def read(
        self, after: int = 0, limit: int = 100, *, wait: Seconds | None = None
    ) -> list[Message]:
        """Return messages after a position, oldest first, without moving any reader; see
        `AsyncTopic.read`."""
        return self._wait(self._twin.read(after, limit, wait=wait))

    def messages(self, after: int = 0, *, follow: bool = False) -> Iterator[Message]:
        """Yield messages after a position, page by page; see `AsyncTopic.messages`."""
        return self._each(self._twin.messages(after, follow=follow))

    def reader(self, name: str) -> Reader:
        """Return a handle of a reader: a named cursor that the node stores."""
        return Reader(self._twin.reader(name), self._submit)

    def group(self, name: str) -> Group:
        """Return a handle of a consumer group, whose members share the messages."""
        return Group(self._twin.group(name), self._submit)

    def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR TOPIC: figures of the topic, its readers and groups."""
        return self._wait(self._twin.info())


class Publisher(PublisherTwin):
    """Publishes in batches. Made by `Topic.publisher`.

        with topic.publisher() as publisher:
            outcomes = [publisher.publish(one) for one in work]
        for outcome in outcomes:
            outcome.result()

    Otherwise it is like `AsyncPublisher`.
    """

    def drained(self) -> None:
        """Wait until all published messages have an outcome."""
        self._wait(self._twin.drained())


class Reader(Twin[AsyncReader]):
    """Handle of a reader of a topic: reads from its stored position, which moves only on `commit`.

    reader = topic.reader("audit")
    reader.define()
    for message in reader.read():
        ...
    reader.commit(message.position)

    Blocks the calling thread; otherwise like `AsyncReader`.
    """

    @property
    def name(self) -> str:
        return self._twin.name

    def define(self, at: int | datetime | None = None, *, end: bool = False) -> None:
        """Declare the reader, unless it exists; see `AsyncReader.define`."""
        self._wait(self._twin.define(at, end=end))

    def read(self, limit: int = 100, *, wait: Seconds | None = None) -> list[Message]:
        """Return messages after its position, which does not move; see `AsyncReader.read`."""
        return self._wait(self._twin.read(limit, wait=wait))

    def commit(self, position: int) -> None:
        """Move the reader to a position: all messages up to there are processed."""
        self._wait(self._twin.commit(position))

    def move(self, at: int | datetime) -> None:
        """Move the reader to any position. :param at: see `define`"""
        self._wait(self._twin.move(at))

    def messages(self, *, follow: bool = False) -> Iterator[Message]:
        """Yield messages one by one; see `AsyncReader.messages`."""
        return self._each(self._twin.messages(follow=follow))

    def drop(self) -> None:
        """Drop the reader."""
        self._wait(self._twin.drop())


class Delivery(Twin[AsyncDelivery]):
    """A delivered message, until it is settled.

    Blocks the calling thread; otherwise like `AsyncDelivery`.
    """

    @property
    def position(self) -> int:
        return self._twin.position

    @property
    def at(self) -> datetime:
        """Log time of its commit."""
        return self._twin.at

    @property
    def key(self) -> str | None:
        return self._twin.key

    @property
    def id(self) -> str | None:
        return self._twin.id

    @property
    def headers(self) -> dict[str, str]:
        return self._twin.headers

    @property
    def value(self) -> Any:
        return self._twin.value

    @property
    def bytes(self) -> int:
        """Size in the store, in bytes."""
        return self._twin.bytes

    @property
    def due(self) -> datetime | None:
        """Time before which no group delivers it; None: immediately."""
        return self._twin.due

    @property
    def receipt(self) -> str:
        return self._twin.receipt

    @property
    def attempt(self) -> int:
        """Number of deliveries, including this one."""
        return self._twin.attempt

    @property
    def deadline(self) -> datetime:
        """Ack deadline, by the node's log time; see `AsyncDelivery.deadline`."""
        return self._twin.deadline

    @property
    def member(self) -> str | None:
        return self._twin.member

    def ack(self) -> bool:
        """Acknowledge the message, durably when this returns; see `AsyncDelivery.ack`."""
        return self._wait(self._twin.ack())

    def done(self, script: str, params: Mapping[str, Any] | None = None) -> Answer | None:
        """Commit the message's effect and its acknowledgement in one transaction; see
        `AsyncDelivery.done`."""
        return self._wait(self._twin.done(script, params))

    def nack(self, *, delay: Seconds | None = None, error: str | None = None) -> bool:
        """Return the message for redelivery, after `delay` or else the group's backoff; see
        `AsyncDelivery.nack`."""
        return self._wait(self._twin.nack(delay=delay, error=error))

    def extend(self, by: Seconds) -> bool:
        """Set the ack deadline to `by` from the present. False: too late."""
        return self._wait(self._twin.extend(by))

    def give_up(self, *, error: str | None = None) -> bool:
        """Make the message a dead letter immediately. False: too late."""
        return self._wait(self._twin.give_up(error=error))


class Group(GroupTwin):
    """Handle of a group. Made by `Topic.group(name)`; sends nothing before its first call.

    Blocks the calling thread; otherwise like `AsyncGroup`.
    """

    @property
    def name(self) -> str:
        return self._twin.name

    def take(
        self, count: int = 1, *, member: str | None = None, wait: Seconds | None = None
    ) -> list[Delivery]:
        """Take messages for processing; see `AsyncGroup.take`."""
        return [
            Delivery(one, self._submit)
            for one in self._wait(self._twin.take(count, member=member, wait=wait))
        ]

    def messages(
        self, *, prefetch: int = 32, member: str | None = None, extend: bool = False
    ) -> Consumer:
        """Return a consumer; see `AsyncGroup.messages`."""
        return Consumer(
            self._twin.messages(prefetch=prefetch, member=member, extend=extend), self._submit
        )

    def ack(self, receipts: Sequence[str]) -> Settled:
        """Acknowledge messages. :param receipts: 1 to 10 000"""
        return self._wait(self._twin.ack(receipts))

    def nack(
        self, receipts: Sequence[str], *, delay: Seconds | None = None, error: str | None = None
    ) -> Settled:
        """Return messages for redelivery; see `AsyncDelivery.nack`."""
        return self._wait(self._twin.nack(receipts, delay=delay, error=error))

    def extend(self, receipts: Sequence[str], by: Seconds) -> Settled:
        """Set the ack deadlines to `by` from the present."""
        return self._wait(self._twin.extend(receipts, by))

    def give_up(self, receipts: Sequence[str], *, error: str | None = None) -> Settled:
        """Make the messages dead letters immediately."""
        return self._wait(self._twin.give_up(receipts, error=error))

    def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR GROUP."""
        return self._wait(self._twin.info())


class Consumer(ContextTwin[AsyncConsumer]):
    """Endless iterator of a group's messages. Made by `Group.messages`; see there.

    It prefetches, and resumes by itself after a broken connection, and while a node is away, busy,
    full or read-only. Messages in a lost answer are delivered again after their ack deadline.
    Acknowledgements and extensions are repeated likewise, until `stop`. Other errors end it and are
    raised where it is iterated over, and so is the failure to reach a node at the first attempt.
    `stop`, or leaving `with`, returns prefetched messages that were not iterated over. This
    counts as an attempt of those messages, like each delivery. A group with DELIVERIES 1 makes them
    dead letters, so its consumers should prefetch 1.

    Blocks the calling thread; otherwise like `AsyncConsumer`.
    """

    @property
    def stale(self) -> int:
        """Acknowledgements that came too late."""
        return self._twin.stale

    def stop(self) -> None:
        """Take no more messages, return those not iterated over, and wait for pending
        acknowledgements; see `AsyncConsumer.stop`. An iteration in another thread ends."""
        self._wait(self._twin.stop())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        return Delivery(self._next(self._twin), self._submit)


class Seal(Twin[AsyncSeal]):
    """Handle of the store's seal, which covers the vaults without a passphrase of their own. Made
    by `Client.store_seal()`.

    Blocks the calling thread; otherwise like `AsyncSeal`.
    """

    def unseal(self, passphrase: str) -> datetime:
        """Unseal for a limited time; see `AsyncSeal.unseal`."""
        return self._wait(self._twin.unseal(passphrase))

    def seal(self) -> None:
        """Seal immediately."""
        self._wait(self._twin.seal())

    def change_passphrase(self, old: str | None, new: str, *, rekey: bool = False) -> int:
        """Change the passphrase; see `AsyncSeal.change_passphrase`."""
        return self._wait(self._twin.change_passphrase(old, new, rekey=rekey))


class Vault(Seal):
    """Handle of a vault. Made by `Client.vault(ns, db, name)` or `Database.vault(name)`;
    nothing is sent before its first call. `unseal`, `seal` and `change_passphrase` are for a vault
    with a passphrase of its own: others open with `Client.store_seal()`.

    Blocks the calling thread; otherwise like `AsyncVault`.
    """

    _twin: AsyncVault

    def write(
        self,
        id: str,
        value: Any,
        *,
        if_absent: bool = False,
        expect: int | None = None,
        reason: str | None = None,
    ) -> Written:
        """Write the next version of a record; see `AsyncVault.write`."""
        return self._wait(
            self._twin.write(id, value, if_absent=if_absent, expect=expect, reason=reason)
        )

    def reveal(self, id: str, *, version: int | None = None, reason: str | None = None) -> Revealed:
        """Return the value of a record; see `AsyncVault.reveal`."""
        return self._wait(self._twin.reveal(id, version=version, reason=reason))

    def list(self, prefix: str = "", after: str = "", limit: int = 1000) -> Ids:
        """Return ids in the order of their bytes, at most 1000; see `AsyncVault.list`."""
        return self._wait(self._twin.list(prefix, after, limit))

    def erase(self, id: str, *, reason: str | None = None) -> bool:
        """Erase a record with all its versions. Return whether it existed."""
        return self._wait(self._twin.erase(id, reason=reason))

    def info(self) -> dict[str, Any]:
        """Return the result of INFO FOR VAULT."""
        return self._wait(self._twin.info())

    def audit(self, before: int | None = None, limit: int = 100) -> Entries:
        """Return entries of the audit trail, newest first; see `AsyncVault.audit`."""
        return self._wait(self._twin.audit(before, limit))
