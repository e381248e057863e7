"""The cache handle, awaited and blocking, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from storeclient import (
    NEVER,
    NONE,
    AsyncCache,
    AsyncClient,
    Cache,
    Client,
    OutcomeUnknown,
    errors,
)
from storeclient.cache import LOADING_SUFFIX, AsyncLease, _loading
from storeclient.values import Seconds
from tests.clients.real import client_of
from tests.processes import PASSWORD as PROCESS_PASSWORD
from tests.processes import USER, NodeProcess

PLACE = ("shop", "main", "c")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with client_of(tmp_path / "store", "DEFINE SPACE c") as client:
        yield client


@pytest.fixture
def cache(client: AsyncClient) -> AsyncCache:
    return client.cache(*PLACE)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path / "store").start()
    node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE SPACE c")
    yield node
    if node.process.poll() is None:
        node.kill()


@contextmanager
def blocking(node: NodeProcess) -> Iterator[Cache]:
    with Client(node.at("wire"), user=USER, password=PROCESS_PASSWORD) as client:
        yield client.cache(*PLACE)


async def test_refusals_have_their_names(cache: AsyncCache, client: AsyncClient) -> None:
    await cache.set("s", "text")
    for work, error in (
        (lambda: cache.incr("s"), errors.NotANumber),
        (lambda: cache.set("k", NONE), errors.TypeRefused),
        (lambda: cache.set("", 1), errors.BadRequest),
        (lambda: cache.set("k", 1, ttl=0), ValueError),
        (lambda: cache.expire("s", -1), ValueError),
        (lambda: cache.keys(limit=1001), errors.BadRequest),
        (lambda: client.cache("shop", "main", "none").get("k"), errors.NotASpace),
    ):
        with pytest.raises(error):
            await work()
    with pytest.raises((TypeError, ValueError)):
        await cache.set("k", datetime(2026, 1, 1))
    await cache.set("k", datetime(2026, 1, 1, tzinfo=UTC))


async def test_a_single_loader_runs_once_and_another_takes_over_when_it_fails(
    cache: AsyncCache,
) -> None:
    loads = 0

    async def load() -> str:
        nonlocal loads
        loads += 1
        if loads == 1:
            raise ValueError("the first one fails")
        await asyncio.sleep(0.02)
        return "made"

    found = await asyncio.gather(
        *(cache.get_or_set("k", 60, load, single=True) for _ in range(8)), return_exceptions=True
    )
    assert sorted(map(str, found)) == ["made"] * 7 + ["the first one fails"]
    assert loads == 2
    assert await cache.keys() == ["k"], "nothing of the lock is left"


def test_the_lock_of_a_loader_has_a_key_that_fits() -> None:
    assert _loading("k") == "k" + LOADING_SUFFIX
    for long in ("x" * 1024, "é" * 512):
        assert len(_loading(long).encode()) <= 1024


async def test_a_failing_release_hides_no_error_of_its_block(
    cache: AsyncCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(_lease: AsyncLease) -> None:
        raise OutcomeUnknown("the connection ended")

    lease = await cache.lock("l", 60)
    assert lease is not None
    monkeypatch.setattr(AsyncLease, "release", failing)
    with pytest.raises(LookupError) as own:
        async with lease:
            raise LookupError("its own")
    assert "releasing the lock failed" in own.value.__notes__[0]
    with pytest.raises(OutcomeUnknown):
        async with lease:
            pass


async def test_what_a_single_loader_made_is_answered_whatever_becomes_of_its_lock(
    cache: AsyncCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored, and the lock ends by itself."""

    async def failing(_lease: AsyncLease) -> None:
        raise OutcomeUnknown("the connection ended")

    async def refused() -> None:
        raise errors.Refused({"message": "the loader's own"})

    monkeypatch.setattr(AsyncLease, "release", failing)
    assert await cache.get_or_set("k", 60, lambda: "made", single=True) == "made"
    assert await cache.get("k") == "made"
    with pytest.raises(errors.Refused, match="own") as own:
        await cache.get_or_set("other", 60, refused, single=True)
    assert "releasing the lock failed" in own.value.__notes__[0]


@pytest.mark.parametrize(
    "ttl", [float("inf"), -float("inf"), float("nan"), 1e30, 1e18, timedelta.max, timedelta.min]
)
async def test_a_time_without_an_end_is_refused_by_name(cache: AsyncCache, ttl: Seconds) -> None:
    lease = await cache.lock("l", 60)
    assert lease is not None
    for work in (
        lambda: cache.set("k", 1, ttl),
        lambda: cache.set_if_absent("k", 1, ttl),
        lambda: cache.compare_and_set("k", NONE, 1, ttl),
        lambda: cache.expire("l", ttl),
        lambda: cache.lock("m", ttl),
        lambda: lease.extend(ttl),
        lambda: cache.get_or_set("k", ttl, lambda: 1),
    ):
        with pytest.raises(ValueError, match=r"is not a duration|is too long"):
            await work()
    assert await cache.keys() == ["l"]


def test_the_blocking_twin(process: NodeProcess) -> None:
    with blocking(process) as cache:
        cache.set("k", Decimal("1.50"), ttl=60)
        assert str(cache.get("k")) == "1.50"
        assert cache.get("none") is None
        left = cache.ttl("k")
        assert left is not None and left < NEVER
        cache.set("k", 1, keep_ttl=True)
        assert (cache.persist("k"), cache.expire("k", 60)) == (True, True)
        assert (cache.set_if_absent("k", 2), cache.set_if_present("k", 2)) == (False, True)
        assert cache.compare_and_set("k", 2, 3) is True
        assert cache.incr("k") == 4
        assert cache.keys("k") == ["k"]
        assert cache.delete("k") is True
        assert cache.get_or_set("made", 60, lambda: "here") == "here"
        assert cache.get_or_set("single", 60, lambda: "once", single=True) == "once"
        lease = cache.lock("l", 30, renew=True)
        assert lease is not None
        with lease:
            assert lease.fence > 0 and lease.until is not None and not lease.lost
            assert cache.lock("l", 30) is None
            assert lease.extend(60) is True
        other = cache.lock("l", 30, "me")
        assert other is not None and (other.holder, other.release()) == ("me", True)
