"""Handle of a cache space: its keys, over the client's connection.

After a broken connection reads are repeated; writes are not, and raise `OutcomeUnknown` like
scripts.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from storeclient.errors import Closed, StoreError
from storeclient.values import NONE, Seconds, duration

T = TypeVar("T")

NEVER: Final = timedelta.max
"""Answer of `ttl` for a key without expiry: longer than any time."""
LOADING_SUFFIX: Final = "\x01loading"
"""Suffix of a key in the name of the lock that `get_or_set(single=True)` takes."""
KEY_BYTES: Final = 1024
KEYS_MOST: Final = 1000
"""Keys of one answer."""
RENEWALS: Final = 3
"""Renewals of a self-renewing lease within its time to live."""
LOADING_SECONDS: Final = 10.0
"""Lease in seconds of a single loader, renewed while it runs. A loader that crashed blocks the
others for that long."""
POLL_FIRST_SECONDS: Final = 0.01
POLL_MOST_SECONDS: Final = 0.25

Loader = Callable[[], Any]
AsyncLoader = Callable[[], Any | Awaitable[Any]]


class AskCache(Protocol):
    """Sends one operation, and returns the fields of its answer."""

    def __call__(self, body: dict[str, Any], repeatable: bool) -> Awaitable[dict[str, Any]]: ...


class AsyncCache:
    """Keys of one space. Made by `AsyncClient.cache(ns, db, space)`; each call names the space.

    A `ttl` is seconds or a timedelta, longer than 0. Without one a key gets the default of the
    space, or does not expire.
    """

    def __init__(self, ask: AskCache, ns: str, db: str, space: str) -> None:
        self._ask = ask
        self._place = {"ns": ns, "db": db, "space": space}

    def __repr__(self) -> str:
        return f"<AsyncCache {'.'.join(self._place.values())}>"

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default`. A stored null is None: pass `NONE` to
        distinguish them."""
        found = await self._read("get", key=key)
        return found["value"] if found else default

    async def set(
        self, key: str, value: Any, ttl: Seconds | None = None, *, keep_ttl: bool = False
    ) -> None:
        """Set a key. :param keep_ttl: keep its current expiry; otherwise it is cleared"""
        await self._write("set", key=key, value=value, expire=duration(ttl), keep=keep_ttl or None)

    async def delete(self, key: str) -> bool:
        """Delete a key. Return whether it existed."""
        return bool((await self._write("delete", key=key))["deleted"])

    async def set_if_absent(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """Set a key if it does not exist. Return whether it was set."""
        return await self._set_if("absent", key, value, ttl)

    async def set_if_present(self, key: str, value: Any, ttl: Seconds | None = None) -> bool:
        """Set a key if it exists. Return whether it was set."""
        return await self._set_if("present", key, value, ttl)

    async def _set_if(self, when: str, key: str, value: Any, ttl: Seconds | None) -> bool:
        fields = {"key": key, "value": value, "expire": duration(ttl), "if": when}
        return bool((await self._write("set", **fields))["written"])

    async def compare_and_set(
        self, key: str, expect: Any, value: Any, ttl: Seconds | None = None
    ) -> bool:
        """Set a key if it holds `expect`, in type and value (compare-and-swap). Return whether it
        was set.

        :param expect: `NONE` expects that there is no such key
        """
        fields = {"key": key, "expect": expect, "value": value, "expire": duration(ttl)}
        return bool((await self._write("swap", **fields))["written"])

    async def incr(self, key: str, by: int = 1) -> int:
        """Add to a counter, from 0 if the key does not exist. Return the new value.

        :raises errors.NotANumber: the key holds something else
        """
        return int((await self._write("incr", key=key, by=by))["value"])

    async def ttl(self, key: str) -> timedelta | None:
        """Return the time to live of a key: `NEVER` without expiry, None if it does not exist."""
        found = await self._read("get", key=key)
        if not found:
            return None
        left = found["ttl"]
        return NEVER if left is None else left

    async def expire(self, key: str, ttl: Seconds) -> bool:
        """Set the expiry of a key. Return whether it exists."""
        return bool((await self._write("expire", key=key, expire=duration(ttl)))["found"])

    async def persist(self, key: str) -> bool:
        """Remove the expiry of a key. Return whether it exists."""
        return bool((await self._write("persist", key=key))["found"])

    async def keys(self, prefix: str = "", after: str = "", limit: int = KEYS_MOST) -> list[str]:
        """Return keys in the order of their bytes, at most 1000; continue with the last one as
        `after`."""
        found = await self._read("keys", prefix=prefix, after=after, limit=limit)
        return list(found["keys"])

    async def all_keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Yield all keys with a prefix, in the order of their bytes."""
        after = ""
        while page := await self.keys(prefix, after, KEYS_MOST):
            for key in page:
                yield key
            if len(page) < KEYS_MOST:
                return
            after = page[-1]

    async def get_or_set(
        self,
        key: str,
        ttl: Seconds | None,
        loader: AsyncLoader,
        *,
        single: bool = False,
    ) -> Any:
        """Return the stored value; if there is none, store and return the loader's result.

        Concurrent callers each run their loader. The first one to store wins, and all return the
        stored value.

        :param loader: a function, or a coroutine function
        :param single: only one loader runs among all clients; the others wait for its value. It
            holds a lock under a separate key, which is visible in listings meanwhile. If it fails
            it raises, and another caller takes over
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
            # The value was stored; the unreleased lock expires.
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
        """Acquire a lease on a key. Return None if another holder has it.

        :param holder: name of the holder; the same holder extends its lease. Default: a unique name
        :param renew: extend the lease in the background until it is released or lost
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
        expire = given.get("expire")
        if expire is not None and expire <= timedelta():
            raise ValueError(f"a ttl must be longer than 0, not {expire}")
        return await self._ask({"op": op, **self._place, **given}, False)


_ANY: Final = frozenset({"value", "expect"})
"""Fields for which None is the value null, and not absence."""


class AsyncLease:
    """A held lock, until it is released or expires. It is a lease, not a mutex: pass `fence`, a
    fencing token, to the resource that it protects.

    The lease is identified by its fence, not by its holder's name. Once it is lost, `extend` and
    `release` do not affect a later lock on the key, even of a holder with the same name.

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
        """Fencing token: log time of the commit that acquired the lock, in microseconds. Grows
        from one holder to the next."""
        self.until: datetime | None = None
        """Expiry of the lease, by the node's clock."""
        self.lost = False
        """True if the lease is known to have ended: it was released, or an extension found it
        expired."""

    async def _acquire(self) -> bool:
        fields = {"key": self.key, "holder": self.holder, "expire": duration(self._ttl)}
        found = await self._cache._write("lock", **fields)
        if found["held"]:
            self.fence, self.until = found["fence"], found["until"]
        return bool(found["held"])

    async def extend(self, ttl: Seconds | None = None) -> bool:
        """Extend the lease to `ttl` from the present, by default its original length. Return
        whether it is held. An expired lease is not acquired again: it counts as lost."""
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
        """Extend the lease in the background."""
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
                continue  # the next renewal may still be in time

    async def release(self) -> bool:
        """Release the lease. Return whether it was still held."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        if self.lost:
            return False
        fields = {"key": self.key, "holder": self.holder, "fence": self.fence}
        found = await self._cache._write("unlock", **fields)
        self.lost = True  # even if it had expired before
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
        except StoreError as failure:  # the lease expires by itself
            if error is None:
                raise
            error.add_note(f"releasing the lock failed, too: {failure}")


def _loading(key: str) -> str:
    """Return the name of the lock of a key's loader."""
    name = key + LOADING_SUFFIX
    if len(name.encode()) <= KEY_BYTES:
        return name
    return hashlib.blake2b(key.encode(), digest_size=32).hexdigest() + LOADING_SUFFIX
