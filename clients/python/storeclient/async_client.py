"""Async client: multiplexes requests over one connection per node, made on demand and again after a
failure. The blocking client is generated from it, and from the handles: see `unasync.py`."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar, get_args

from storeclient import faults
from storeclient.answers import Answer, Fields
from storeclient.attempts import Attempts, belongs_to_home, turned_away
from storeclient.backups import Backup, Progress, Target, statement, write
from storeclient.cache import AsyncCache
from storeclient.connection import GRACE_SECONDS, Connection
from storeclient.database import AsyncDatabase
from storeclient.errors import (
    BadRequest,
    Cancelled,
    OutcomeUnknown,
    ProtocolBroken,
    Refused,
    StatementTimeout,
    StoreError,
    TypeRefused,
    VersionNotSupported,
)
from storeclient.events import OnConnection
from storeclient.exchange import (
    MINOR_OF_AFTER,
    MINOR_OF_FEEDS,
    MINOR_OF_SEQUENCES,
    MINOR_OF_STREAMS,
    MINOR_OF_VAULTS,
    NotSent,
    Welcome,
)  # fmt: skip
from storeclient.feeds import Feed
from storeclient.frames import Kind
from storeclient.names import check_names, check_place
from storeclient.nodes import KnownNode, Nodes
from storeclient.rows import PendingRow
from storeclient.seen import Seen, SeenMark, seems_to_read
from storeclient.settings import Reads, make_settings
from storeclient.topics import AsyncTopic
from storeclient.values import duration
from storeclient.vaults import AsyncSeal, AsyncVault

T = TypeVar("T")
MAKERS_KEPT: Final = 64
"""Number of moments for which the client remembers the node that made them."""


class AsyncClient:
    """A client of a store, for use from one event loop.

    Any number of tasks may share it: their requests are multiplexed over one connection and
    answered in any order. It connects when first used, and reconnects after a broken connection.

    Given several nodes of a store it uses the leader, and follows it when another node is elected.

    A request that may have run is never repeated automatically. If the connection breaks during a
    script, `run` raises `OutcomeUnknown`, unless the script was declared `repeatable`.

        async with AsyncClient("localhost:8001", user="root", password=secret) as client:
            client.use("shop", "main")
            people = await client.query("SELECT * FROM person WHERE age > $n", {"n": 30})

    :param address: `host:port`, default port 8001. Several nodes of one store: all of them, in a
        list or separated by commas
    :param user: with `password`; or give a `token` of `POST /session`, which is valid at one node
    :param ns: default namespace of scripts, and `db` their default database
    :param tls: True for a certificate that the system trusts, or an SSL context
    :param timeout: for each script, in seconds; None leaves it to the script
    :param connect_timeout: time-out of connecting in seconds, all attempts together
    :param on_connection: called when a connection is established, also again, or lost
    :param reads: "any": read-only scripts go to all nodes in turn. Each node first waits until it
        shows all that this client has seen or done (read your writes)
    :raises ValueError: arguments that contradict each other
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
        if reads not in get_args(Reads):
            raise ValueError(f"reads must be one of {', '.join(get_args(Reads))}, not {reads!r}")
        settings = make_settings(address, user, password, token, tls, connect_timeout)
        check_place(ns, db)
        self._user = user
        self._nodes = Nodes(settings, on_connection)
        self._reads = reads
        self._seen = Seen()
        self._makers: dict[str, KnownNode] = {}
        """Node that made a moment, by name of the moment, for the newest ones."""
        self._timeout = duration(timeout)
        self.ns = ns
        """Default namespace of scripts."""
        self.db = db
        """Default database of scripts."""

    def __repr__(self) -> str:
        return f"<AsyncClient {f'{self._user}@' if self._user else ''}{self._nodes.where}>"

    def database(self, ns: str, db: str) -> AsyncDatabase:
        """Return a handle of a database, with calls that need no ns and db. :raises ValueError:
        invalid name"""
        return AsyncDatabase(self, ns, db)

    def use(self, ns: str | None, db: str | None = None) -> None:
        """Set the default namespace and database of later scripts; running scripts are not
        affected.

        :raises ValueError: an invalid name
        """
        check_place(ns, db)
        self.ns, self.db = ns, db

    async def run(
        self,
        script: str,
        params: Mapping[str, Any] | None = None,
        *,
        ns: str | None = None,
        db: str | None = None,
        timeout: float | timedelta | None = None,
        reason: str | None = None,
        repeatable: bool = False,
        stop: asyncio.Future[None] | None = None,
        moment: str | None = None,
        keep: float | timedelta | None = None,
        record: bool = False,
        after: int | None = None,
        current: bool = False,
    ) -> Answer:
        """Run a script and return all its results.

        :param params: values of `$name`, bound and never pasted into the text
        :param ns: in place of the client's default, for this script; with `db`
        :param timeout: seconds, or a timedelta, in place of the client's default
        :param reason: stored with the statements in the statement log
        :param repeatable: the script is idempotent: after a broken connection it is sent again,
            until nine have broken during it
        :param stop: once it is done the node is asked to end the script, whose answer is still
            awaited: `errors.Cancelled`, or the results of a script that ended before
        :param moment: snapshot to read: "new", or the `moment` of an answer; preferably use
            `AsyncDatabase.moment`
        :param keep: time that the moment is kept after this script, seconds, or a timedelta
        :param record: the statement log records the script even if it only reads
        :param after: causal token: the node first waits until it shows that sequence, such as the
            `seq` of another client's answer. `errors.StatementTimeout` if it does not in time
        :param current: linearizable read: the script sees all that was committed on any node before
            the request, independent of clocks; see docs/cluster.md. `errors.StatementTimeout` if
            the nodes that may lead do not confirm in time
        :raises Refused: the node refused; the class is named after the code, `results` holds the
            results before
        :raises OutcomeUnknown: the connection broke during the script, or no answer came in time
        :raises Unreachable: no connection could be made; nothing was sent
        :raises TypeError, ValueError: a parameter is not a value of the language
        """
        limit = self._timeout if timeout is None else duration(timeout)
        check_place(ns, db)
        place = (self.ns, self.db) if ns is None and db is None else (ns or self.ns, db)
        reads = {
            "moment": moment,
            "keep": None if keep is None else duration(keep),
            "record": record or None,
            "after": after,
            "current": current or None,
        }
        return await self._run(script, params, place, limit, reason, repeatable, stop, reads=reads)

    async def _run(
        self,
        script: str,
        params: Mapping[str, Any] | None,
        place: tuple[str | None, str | None],
        limit: timedelta | None,
        reason: str | None = None,
        repeatable: bool = False,
        stop: asyncio.Future[None] | None = None,
        waits: bool = False,
        reads: Mapping[str, Any] = MappingProxyType({}),
    ) -> Answer:
        body: dict[str, Any] = {"script": script}
        if params:
            body["params"] = dict(params)
        for name, value in (("ns", place[0]), ("db", place[1]), *reads.items()):
            if value is not None:
                body[name] = value
        if limit is not None:
            body["timeout"] = limit
        if reason is not None:
            body["reason"] = reason
        wait = None if limit is None else limit.total_seconds() + GRACE_SECONDS
        spread = self._reads_anywhere and seems_to_read(script) and not belongs_to_home(body)
        try:
            answer = await self._ask(
                Kind.RUN, body, wait, repeatable, stop, waits, spread,
                self._makers.get(body.get("moment", "")),
            )  # fmt: skip
        except (OutcomeUnknown, asyncio.CancelledError):  # it may have run
            self._seen.untold()
            raise
        except Refused as error:
            self._seen.reached(error.committed or 0)
            raise
        assert isinstance(answer, Answer)
        return answer

    async def query(
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
        answer = await self.run(
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
        return answer.value

    async def backup(
        self,
        path: str | os.PathLike[str],
        *,
        ns: str | None = None,
        db: str | None = None,
        progress: Progress | None = None,
        reason: str | None = None,
    ) -> Backup:
        """Take a snapshot of the node into a new local file, over a separate connection.

        The file has its final name once it is written and synced completely; until then it is
        `path.partial`.

        :param ns: snapshot of one namespace; with `db` of that database
        :param progress: called with the bytes written and the total, after each part
        :raises FileExistsError: the file exists; it is not replaced
        :raises Refused: the node refused; owners of the store are allowed
        :raises VersionNotSupported: the node is too old
        :raises Unreachable, OutcomeUnknown: there was no connection, or it broke
        """
        script = statement(ns, db)
        target = await asyncio.to_thread(Target, os.fspath(path))
        try:
            connection = await self._nodes.own()
            try:
                assert connection.welcome is not None
                if connection.welcome.minor < MINOR_OF_STREAMS:
                    raise _too_old(connection.welcome, "streams", MINOR_OF_STREAMS)
                body = (
                    {"script": script} if reason is None else {"script": script, "reason": reason}
                )
                try:
                    parts = await connection.stream(body)
                except NotSent:
                    raise turned_away(
                        self._nodes, connection, self._nodes.where
                    ) from connection.cause
                return await write(parts, target, progress)
            finally:
                connection.abort()
                await connection.gone()
        finally:
            await asyncio.to_thread(target.abandon)

    def cache(self, ns: str, db: str, space: str) -> AsyncCache:
        """Return a handle of a cache space. Nothing is sent before its first call.

        :raises ValueError: an invalid name
        """
        check_names(ns, db, space)
        return AsyncCache(self._key, ns, db, space)

    def topic(self, ns: str, db: str, name: str) -> AsyncTopic:
        """Return a handle of a topic. Nothing is sent before its first call. :raises ValueError:
        invalid name"""
        check_names(ns, db, name)

        async def run(
            script: str,
            params: dict[str, Any],
            *,
            wait: timedelta | None = None,
            repeatable: bool = False,
            stop: asyncio.Future[None] | None = None,
        ) -> Answer:
            limit = self._timeout
            if limit is not None and wait is not None:
                limit += wait
            return await self._run(
                script,
                params,
                (ns, db),
                limit,
                repeatable=repeatable,
                stop=stop,
                waits=wait is not None,
            )

        async def ask(
            op: str,
            fields: dict[str, Any],
            *,
            wait: timedelta | None = None,
            stop: asyncio.Future[None] | None = None,
            place: PendingRow | None = None,
        ) -> dict[str, Any]:
            body = {"op": op, "ns": ns, "db": db, "topic": name, **fields}
            seconds = None
            if self._timeout is not None:
                body["timeout"] = limit = self._timeout + (wait or timedelta())
                seconds = limit.total_seconds() + GRACE_SECONDS
            waits = wait is not None
            return await self._change(Kind.TOPIC, body, seconds, stop, waits, place)

        return AsyncTopic(run, ask, name)

    def vault(self, ns: str, db: str, name: str) -> AsyncVault:
        """Return a handle of a vault. Nothing is sent before its first call. :raises ValueError:
        invalid name"""
        check_names(ns, db, name)

        async def run(script: str, params: Mapping[str, Any], reason: str | None) -> Answer:
            return await self.run(script, params, ns=ns, db=db, reason=reason)

        return AsyncVault(self._seal, run, ns, db, name)

    def store_seal(self) -> AsyncSeal:
        """Return a handle of the store's seal, which opens vaults without a passphrase of their
        own."""
        return AsyncSeal(self._seal, {})

    async def _seal(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send one operation on a seal."""
        welcome = await self.connect()
        if welcome.minor < MINOR_OF_VAULTS:
            raise _too_old(welcome, "vaults", MINOR_OF_VAULTS)
        return await self._change(Kind.VAULT, body, None)

    async def _key(self, body: dict[str, Any], repeatable: bool) -> dict[str, Any]:
        """Send one operation on a key. :param repeatable: the operation is idempotent"""
        wait = None if self._timeout is None else self._timeout.total_seconds() + GRACE_SECONDS
        if not repeatable:
            return await self._change(Kind.KV, body, wait)
        answer = await self._ask(Kind.KV, body, wait, True)
        assert isinstance(answer, Fields)
        return answer.fields

    async def _change(
        self,
        kind: Kind,
        body: dict[str, Any],
        wait: float | None,
        stop: asyncio.Future[None] | None = None,
        waits: bool = False,
        place: PendingRow | None = None,
    ) -> dict[str, Any]:
        """Send one operation that may write, and record its commit. Operations on seals, and nodes
        before minor 8, do not answer the commit's sequence."""
        seq = None
        try:
            answer = await self._ask(kind, body, wait, False, stop, waits, place=place)
            assert isinstance(answer, Fields)
            seq = answer.seq
        finally:
            if seq is None:
                self._seen.untold()
            elif seq:
                self._seen.reached(seq)
        return answer.fields

    async def ping(self) -> None:
        """Make a round trip to the node. :raises StoreError: it failed"""
        await self._ask(Kind.PING, None, self._nodes.connect_timeout, repeatable=True)

    async def connect(self) -> Welcome:
        """Connect, unless connected, and return the node's welcome message.

        :raises Unreachable: no connection could be made in time
        :raises Refused: the node refused the credential or the version
        """
        connection = (await self._nodes.home()).connection
        assert connection is not None and connection.welcome is not None
        return connection.welcome

    async def close(self) -> None:
        """Wait for pending requests, then end the connection. Closing twice is fine.

        A `take` or `read` that waits for messages is ended, and raises `Closed` unless it was
        answered before. So does a call that waits for a connection.
        """
        await self._nodes.close()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:  # above all cancelled: else the connection would leak
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- how it stays connected ------------------------------------------------------------------

    async def _ask(
        self,
        kind: Kind,
        body: dict[str, Any] | None,
        wait: float | None,
        repeatable: bool,
        stop: asyncio.Future[None] | None = None,
        waits: bool = False,
        spread: bool = False,
        at: KnownNode | None = None,
        place: PendingRow | None = None,
    ) -> object:
        """Send a request, with retries.

        :param spread: any node may be used that shows all that this client has seen
        :param at: node to use while its connection is open
        :param place: position among requests that must run in order
        """
        attempts = Attempts(self._nodes, repeatable, spread, stop, at, place)
        seen = self._seen

        async def ask(node: KnownNode, connection: Connection) -> object:
            sent = self._behind_what_was_seen(body, node) if attempts.spread else body
            if sent is not None and ("after" in sent or "current" in sent):
                _check_known(connection, sent)
            mark = seen.mark()
            reply = await connection.ask(kind, sent, wait, stop, waits)
            if isinstance(reply, Answer):
                self._answered(node, reply, mark)
                if reply.moment is not None and self._nodes.are_several:
                    self._remember_maker(reply.moment, node)
            elif isinstance(reply, Fields) and kind is not Kind.VAULT and node.knows_sequences:
                reply = reply.with_own_seq()
            return reply

        return await self._go(ask, body, attempts, waits)

    def _remember_maker(self, moment: str, node: KnownNode) -> None:
        """Remember the node that made a moment: no other node has it, whichever is the leader."""
        self._makers.pop(moment, None)
        self._makers[moment] = node
        if len(self._makers) > MAKERS_KEPT:
            del self._makers[next(iter(self._makers))]

    def _behind_what_was_seen(
        self, body: dict[str, Any] | None, node: KnownNode
    ) -> dict[str, Any] | None:
        """Return the body of a read with `after` set to the newest commit seen, for a node that may
        lag."""
        after = max((body or {}).get("after") or 0, self._seen.after or 0)
        return {**(body or {}), "after": after} if after and node.knows_after else body

    def _answered(self, node: KnownNode, answer: Answer, mark: SeenMark) -> None:
        """Record the position in an answer. :raises ProtocolBroken: the node belongs to another
        store"""
        if self._nodes.is_home(node):
            self._seen.told(answer.position, mark if node.takes_changes is not False else None)
        elif self._seen.is_foreign(answer):
            node.is_foreign = True
            raise ProtocolBroken(
                f"{node.where} is a node of another store, {answer.store}: the client no longer"
                " reads from it"
            )
        else:
            self._seen.told(answer.position)

    async def _watch(self, body: dict[str, Any]) -> Feed:
        """Open a feed. It has delivered nothing yet, so retries are safe."""
        seconds = None if self._timeout is None else self._timeout.total_seconds() + GRACE_SECONDS
        attempts = Attempts(self._nodes, True, self._reads_anywhere)

        async def begin(node: KnownNode, connection: Connection) -> Feed:
            assert connection.welcome is not None
            if connection.welcome.minor < MINOR_OF_FEEDS:
                raise _too_old(connection.welcome, "feeds", MINOR_OF_FEEDS)
            asked, after = body, self._seen.after
            if self._nodes.are_several and node.knows_sequences:
                if after and not self._nodes.is_home(node):
                    asked = {**body, "after": after}
            elif self._nodes.are_several and node.knows_after:
                start = max(body.get("from") or 0, after or 0)
                if start:
                    await self._reach(node, connection, start, seconds)
            feed = await connection.watch(asked, seconds)
            feed.on_seq = self._seen.reached
            return feed

        return await self._go(begin, body, attempts)

    async def _reach(
        self, node: KnownNode, connection: Connection, seq: int, seconds: float | None
    ) -> None:
        """Wait until a node has reached the start of a feed. Feeds of an older version do not wait,
        and a lagging node would refuse the position as one of another history.

        :raises StatementTimeout: it lags, and is not the home node
        """
        try:
            await connection.ask(Kind.RUN, {"script": "", "after": seq}, seconds)
        except StatementTimeout:
            if not self._nodes.is_home(node):
                raise
            # The home node has another history: WATCH refuses with the exact error.

    async def _go(
        self,
        work: Callable[[KnownNode, Connection], Awaitable[T]],
        body: dict[str, Any] | None,
        attempts: Attempts,
        waits: bool = False,
    ) -> T:
        """Run `work` on a usable connection, with retries on others."""
        while True:
            node = await attempts.node()
            connection = node.connection
            assert connection is not None
            try:
                return await work(node, connection)
            except NotSent:
                await attempts.not_sent(node, connection)
            except (TypeError, ValueError) as error:
                name = faults.named(body or {})
                if name is None:
                    raise
                wrong = TypeError if isinstance(error, TypeError) else ValueError
                raise wrong(f"{name}: {error}") from error
            except StoreError as error:
                if isinstance(error, Cancelled) and waits and self._nodes.is_closed:
                    raise self._nodes.closed() from None
                if not await attempts.go_on_after(error, node, connection):
                    if isinstance(error, BadRequest | TypeRefused):
                        _name_parameter(error, body)
                    raise

    @property
    def _reads_anywhere(self) -> bool:
        """True if a read may go to any node, and still see all changes of this client."""
        return self._reads == "any" and self._nodes.are_several and self._seen.is_whole


def _check_known(connection: Connection, body: Mapping[str, Any]) -> None:
    welcome = connection.welcome
    assert welcome is not None
    if welcome.minor < MINOR_OF_AFTER:
        raise _too_old(welcome, "requests with `after`", MINOR_OF_AFTER)
    if "current" in body and welcome.minor < MINOR_OF_SEQUENCES:
        raise _too_old(welcome, "requests with `current`", MINOR_OF_SEQUENCES)


def _too_old(welcome: Welcome, what: str, minor: int) -> VersionNotSupported:
    message = (
        f"node {welcome.node} of version {welcome.version} speaks minor {welcome.minor}"
        f" of the wire protocol, which has no {what}: they came with {minor}"
    )
    return VersionNotSupported({"code": "VersionNotSupported", "message": message, "status": 505})


def _name_parameter(error: Refused, body: Mapping[str, Any] | None) -> None:
    """Add the name of the invalid parameter to a refusal of a request that did not run."""
    if error.statement is None:
        name = faults.named(body or {})
        if name is not None:
            error.args = (f"{name}: {error.args[0]}",)
