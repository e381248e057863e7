"""The async client: one connection, made when needed and made again when it broke."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self, TypeVar

from storeclient import faults
from storeclient.answers import Answer, Fields
from storeclient.backups import Backup, Progress, Target, statement, write
from storeclient.cache import AsyncCache
from storeclient.connection import GRACE_SECONDS, Connection
from storeclient.database import AsyncDatabase
from storeclient.errors import (
    BadRequest,
    Cancelled,
    Closed,
    Draining,
    OutcomeUnknown,
    Refused,
    SessionEnded,
    TypeRefused,
    Unreachable,
    VersionNotSupported,
)
from storeclient.events import ConnectionEvent, OnConnection
from storeclient.exchange import (
    MINOR_OF_FEEDS,
    MINOR_OF_STREAMS,
    MINOR_OF_VAULTS,
    NotSent,
    Welcome,
)  # fmt: skip
from storeclient.feeds import Feed
from storeclient.frames import Kind
from storeclient.outages import Pause
from storeclient.settings import make_settings
from storeclient.topics import AsyncTopic
from storeclient.values import duration
from storeclient.vaults import AsyncSeal, AsyncVault

T = TypeVar("T")

BACKOFF_FIRST_SECONDS: Final = 0.02
BACKOFF_MOST_SECONDS: Final = 2.0


class AsyncClient:
    """A client of one node, for use from one event loop.

    Any number of tasks may share it: their requests travel on one connection and are answered in
    any order. It connects when first used, and again after the connection has broken.

    Nothing that may have run is ever sent again by itself. When the connection breaks under a
    script, `run` raises `OutcomeUnknown`, unless it was told that the script is `repeatable`.

        async with AsyncClient("localhost:8001", user="root", password=secret) as client:
            client.use("shop", "main")
            people = await client.query("SELECT * FROM person WHERE age > $n", {"n": 30})

    :param address: `host:port`; the port is 8001 where none is given
    :param user: with `password`; or give a `token` of `POST /session`
    :param ns: the namespace, and `db` the database, that scripts start in
    :param tls: True for a certificate the system trusts, or a context of your own
    :param timeout: for each script, in seconds; None leaves it to the script
    :param connect_timeout: seconds in which a connection must stand, all attempts together
    :param on_connection: told when the connection has come to stand, again too, or is lost
    :raises ValueError: arguments that contradict each other
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8001",
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
    ) -> None:
        self._settings = make_settings(address, user, password, token, tls, connect_timeout)
        self._timeout = duration(timeout)
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._parting: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._on_connection = on_connection
        self._was_connected = False
        self.ns = ns
        self.db = db

    def __repr__(self) -> str:
        user = self._settings.credential.user
        return f"<AsyncClient {f'{user}@' if user else ''}{self._settings.where}>"

    def database(self, ns: str, db: str) -> AsyncDatabase:
        """One database: what is asked of it names no place. :raises ValueError: of a name"""
        return AsyncDatabase(self, ns, db)

    def use(self, ns: str | None, db: str | None = None) -> None:
        """Where scripts start from now on; those under way are not moved."""
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
    ) -> Answer:
        """Run a script and answer all its results.

        :param params: values of `$name`, bound and never pasted into the text
        :param ns: in place of the client's own, for this script; with `db`
        :param timeout: seconds, or a timedelta, in place of the client's own
        :param reason: kept with the statements in the statement log
        :param repeatable: running the script twice does no harm: after a broken connection it is
            sent again
        :param stop: once it is done the node is asked to end the script, whose answer is waited for
            all the same: `errors.Cancelled`, or that of a script that came to its end first
        :param moment: reads what was committed then: "new", or the `moment` of an answer;
            `AsyncDatabase.moment` is the way to have one
        :param keep: how long the moment is kept behind this script, seconds, or a timedelta
        :param record: the statement log keeps the script though it only reads
        :raises Refused: the node refused; the class is the code's, `results` is what ran before
        :raises OutcomeUnknown: the connection broke under it, or no answer came in time
        :raises Unreachable: no connection could be made; nothing was sent
        :raises TypeError, ValueError: a parameter is not a value of the language
        """
        limit = self._timeout if timeout is None else duration(timeout)
        place = (self.ns, self.db) if ns is None and db is None else (ns or self.ns, db)
        reads = {
            "moment": moment,
            "keep": None if keep is None else duration(keep),
            "record": record or None,
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
        answer = await self._ask(Kind.RUN, body, wait, repeatable, stop, waits)
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
    ) -> Any:
        """Run a script and answer the value of its last statement. Otherwise as `run`."""
        answer = await self.run(
            script,
            params,
            ns=ns,
            db=db,
            timeout=timeout,
            reason=reason,
            repeatable=repeatable,
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
        """Take a snapshot of the node into a new file of this machine, on a connection of its own.

        The file has its name once all of it is written and synced; until then it is `path.partial`.

        :param ns: of one namespace alone; with `db` of that database
        :param progress: told the bytes written and those there are in all, after each part
        :raises FileExistsError: there is a file of that name; it is not replaced
        :raises Refused: the node refused; who owns the store may
        :raises VersionNotSupported: the node is too old
        :raises Unreachable, OutcomeUnknown: there was no connection, or it broke
        """
        script = statement(ns, db)
        target = await asyncio.to_thread(Target, os.fspath(path))
        try:
            connection = await self._connect(tells=False)
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
                    raise self._turned_away(connection) from connection.cause
                return await write(parts, target, progress)
            finally:
                connection.abort()
                await connection.gone()
        finally:
            await asyncio.to_thread(target.abandon)

    def cache(self, ns: str, db: str, space: str) -> AsyncCache:
        """The keys of a cache space. Nothing is asked before its first call."""
        return AsyncCache(self._key, ns, db, space)

    def topic(self, ns: str, db: str, name: str) -> AsyncTopic:
        """A topic. Nothing is asked before its first call. :raises ValueError: of its name"""

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
        ) -> dict[str, Any]:
            body = {"op": op, "ns": ns, "db": db, "topic": name, **fields}
            seconds = None
            if self._timeout is not None:
                body["timeout"] = limit = self._timeout + (wait or timedelta())
                seconds = limit.total_seconds() + GRACE_SECONDS
            waits = wait is not None
            answer = await self._ask(Kind.TOPIC, body, seconds, False, stop, waits)
            assert isinstance(answer, Fields)
            return answer.fields

        return AsyncTopic(run, ask, name)

    def vault(self, ns: str, db: str, name: str) -> AsyncVault:
        """A vault. Nothing is asked before its first call. :raises ValueError: of its name"""

        async def run(script: str, params: Mapping[str, Any], reason: str | None) -> Answer:
            return await self.run(script, params, ns=ns, db=db, reason=reason)

        return AsyncVault(self._seal, run, ns, db, name)

    def store_seal(self) -> AsyncSeal:
        """What opens the vaults that have no passphrase of their own."""
        return AsyncSeal(self._seal, {})

    async def _seal(self, body: dict[str, Any]) -> dict[str, Any]:
        """One operation on a seal."""
        welcome = (await self._usable()).welcome
        assert welcome is not None
        if welcome.minor < MINOR_OF_VAULTS:
            raise _too_old(welcome, "vaults", MINOR_OF_VAULTS)
        answer = await self._ask(Kind.VAULT, body, None, False)
        assert isinstance(answer, Fields)
        return answer.fields

    async def _key(self, body: dict[str, Any], repeatable: bool) -> dict[str, Any]:
        """One operation on a key. :param repeatable: doing it twice does no harm"""
        wait = None if self._timeout is None else self._timeout.total_seconds() + GRACE_SECONDS
        answer = await self._ask(Kind.KV, body, wait, repeatable)
        assert isinstance(answer, Fields)
        return answer.fields

    async def ping(self) -> None:
        """Go to the node and back. :raises StoreError: that was not possible"""
        await self._ask(Kind.PING, None, self._settings.connect_timeout, repeatable=True)

    async def connect(self) -> Welcome:
        """Connect if that has not been done, and answer what the node says of itself.

        :raises Unreachable: no connection could be made in time
        :raises Refused: the node refused the credential or the version
        """
        welcome = (await self._usable()).welcome
        assert welcome is not None
        return welcome

    async def close(self) -> None:
        """Wait for what is under way, then end the connection. Harmless when done twice.

        A `take` or `read` that waits for messages is ended, and raises `Closed` to its caller
        unless it was answered first. So is who waits for a connection.
        """
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()
        await asyncio.gather(*self._parting)

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:  # cancelled, above all: what is being connected would be nobody's
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
    ) -> object:
        return await self._go(
            lambda connection: connection.ask(kind, body, wait, stop, waits),
            body, repeatable, waits,
        )  # fmt: skip

    async def _watch(self, body: dict[str, Any]) -> Feed:
        """A feed that has begun, told to nobody before: asking twice does no harm."""
        seconds = None if self._timeout is None else self._timeout.total_seconds() + GRACE_SECONDS

        async def begin(connection: Connection) -> Feed:
            assert connection.welcome is not None
            if connection.welcome.minor < MINOR_OF_FEEDS:
                raise _too_old(connection.welcome, "feeds", MINOR_OF_FEEDS)
            return await connection.watch(body, seconds)

        return await self._go(begin, body, repeatable=True)

    async def _go(
        self,
        work: Callable[[Connection], Awaitable[T]],
        body: dict[str, Any] | None,
        repeatable: bool,
        waits: bool = False,
    ) -> T:
        """Do something on a usable connection, and on another one where it was never begun."""
        signed_in_again = False
        turned_away: float | None = None
        pause = Pause()
        while True:
            connection = await self._usable()
            try:
                return await work(connection)
            except NotSent:
                # One connection that ends in this moment says nothing. A peer that ends each of
                # them as soon as it has welcomed it is none to go on connecting to for ever.
                now = asyncio.get_running_loop().time()
                if turned_away is None:
                    turned_away = now
                elif now - turned_away < self._settings.connect_timeout:
                    await pause.rest()
                else:
                    raise self._turned_away(connection) from connection.cause
            except (TypeError, ValueError) as error:
                name = faults.named(body or {})
                if name is None:
                    raise
                wrong = TypeError if isinstance(error, TypeError) else ValueError
                raise wrong(f"{name}: {error}") from error
            except (BadRequest, TypeRefused) as error:
                _name_parameter(error, body)
                raise
            except Cancelled:
                if waits and self._is_closed:
                    raise self._closed() from None
                raise
            except Draining:
                # Said about a request that crossed the node's BYE: it was never begun.
                if not connection.leaving:
                    raise
            except SessionEnded:
                # Refused before it began. A password opens another session, a token does not.
                if self._settings.credential.password is None or signed_in_again:
                    raise
                signed_in_again = True
                await self._sign_in_again(connection)
            except OutcomeUnknown as error:
                if not repeatable or isinstance(error, Refused) or connection.usable:
                    raise

    def _turned_away(self, connection: Connection) -> Unreachable:
        seconds = self._settings.connect_timeout
        why = connection.cause or "it says goodbye"
        return Unreachable(
            f"{self._settings.where} has ended each connection for {seconds:g} s before anything"
            f" was sent: {why}"
        )

    async def _sign_in_again(self, connection: Connection) -> None:
        try:
            await connection.ask(Kind.AUTH, dict(self._settings.credential.fields()), GRACE_SECONDS)
        except (NotSent, OutcomeUnknown):
            return  # the connection has gone: the next one signs in by itself

    async def _usable(self) -> Connection:
        """The connection, or another one when it is not usable any more."""
        if self._is_closed:
            raise self._closed()
        connection = self._connection
        if connection is not None and connection.usable:
            return connection
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        connecting = self._connecting
        # Waited for, not awaited: a task that gives up must not take the others' connection away,
        # and one that `close` takes it away from must not think that it was cancelled itself.
        await asyncio.wait((connecting,))
        if connecting.cancelled():
            raise self._closed()
        return connecting.result()

    def _closed(self) -> Closed:
        return Closed("the client has been closed")

    def _connected(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if task.cancelled() or task.exception() is not None:
            return
        if self._connection is not None and self._connection.leaving:
            parting = asyncio.create_task(self._connection.gone())
            self._parting.add(parting)
            parting.add_done_callback(self._parting.discard)
        self._connection = connection = task.result()
        assert connection.welcome is not None
        self._tell(
            ConnectionEvent(
                "reconnected" if self._was_connected else "connected",
                self._settings.where,
                connection.welcome.version,
            )
        )
        self._was_connected = True

    def _lost(self, error: BaseException | None) -> None:
        if not self._is_closed:
            self._tell(ConnectionEvent("lost", self._settings.where, error=error))

    def _tell(self, event: ConnectionEvent) -> None:
        """By a call of its own, so that what is raised there disturbs nothing here, and the loop
        reports it."""
        if self._on_connection is not None:
            asyncio.get_running_loop().call_soon(self._on_connection, event)

    async def _connect(self, tells: bool = True) -> Connection:
        """:param tells: whether its end is the client's"""
        lost = self._lost if tells else lambda _: None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.connect_timeout
        pause = BACKOFF_FIRST_SECONDS
        while True:
            last: Exception
            try:
                async with asyncio.timeout_at(deadline):
                    return await Connection.open(self._settings, lost)
            except Refused as error:
                if not error.retry:
                    raise
                last = error
            except ssl.SSLCertVerificationError as error:
                why = error.verify_message
                raise Unreachable(
                    f"the certificate of {self._settings.where} is not trusted: {why}"
                ) from error
            except (OSError, OutcomeUnknown) as error:
                last = error
            if loop.time() + pause >= deadline:
                seconds = self._settings.connect_timeout
                raise Unreachable(
                    f"no connection to {self._settings.where} in {seconds:g} s: {_why(last)}"
                ) from last
            # Spread out, so that the clients of a node that restarts don't come back as one.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, BACKOFF_MOST_SECONDS)


def _too_old(welcome: Welcome, what: str, minor: int) -> VersionNotSupported:
    message = (
        f"node {welcome.node} of version {welcome.version} speaks minor {welcome.minor} of the"
        f" wire, which has no {what}: they came with {minor}"
    )
    return VersionNotSupported({"code": "VersionNotSupported", "message": message, "status": 505})


def _name_parameter(error: Refused, body: Mapping[str, Any] | None) -> None:
    """A request that was refused before it ran, for what is in it: say where."""
    if error.statement is None:
        name = faults.named(body or {})
        if name is not None:
            error.args = (f"{name}: {error.args[0]}",)


def _why(error: Exception) -> str:
    """Why there is no connection, in a few words."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror | ssl.SSLError):
        # asyncio puts words of its own, and the address once more, in the place of the system's.
        return os.strerror(error.errno) if error.errno else str(error) or "no answer in time"
    return str(getattr(error, "strerror", None) or error)
