"""The cache handle: keys of one space, over the client's connection.

Two twins with the same methods, `AsyncCache` and `Cache`. Reads are sent again after a broken
connection; writes are not, and raise `OutcomeUnknown` as scripts do.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from storeclient.errors import Closed, StoreError
from storeclient.values import NONE, duration

T = TypeVar("T")

NEVER: Final = timedelta.max
"""What `ttl` answers of a key that never expires: longer than any time."""
LOADING_SUFFIX: Final = "\x01loading"
"""Follows a key in the name of the lock that `get_or_set(single=True)` takes."""
KEY_BYTES: Final = 1024
RENEWALS: Final = 3
"""How often a lease that renews itself does so within its time."""
LOADING_SECONDS: Final = 10.0
"""The lease of a single loader, renewed while it runs: a loader that died holds others so long."""
POLL_FIRST_SECONDS: Final = 0.01
POLL_MOST_SECONDS: Final = 0.25

Seconds = float | timedelta
Loader = Callable[[], Any]
AsyncLoader = Callable[[], Any | Awaitable[Any]]


class Ask(Protocol):
    """Sends one operation and answers its fields."""

    def __call__(self, body: dict[str, Any], repeatable: bool) -> Awaitable[dict[str, Any]]: ...


class AsyncCache:
    """The keys of one space. Made by `AsyncClient.cache(ns, db, space)`; each call names the space.

    A `ttl` is seconds or a timedelta, longer than nothing; without one a key stays, or gets what
    the space was declared with.
    """

    def __init__(self, ask: Ask, ns: str, db: str, space: str) -> None:
        self._ask = ask
        self._place = {"ns": ns, "db": db, "space": space}

    def __repr__(self) -> str:
        return f"<AsyncCache {'.'.join(self._place.values())}>"

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`. A stored null is None: give `NONE` to tell it apart."""
        found = await self._read("get", key=key)
        return found["value"] if found else default

    async def set(
        self, key: str, value: Any, ttl: Seconds | None = None, *, keep_ttl: bool = False
    ) -> None:
        """Set a key. :param keep_ttl: an expiry it has stays; otherwise it is cleared"""
        await self._write("set", key=key, value=value, expire=duration(ttl), keep=keep_ttl or None)

    async def delete(self, key: str) -> bool:
        """Delete a key; whether there was one."""
        return bool((await self._write("delete", key=key))["deleted"])

    async def set_if_absent(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """Set a key if there is none; whether it was set."""
        return await self._set_if("absent", key, value, ttl)

    async def set_if_present(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """Set a key if there is one; whether it was set."""
        return await self._set_if("present", key, value, ttl)

    async def _set_if(self, when: str, key: str, value: Any, ttl: Seconds | None) -> bool:
        fields = {"key": key, "value": value, "expire": duration(ttl), "if": when}
        return bool((await self._write("set", **fields))["written"])

    async def compare_and_set(
        self, key: str, expect: Any, value: Any, ttl: Seconds | None = None
    ) -> bool:
        """Set a key if it holds `expect`, in type and value; whether it was set.

        :param expect: `NONE` for no such key
        """
        fields = {"key": key, "expect": expect, "value": value, "expire": duration(ttl)}
        return bool((await self._write("swap", **fields))["written"])

    async def incr(self, key: str, by: int = 1) -> int:
        """Add to a counter, from 0 where there is none; the new value.

        :raises errors.NotANumber: the key holds something else
        """
        return int((await self._write("incr", key=key, by=by))["value"])

    async def ttl(self, key: str) -> timedelta | None:
        """How long a key has yet to live; `NEVER`; None where there is no such key."""
        found = await self._read("get", key=key)
        if not found:
            return None
        left = found["ttl"]
        return NEVER if left is None else left

    async def expire(self, key: str, ttl: Seconds) -> bool:
        """Let a key expire; whether there is one."""
        return bool((await self._write("expire", key=key, expire=duration(ttl)))["found"])

    async def persist(self, key: str) -> bool:
        """Let a key stay; whether there is one."""
        return bool((await self._write("persist", key=key))["found"])

    async def keys(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
        """Keys in the order of their bytes, at most 1000; go on with the last one as `after`."""
        found = await self._read("keys", prefix=prefix, after=after, limit=limit)
        return list(found["keys"])

    async def get_or_set(
        self,
        key: str,
        ttl: Seconds | None,
        loader: AsyncLoader,
        *,
        single: bool = False,
    ) -> Any:
        """The stored value, or what the loader makes and stores when there is none.

        Callers that race each run their loader; the first to store wins, and all return what it
        stored.

        :param loader: a function, or a coroutine function
        :param single: one loader runs, wherever its callers are; the others wait for its value.
            It holds a lock under a key of its own, which a listing shows meanwhile. When it fails
            it raises, and one of the others takes over
        """
        found = await self.get(key, NONE)
        if found is not NONE:
            return found
        if not single:
            return await self._load(key, ttl, loader)
        pause = POLL_FIRST_SECONDS
        while True:
            lease = await self.lock(_loading(key), LOADING_SECONDS, renew=True)
            if lease is not None:
                return await self._load_under(lease, key, ttl, loader)
            await asyncio.sleep(pause)
            pause = min(pause * 2, POLL_MOST_SECONDS)
            found = await self.get(key, NONE)
            if found is not NONE:
                return found

    async def _load_under(
        self, lease: AsyncLease, key: str, ttl: Seconds | None, loader: AsyncLoader
    ) -> Any:
        found: Any = NONE
        try:
            async with lease:
                found = await self.get(key, NONE)
                if found is NONE:
                    found = await self._load(key, ttl, loader)
        except StoreError:
            if found is NONE:
                raise
            # The value is there; the lock that was not released ends by itself, in its time.
        return found

    async def _load(self, key: str, ttl: Seconds | None, loader: AsyncLoader) -> Any:
        made = loader()
        if inspect.isawaitable(made):
            made = await made
        while not await self.set_if_absent(key, made, ttl):
            found = await self.get(key, NONE)
            if found is not NONE:
                return found
        return made

    async def lock(
        self, key: str, ttl: Seconds, holder: str | None = None, *, renew: bool = False
    ) -> AsyncLease | None:
        """A lease on a key, or None when another holds it.

        :param holder: who asks; the same one asking again extends its lease. By default nobody else
        :param renew: extend it by itself, again and again, until it is released or lost
        """
        lease = AsyncLease(self, key, ttl, holder or secrets.token_hex(16))
        if not await lease._acquire():
            return None
        if renew:
            lease.renew()
        return lease

    async def _read(self, op: str, **fields: Any) -> dict[str, Any]:
        return await self._ask({"op": op, **self._place, **fields}, True)

    async def _write(self, op: str, **fields: Any) -> dict[str, Any]:
        given = {name: value for name, value in fields.items() if value is not None or name in _ANY}
        return await self._ask({"op": op, **self._place, **given}, False)


_ANY: Final = frozenset({"value", "expect"})
"""Fields of which None is a value, null, and not their absence."""


class AsyncLease:
    """A lock that is held: until it is released, or its time is over. It is a lease, not a mutex:
    hand `fence` to what it protects.

    It is known by its fence, not by its holder's name: once it is lost, neither `extend` nor
    `release` touches the lock of whoever holds the key then, though that be called the same.

        lease = await cache.lock("job", 30)
        if lease is not None:
            async with lease:
                ...
    """

    def __init__(self, cache: AsyncCache, key: str, ttl: Seconds, holder: str) -> None:
        self._cache = cache
        self._ttl = ttl
        self._renewing: asyncio.Task[None] | None = None
        self.key = key
        self.holder = holder
        self.fence = 0
        """The log time of the commit that acquired it, in microseconds: grows for ever, from one
        holder to the next."""
        self.until: datetime | None = None
        """When it ends, by the node's clock."""
        self.lost = False
        """Whether it is known to be over: it was released, or an extension found that it had
        ended."""

    async def _acquire(self) -> bool:
        fields = {"key": self.key, "holder": self.holder, "expire": duration(self._ttl)}
        found = await self._cache._write("lock", **fields)
        if found["held"]:
            self.fence, self.until = found["fence"], found["until"]
        return bool(found["held"])

    async def extend(self, ttl: Seconds | None = None) -> bool:
        """Let it last from now on for `ttl`, by default as long as at first; whether it is held.
        One that had ended meanwhile is not taken back: it counts as lost."""
        if self.lost:
            return False
        expire = duration(self._ttl if ttl is None else ttl)
        fields = {"key": self.key, "holder": self.holder, "fence": self.fence, "expire": expire}
        found = await self._cache._write("lock", **fields)
        if found["held"]:
            self.until = found["until"]
        else:
            self.lost = True
        return bool(found["held"])

    def renew(self) -> None:
        """Extend it by itself from now on."""
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        ttl = duration(self._ttl)
        assert ttl is not None
        while True:
            await asyncio.sleep(ttl.total_seconds() / RENEWALS)
            try:
                if not await self.extend():
                    return
            except Closed:
                return
            except StoreError:
                continue  # the next one may come in time

    async def release(self) -> bool:
        """Give it up; whether it was still held."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        if self.lost:
            return False
        fields = {"key": self.key, "holder": self.holder, "fence": self.fence}
        found = await self._cache._write("unlock", **fields)
        self.lost = True  # nothing of it is left to be extended, whatever the answer
        return bool(found["released"])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except StoreError as failure:  # it ends by itself, in its time
            if error is None:
                raise
            error.add_note(f"the lock was not released either: {failure}")


class Wait(Protocol):
    """Runs a coroutine of the async twin and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class Cache:
    """The keys of one space, blocking. Made by `Client.cache(ns, db, space)`; the methods are those
    of `AsyncCache`, and may be called from any thread."""

    def __init__(self, twin: AsyncCache, wait: Wait) -> None:
        self._twin = twin
        self._wait = wait

    def __repr__(self) -> str:
        return repr(self._twin).replace("Async", "")

    def get(self, key: str, default: Any = None) -> Any:
        """As `AsyncCache.get`."""
        return self._wait(self._twin.get(key, default))

    def set(
        self, key: str, value: Any, ttl: Seconds | None = None, *, keep_ttl: bool = False
    ) -> None:
        """As `AsyncCache.set`."""
        self._wait(self._twin.set(key, value, ttl, keep_ttl=keep_ttl))

    def delete(self, key: str) -> bool:
        """As `AsyncCache.delete`."""
        return self._wait(self._twin.delete(key))

    def set_if_absent(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """As `AsyncCache.set_if_absent`."""
        return self._wait(self._twin.set_if_absent(key, value, ttl))

    def set_if_present(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """As `AsyncCache.set_if_present`."""
        return self._wait(self._twin.set_if_present(key, value, ttl))

    def compare_and_set(
        self, key: str, expect: Any, value: Any, ttl: Seconds | None = None
    ) -> bool:
        """As `AsyncCache.compare_and_set`."""
        return self._wait(self._twin.compare_and_set(key, expect, value, ttl))

    def incr(self, key: str, by: int = 1) -> int:
        """As `AsyncCache.incr`."""
        return self._wait(self._twin.incr(key, by))

    def ttl(self, key: str) -> timedelta | None:
        """As `AsyncCache.ttl`."""
        return self._wait(self._twin.ttl(key))

    def expire(self, key: str, ttl: Seconds) -> bool:
        """As `AsyncCache.expire`."""
        return self._wait(self._twin.expire(key, ttl))

    def persist(self, key: str) -> bool:
        """As `AsyncCache.persist`."""
        return self._wait(self._twin.persist(key))

    def keys(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
        """As `AsyncCache.keys`."""
        return self._wait(self._twin.keys(prefix, after, limit))

    def get_or_set(
        self, key: str, ttl: Seconds | None, loader: Loader, *, single: bool = False
    ) -> Any:
        """As `AsyncCache.get_or_set`. The loader runs in a thread, and may block."""

        async def load() -> Any:
            return await asyncio.to_thread(loader)

        return self._wait(self._twin.get_or_set(key, ttl, load, single=single))

    def lock(
        self, key: str, ttl: Seconds, holder: str | None = None, *, renew: bool = False
    ) -> Lease | None:
        """As `AsyncCache.lock`."""
        twin = self._wait(self._twin.lock(key, ttl, holder, renew=renew))
        return None if twin is None else Lease(twin, self._wait)


class Lease:
    """A lock that is held, blocking; otherwise as `AsyncLease`.

    lease = cache.lock("job", 30)
    if lease is not None:
        with lease:
            ...
    """

    def __init__(self, twin: AsyncLease, wait: Wait) -> None:
        self._twin = twin
        self._wait = wait
        self.key = twin.key
        self.holder = twin.holder

    @property
    def fence(self) -> int:
        """As `AsyncLease.fence`."""
        return self._twin.fence

    @property
    def until(self) -> datetime | None:
        """As `AsyncLease.until`."""
        return self._twin.until

    @property
    def lost(self) -> bool:
        """As `AsyncLease.lost`."""
        return self._twin.lost

    def extend(self, ttl: Seconds | None = None) -> bool:
        """As `AsyncLease.extend`."""
        return self._wait(self._twin.extend(ttl))

    def release(self) -> bool:
        """As `AsyncLease.release`."""
        return self._wait(self._twin.release())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self._twin.__aexit__(kind, error, trace))


def _loading(key: str) -> str:
    """The key of the lock of a key's loader."""
    name = key + LOADING_SUFFIX
    if len(name.encode()) <= KEY_BYTES:
        return name
    return hashlib.blake2b(key.encode(), digest_size=32).hexdigest() + LOADING_SUFFIX
