"""Feeds whose changes take work to tell: one line for all that want the same, and none of them
misses a commit or is told one twice, whoever comes and goes meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from actors.execution.fiber import Fiber
from actors.execution.scheduler import FiberScheduler
from actors.feeds.feed import Feed
from actors.feeds.hub import Feeds
from actors.feeds.pipelines import Pipeline
from actors.node import Node
from language.filters import Filter
from protocol.errors import Unknown
from tests.actors.test_feeds import BOB, Reader, follow, node_with_tables, seq
from tests.logbook import Logbook
from tests.sweeps import parts

WHERE = "a > 50"
GRANT = "DEFINE USER bob ROLE member PASSWORD 'bob-bob-bob'; GRANT READ ON TABLE a.b.t TO bob"

Told = list[tuple[int, dict[str, tuple[str, Any]]]]
"""Commits, and by record what became of it and its value."""


class Writer:
    """Changes table t at random, and knows what each commit did."""

    def __init__(self, node: Node, rng: random.Random) -> None:
        self._node = node
        self._rng = rng
        self._now: dict[str, int] = {}
        self._large: dict[str, bool] = {}
        self.commits: list[tuple[int, dict[str, tuple[int | None, int | None]]]] = []
        """By record, what its value was before and is now."""

    async def commit(self) -> int:
        ids = self._rng.sample(range(8), self._rng.randint(1, 4))
        said, done = list[str](), dict[str, tuple[int | None, int | None]]()
        for number in ids:
            id, value = f"t:{number}", self._rng.randint(0, 100)
            before = self._now.get(id)
            if before is not None and self._rng.random() < 0.3:
                said.append(f"DELETE {id}")
                done[id] = self._now.pop(id), None
            else:
                large = self._rng.random() < 0.05
                said.append(f"UPSERT {id} SET a = {value}, pad = {'$large' if large else 'NONE'}")
                if (before, self._large.get(id)) != (value, large):
                    done[id] = before, value
                self._now[id], self._large[id] = value, large
        sequence = await seq(self._node, f"BEGIN; {'; '.join(said)}; COMMIT")
        self.commits.append((sequence, done))
        return sequence

    def expected(self, after: int, upto: int, filtered: bool) -> Told:
        """What is told between two commits."""
        found: Told = []
        for sequence, done in self.commits:
            if after < sequence <= upto:
                changes = dict(_changes(done, filtered))
                if changes:
                    found.append((sequence, changes))
        return found


def _changes(
    done: dict[str, tuple[int | None, int | None]], filtered: bool
) -> Iterator[tuple[str, tuple[str, Any]]]:
    for id, (before, now) in done.items():
        if filtered:
            before = before if before is not None and before > 50 else None
            now = now if now is not None and now > 50 else None
        if now is not None:
            yield id, ("update" if before is not None else "create", now)
        elif before is not None:
            yield id, ("delete", None)


def told(reader: Reader) -> Told:
    """What a reader heard; the parts of a commit joined."""
    found: Told = []
    for one in reader.commits:
        changes = {
            each["id"]: (each["action"], each["value"] and each["value"]["a"])
            for each in one["changes"]
        }
        if one.get("part", 1) > 1:
            assert found[-1][0] == one["seq"]
            found[-1][1].update(changes)
        else:
            found.append((one["seq"], changes))
    return found


def told_whole(reader: Reader, upto: int) -> Told:
    """What a reader was told up to a commit; of the next it may have heard some parts."""
    found = told(reader)
    if found and found[-1][0] > upto:
        last = reader.commits[-1]
        assert last["part"] < last["of"], "it does not know of a whole commit that it has told"
        found.pop()
    return found


@pytest.mark.parametrize("seed", parts(6, always=2))
async def test_whoever_comes_and_goes_each_is_told_each_commit_once(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(FiberScheduler, "slice_us", 0)  # the loop has its turn at each tick
    await come_and_go(random.Random(seed))


async def come_and_go(rng: random.Random) -> None:
    """Write, follow and leave at random; each must hear what a model says."""
    async with node_with_tables() as node:
        await seq(node, GRANT)
        writer = Writer(node, rng)
        begun = await seq(node, "CREATE t:99 SET a = 0")
        open_feeds: list[tuple[Feed, Reader, int, bool]] = []
        heard, granted = 0, False

        def check(feed: Feed, reader: Reader, start: int, filtered: bool, upto: int) -> int:
            expected = writer.expected(start, upto, filtered)
            assert told_whole(reader, upto) == expected
            return len(expected)

        async def write(count: int) -> None:
            for _ in range(count):
                await writer.commit()

        for _ in range(12):
            gone: list[tuple[Feed, Reader, int, bool]] = []
            writing = asyncio.create_task(write(rng.randint(1, 6)))
            try:
                for _ in range(rng.randint(1, 4)):
                    filtered, newest = (
                        rng.random() < 0.7,
                        [begun, *(seq for seq, _ in writer.commits)],
                    )
                    start, reader = rng.choice(newest[-5:]), Reader()
                    more: dict[str, Any] = (
                        {"where": WHERE} if filtered else {"before": rng.random() < 0.5}
                    )
                    feed = await follow(node, reader, BOB, start=start, **more)
                    open_feeds.append((feed, reader, start, filtered))
                if rng.random() < 0.4:
                    granted = not granted
                    word, to = ("GRANT", "TO") if granted else ("REVOKE", "FROM")
                    await seq(node, f"{word} INFO ON TABLE a.b.t {to} bob")
                if open_feeds and rng.random() < 0.5:
                    feed, reader, start, filtered = open_feeds.pop(rng.randrange(len(open_feeds)))
                    feed.close()
                    gone.append((feed, reader, start, filtered))
            finally:
                await writing
            # Only now the writer knows of all that feeds were told before it was answered.
            heard += sum(check(*one, one[0].position) for one in gone)
        last = await writer.commit()
        while any(feed.position < last for feed, *_ in open_feeds):
            await asyncio.sleep(0)
        for feed, reader, start, filtered in open_feeds:
            heard += check(feed, reader, start, filtered, last)
        assert heard > 100


async def test_a_commit_is_judged_once_for_all_who_want_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = list[bytes]()
    lines = list[int]()
    passes, go = Filter.passes, Pipeline._go_through

    def counted(self: Filter, key: bytes, *rest: Any) -> bool:
        judged.append(key)
        return passes(self, key, *rest)

    def gone(self: Pipeline, fiber: Fiber) -> None:
        lines.append(self.position)
        go(self, fiber)

    monkeypatch.setattr(Filter, "passes", counted)
    monkeypatch.setattr(Pipeline, "_go_through", gone)
    async with node_with_tables() as node:
        readers = [Reader() for _ in range(20)]
        for reader in readers:
            await follow(node, reader, where=WHERE)
            await reader.caught_up()
        for number in range(10):
            last = await seq(node, f"CREATE t:{number} SET a = 60")
            for reader in readers:
                await reader.reached(last)
        assert (len(judged), len(lines)) == (10, 10)
        assert all(len(reader.commits) == 10 for reader in readers)


async def test_a_table_that_is_dropped_ends_a_line_behind_what_was_committed_before() -> None:
    async with node_with_tables() as node:
        readers = [Reader() for _ in range(3)]
        for reader in readers:
            await follow(node, reader, where=WHERE)
            await reader.caught_up()
        await seq(node, "CREATE t:1 SET a = 60; CREATE t:2 SET a = 70; DROP TABLE t")
        for reader in readers:
            assert isinstance(await reader.over(), Unknown)
            assert reader.changes[:2] == [("create", "t:1"), ("create", "t:2")]
        assert not node.open_feeds._lines


async def test_a_line_that_fails_ends_its_feeds_and_no_others(
    monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("handler failed")

    def broken(self: Filter, *rest: Any) -> bool:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Filter, "passes", broken)
    async with node_with_tables() as node:
        first, second, other = Reader(), Reader(), Reader()
        await follow(node, first, where=WHERE)
        await follow(node, second, where=WHERE)
        await follow(node, other, before=True)
        last = await seq(node, "CREATE t:1 SET a = 60")
        await other.reached(last)
        for reader in (first, second):
            assert (await reader.over()).code == "Failed"
        assert len(node.open_feeds) == 1


async def test_a_planted_hub_that_lets_feeds_join_at_any_time_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(self: Feeds, feed: Feed, fiber: Fiber) -> bool:
        self._live.add(feed)
        feed.go_live()
        return True

    monkeypatch.setattr(FiberScheduler, "slice_us", 0)
    monkeypatch.setattr(Feeds, "_make_live", hasty)
    with pytest.raises(AssertionError):
        for seed in range(6):
            await come_and_go(random.Random(seed))
