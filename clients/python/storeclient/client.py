"""Blocking client: the async client on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from storeclient.answers import Answer
from storeclient.async_client import AsyncClient
from storeclient.backups import Backup, Progress
from storeclient.blocking import Topic, result_of
from storeclient.cache import Cache
from storeclient.connection import GRACE_SECONDS
from storeclient.database import Database
from storeclient.errors import Closed
from storeclient.events import OnConnection
from storeclient.exchange import Welcome
from storeclient.settings import Reads
from storeclient.vaults import Seal, Vault

T = TypeVar("T")


class Client:
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
        self._twin = AsyncClient(
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
        self._lock = threading.RLock()  # reentrant: finalizers may run while it is held
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: set[Future[Any]] = set()
        """Calls that threads are waiting for."""
        self._is_closed = False

    @property
    def ns(self) -> str | None:
        """Default namespace of scripts."""
        return self._twin.ns

    @property
    def db(self) -> str | None:
        """Default database of scripts."""
        return self._twin.db

    def __repr__(self) -> str:
        return repr(self._twin).replace("Async", "")

    def database(self, ns: str, db: str) -> Database:
        """Return a handle of a database; see `AsyncClient.database`."""
        return Database(self._twin.database(ns, db), self._submit)

    def use(self, ns: str | None, db: str | None = None) -> None:
        """Set the default namespace and database of later scripts, for all threads.

        :raises ValueError: an invalid name
        """
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
        return self._await(
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
        """Run a script and return the value of its last statement; see `AsyncClient.query`."""
        return self.run(
            script,
            params,
            ns=ns,
            db=db,
            timeout=timeout,
            reason=reason,
            repeatable=repeatable,
            after=after,
            current=current,
        ).value

    def cache(self, ns: str, db: str, space: str) -> Cache:
        """Return a handle of a cache space. Nothing is sent before its first call."""
        return Cache(self._twin.cache(ns, db, space), self._await)

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        ns: str | None = None,
        db: str | None = None,
        progress: Progress | None = None,
        reason: str | None = None,
    ) -> Backup:
        """Take a snapshot into a file; see `AsyncClient.backup`. `progress` is called in the
        client's thread."""
        return self._await(self._twin.backup(path, ns=ns, db=db, progress=progress, reason=reason))

    def topic(self, ns: str, db: str, name: str) -> Topic:
        """Return a handle of a topic. Nothing is sent before its first call. :raises ValueError:
        invalid name"""
        return Topic(self._twin.topic(ns, db, name), self._submit)

    def vault(self, ns: str, db: str, name: str) -> Vault:
        """Return a handle of a vault. Nothing is sent before its first call. :raises ValueError:
        invalid name"""
        return Vault(self._twin.vault(ns, db, name), self._submit)

    def store_seal(self) -> Seal:
        """Return a handle of the store's seal, which opens vaults without a passphrase of their
        own."""
        return Seal(self._twin.store_seal(), self._submit)

    def ping(self) -> None:
        """Make a round trip to the node. :raises StoreError: it failed"""
        self._await(self._twin.ping())

    def connect(self) -> Welcome:
        """Connect, unless connected; see `AsyncClient.connect`."""
        return self._await(self._twin.connect())

    def close(self) -> None:
        """Wait for pending requests, then end the connection and the thread. Closing twice is fine.
        Threads that wait for messages or for a connection get `Closed`, see `AsyncClient.close`."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._twin.close(), loop).result()
            # Each is answered by now, or gets `Closed` at its next request.
            wait(list(self._calls), GRACE_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return result_of(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            loop = self._running_loop()
        except Closed:
            work.close()
            raise
        call = asyncio.run_coroutine_threadsafe(work, loop)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise Closed("the client has been closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="storeclient", daemon=True
                )
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Main function of the client's thread: run the loop until it is stopped, then cancel remaining
    tasks, such as leases that renew themselves. A thread still waiting for one gets `Closed`."""
    try:
        loop.run_forever()
        loop.run_until_complete(_end_others())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
