"""What a feed tells while the lead moves: each sequence with the epoch that it was written in, so
that a reader may come back with any of them, to any node, and misses nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from actors.feeds.feed import Feed
from actors.feeds.views import FeedView
from protocol.errors import Diverged
from tests.actors.cluster.whole import POLICY, ClusterMachine, Trio, cluster
from tests.actors.parts import outcome
from tests.actors.test_feeds import Reader, follow
from tests.logbook import Logbook
from tests.simulation import loop as stepped

pytestmark = pytest.mark.usefixtures("quiet")

ASKED: list[dict[str, Any]] = [{}, {"where": "n >= 0"}, {"before": True}]
"""As the hub tells it, and as a line does."""


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    """What operators hear of when nodes die, and when one begins anew."""
    logbook.allow("releases nothing")
    logbook.allow("leads no more|nobody leads|was not renewed|stopped following|were not kept")
    logbook.allow("unreleased frames were cut off|a new lineage begins|trusts etcd again")
    logbook.allow("strand|shows what")


def played(main: Callable[[Trio], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def whole() -> None:
        async with cluster(**more) as trio:
            await main(trio)

    stepped.run(whole(), 1)


async def wrote(machine: ClusterMachine, number: int) -> None:
    """A record that is there, and on whoever has to have it."""
    await machine.trio.until_done(lambda: machine.value(f"UPSERT t:{number} SET n = {number}"))


async def told(trio: Trio, reader: Reader, number: int) -> None:
    """Until a reader has heard of a record."""
    await trio.until(lambda: ("create", f"t:{number}") in reader.changes)


async def moved(trio: Trio) -> ClusterMachine:
    """The leader dies and is started again; who leads then."""
    old = await trio.led()
    await old.kill()
    await trio.until(lambda: trio.leader not in (None, old))
    now = await trio.led()
    await old.start()
    await trio.in_sync(*(each.name for each in trio.machines))
    return now


def places(reader: Reader) -> list[tuple[int, int]]:
    """Each sequence that a reader was told, with its epoch."""
    assert reader.opening is not None
    opening = reader.opening
    begins = [(opening.start, opening.start_epoch), (opening.seq, opening.epoch)]
    said = [(one["seq"], one["epoch"]) for one in reader.said]
    return begins + said


async def good_everywhere(trio: Trio, reader: Reader) -> None:
    """Whoever comes back with anything that was told hears what comes behind it, and no more."""
    there = [(one["seq"], one["changes"][0]["id"]) for one in reader.commits]
    assert reader.opening is not None
    for machine in trio.machines:
        released = machine.runs.committer.commit_index
        for sequence, epoch in places(reader):
            again = Reader()
            feed = await follow(
                machine.runs, again, start=sequence, store=reader.opening.store, epoch=epoch
            )
            await again.caught_up()
            heard = [(one["seq"], one["changes"][0]["id"]) for one in again.commits]
            assert heard == [one for one in there if sequence < one[0] <= released]
            feed.close()


async def failed_over(trio: Trio, **asked: Any) -> Reader:
    """What is told by a follower that stands while two leaders die, in the end by who leads."""
    leader = await trio.led()
    other = next(each for each in trio.machines if each is not leader)
    reader = Reader()
    await wrote(leader, 1)
    await trio.until_done(lambda: follow(other.runs, reader, start=0, **asked))
    await reader.caught_up()
    await leader.kill()
    await trio.until(lambda: trio.leader not in (None, leader))
    await wrote(await trio.led(), 2)
    await told(trio, reader, 2)
    await leader.start()
    await trio.in_sync("a", "b", "c")
    third = next(each for each in trio.machines if each not in (leader, other))
    while trio.leader is not other:
        now = await trio.led()
        await now.kill()
        await trio.until(lambda: trio.leader not in (None, now))  # noqa: B023
        await now.start()
        await trio.in_sync("a", "b", "c")
    assert third.node is not None
    await wrote(other, 3)
    await told(trio, reader, 3)
    for _ in range(20):
        other.runs.open_feeds.beat()
    await reader.until(lambda it: it.said[-1]["type"] == "beat")
    assert reader.why is None
    return reader


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_told_over_failovers_is_good_on_every_node(asked: dict[str, Any]) -> None:
    async def main(trio: Trio) -> None:
        reader = await failed_over(trio, **asked)
        epochs = [epoch for _, epoch in places(reader)]
        assert len(set(epochs)) >= 3, "it stood while the lead moved twice"
        await good_everywhere(trio, reader)
        last, newest = places(reader)[-1]
        for machine in trio.machines:
            await machine.kill()
        for machine in trio.machines:
            await machine.start()
        leader = await trio.led()
        await wrote(leader, 4)
        again = Reader()
        store = leader.runs.store.id
        await follow(leader.runs, again, start=last, store=store, epoch=newest)
        await told(trio, again, 4)
        assert again.changes == [("create", "t:4")]

    played(main)


@pytest.mark.parametrize("planted", ["commits", "quiet"])
def test_a_planted_feed_that_keeps_its_first_epoch_is_noticed(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, place = FeedView._head, Feed.place
    first: dict[object, int] = {}

    def planted_head(self: FeedView, commit: Any) -> Any:
        found = head(self, commit)
        epoch = first.setdefault(self, found.place.epoch)
        return found._replace(place=found.place._replace(epoch=epoch))

    def planted_place(self: Feed) -> Any:
        found = place.fget(self)  # type: ignore[attr-defined]
        return found._replace(epoch=first.setdefault(self, found.epoch))

    if planted == "commits":
        monkeypatch.setattr(FeedView, "_head", planted_head)
    else:
        monkeypatch.setattr(Feed, "place", property(planted_place))

    async def main(trio: Trio) -> None:
        reader = await failed_over(trio)
        with pytest.raises(Diverged):
            await good_everywhere(trio, reader)

    played(main)


def test_all_that_the_log_holds_is_told_with_the_epochs_that_it_is_of() -> None:
    async def main(trio: Trio) -> None:
        for number in range(3):
            await wrote(await trio.led(), number)
            await moved(trio)
        readers = [Reader() for _ in ASKED]
        for reader, asked, machine in zip(readers, ASKED, trio.machines, strict=True):
            await follow(machine.runs, reader, start=0, **asked)
            await reader.caught_up()
            epochs = [one["epoch"] for one in reader.commits]
            assert len(set(epochs)) == 3 and epochs == sorted(epochs)
            await good_everywhere(trio, reader)
            # Who was told each with the epoch of the newest, as it stood in the first message.
            assert reader.opening is not None
            for one in reader.commits:
                await follow(
                    machine.runs, Reader(), start=one["seq"], store=reader.opening.store,
                    epoch=reader.opening.epoch,
                )  # fmt: skip
                unnamed = follow(
                    machine.runs, Reader(), start=one["seq"], epoch=reader.opening.epoch
                )
                assert isinstance(await outcome(unnamed), Diverged), "of which store?"

    played(main)


def test_a_policy_that_begins_is_no_other_history() -> None:
    """The node goes on, and its next commit is of an epoch of etcd's."""

    async def main(trio: Trio) -> None:
        first = trio.named("a")
        await first.value("CREATE t:1 SET n = 1")
        reader = Reader()
        await follow(first.runs, reader, start=0)
        await reader.caught_up()
        await trio.until_done(lambda: first.value(POLICY.format(1, "AUTO")))
        await trio.in_sync("a", "b", "c")
        await wrote(first, 2)
        await told(trio, reader, 2)
        before, now = (one["epoch"] for one in reader.commits)
        assert before == 1 < now
        await trio.until(
            lambda: all(
                each.runs.committer.commit_index >= reader.said[-1]["seq"] for each in trio.machines
            )
        )
        await good_everywhere(trio, reader)

    played(main, founded=False)


def test_what_only_a_lost_lineage_has_is_of_another_history() -> None:
    """Also with the epoch of which both have something, and where this one has come as far."""

    async def main(trio: Trio) -> None:
        old, alone = await trio.led(), trio.named("c")
        await wrote(old, 1)
        await trio.until(lambda: _shows(alone, old))
        kept = alone.runs.committer.commit_index
        alone.cut()
        await trio.in_sync("a", "b")
        reader = Reader()
        await follow(old.runs, reader, start=0)
        for number in range(2, 6):
            await wrote(old, number)
        await told(trio, reader, 5)
        await old.kill()
        await trio.named("b").kill()
        alone.mend()
        await trio.until(lambda: trio.etcd.lead is None)
        await alone.value("DEFINE NODE LEADS STORE FORCE REASON 'both burnt'")
        await trio.in_sync("c")
        for number in range(20):
            await wrote(alone, 100 + number)
        assert reader.opening is not None
        for sequence, epoch in places(reader):
            again = outcome(
                follow(
                    alone.runs, Reader(), start=sequence, store=reader.opening.store, epoch=epoch
                )
            )
            is_lost = sequence > kept
            assert isinstance(await again, Diverged) == is_lost, (sequence, epoch, kept)
        assert sum(sequence > kept for sequence, _ in places(reader)) >= 4

    played(main)


def _shows(machine: ClusterMachine, other: ClusterMachine) -> bool:
    return machine.runs.committer.commit_index == other.runs.committer.commit_index
