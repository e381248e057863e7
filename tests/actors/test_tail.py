"""The tail: who follows hears every released commit in order, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from actors.commits.tail import FRAME_BYTES, FellBehind, Tail, TailFollower
from protocol import limits
from storage.formats.frames import Frame
from tests.actors.parts import Parts, on_both, outcome, parts, until, with_parts
from tests.actors.test_commits import full


def frame(sequence: int, body: bytes = b"") -> Frame:
    return Frame(sequence, 1, sequence, 0, body)


def made(at: int = 0, count: int = 0, body: bytes = b"") -> Tail:
    """A tail behind commit `at`, with `count` more that are released."""
    tail = Tail(at, failing)
    for sequence in range(at + 1, at + count + 1):
        tail.add(frame(sequence, body))
    tail.advance(at + count, at + count)
    return tail


def failing(error: BaseException) -> None:
    raise error


def nobody() -> None:
    """Is woken and does nothing."""


def heard(follower: TailFollower, bytes_max: int = limits.MIB) -> list[int]:
    """The sequences of all that there is to take."""
    found: list[int] = []
    while step := follower.take(bytes_max):
        found += [each.sequence for each in step]
    return found


class Woken:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def test_a_follower_begins_behind_the_frame_it_names() -> None:
    tail = made(at=10, count=5)
    assert heard(tail.follow(12, nobody)) == [13, 14, 15]
    assert heard(tail.follow(10, nobody)) == [11, 12, 13, 14, 15]
    assert heard(tail.follow(15, nobody)) == []


def test_a_replica_that_has_everything_hears_that_more_is_released() -> None:
    tail, woken, shown = made(), Woken(), Woken()
    replica = tail.follow(0, woken, unreleased=True)
    tail.follow(0, shown)
    for sequence in (1, 2, 3):
        tail.add(frame(sequence))
    tail.advance(3, 0)
    assert (heard(replica), woken.times) == ([1, 2, 3], 0)
    tail.advance(3, 1)
    tail.advance(3, 2)
    assert woken.times == 1, "once, until it looks again"
    assert heard(replica) == []
    tail.advance(3, 2)
    assert woken.times == 1, "nothing is new"
    tail.advance(3, 3)
    assert woken.times == 2


def test_nothing_is_given_before_it_is_released() -> None:
    tail = made()
    woken, early = Woken(), Woken()
    shown, replica = tail.follow(0, woken), tail.follow(0, early, unreleased=True)
    assert heard(shown) == heard(replica) == []
    for sequence in (1, 2, 3):
        tail.add(frame(sequence))
    assert (woken.times, early.times, heard(replica)) == (0, 0, [])
    tail.advance(2, 1)
    assert (woken.times, early.times) == (1, 1)
    assert (heard(shown), heard(replica)) == ([1], [1, 2])
    tail.advance(3, 3)
    assert (heard(shown), heard(replica)) == ([2, 3], [3])


def test_a_follower_is_woken_once_for_each_time_it_has_taken_all() -> None:
    tail, woken = made(), Woken()
    follower = tail.follow(0, woken)
    assert heard(follower) == []
    for sequence in (1, 2, 3):
        tail.add(frame(sequence))
        tail.advance(sequence, sequence)
    assert woken.times == 1, "it has not come for what it was told of"
    assert [each.sequence for each in follower.take(limits.MIB)] == [1, 2, 3]
    tail.add(frame(4))
    tail.advance(4, 4)
    assert woken.times == 1, "it has not seen the end yet, and will look by itself"
    assert heard(follower) == [4]
    tail.add(frame(5))
    tail.advance(5, 5)
    assert woken.times == 2
    follower.leave()
    follower.leave()
    tail.add(frame(6))
    tail.advance(6, 6)
    assert woken.times == 2


def test_frames_are_taken_by_their_bytes_but_always_one() -> None:
    follower = made(count=5, body=b"x" * 100).follow(0, nobody)
    assert [each.sequence for each in follower.take(250)] == [1, 2]
    assert [each.sequence for each in follower.take(1)] == [3]
    assert [each.sequence for each in follower.take(10_000)] == [4, 5]


def test_the_tail_is_bounded_and_one_too_slow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAIL_BYTES", 10 * (100 + FRAME_BYTES))
    tail = made()
    slow, quick = tail.follow(0, nobody), tail.follow(0, nobody)
    for sequence in range(1, 101):
        tail.add(frame(sequence, b"x" * 100))
        tail.advance(sequence, sequence)
        assert heard(quick) == [sequence]
        assert len(tail) == min(sequence, 10)
        assert tail.bytes <= limits.TAIL_BYTES
    with pytest.raises(FellBehind) as told:
        slow.take(limits.MIB)
    assert told.value.begins == tail.first == 91
    with pytest.raises(FellBehind):
        tail.follow(89, nobody)
    assert heard(tail.follow(90, nobody)) == list(range(91, 101)), (
        "it joins what the log ended with"
    )


def test_what_a_full_disk_undid_nobody_hears() -> None:
    tail = made(count=2)
    follower, replica = tail.follow(2, nobody), tail.follow(2, nobody, unreleased=True)
    for sequence in (3, 4, 5):
        tail.add(frame(sequence, b"first"))
    tail.advance(3, 2)
    tail.roll_back(3)
    for sequence in (4, 5):
        tail.add(frame(sequence, b"second"))
    tail.advance(5, 5)
    for each in (follower, replica):
        assert [one.body for one in each.take(limits.MIB)] == [b"first", b"second", b"second"]


def test_who_was_given_what_gives_way_follows_no_more() -> None:
    tail, woken = made(count=2), Woken()
    follower, replica = tail.follow(2, woken), tail.follow(2, woken, unreleased=True)
    for sequence in (3, 4):
        tail.add(frame(sequence, b"first"))
    tail.advance(4, 2)
    assert heard(replica) == [3, 4]
    assert heard(replica) == heard(follower) == []
    tail.roll_back(2)
    assert (tail.synced_seq, len(tail)) == (2, 2)
    tail.add(frame(3, b"second"))
    tail.advance(3, 3)
    assert woken.times == 1, "the follower; who had the other third frame is never told of this one"
    assert [one.body for one in follower.take(limits.MIB)] == [b"second"]


class Story:
    """A tail under random use, and followers that write down what they hear."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.tail = Tail(0, failing)
        self.log: list[Frame] = []
        self.followers: list[tuple[TailFollower, list[Frame], bool]] = []
        self.behind = 0

    def run(self, steps: int) -> None:
        """Do anything, then let everybody come to the end."""
        for _ in range(steps):
            self.random.choice((self._add, self._add, self._advance, self._withdraw, self._follow,
                                self._take, self._take, self._take))()  # fmt: skip
        self.tail.advance(len(self.log), len(self.log))
        for number in range(len(self.followers)):
            self._take_all(number)
        for follower, found, _ in self.followers:
            begin = found[0].sequence - 1 if found else follower.position
            assert found == self.log[begin:], "not each of them, in order, exactly once"

    def _add(self) -> None:
        body = self.random.randbytes(self.random.randrange(200))
        self.log.append(frame(len(self.log) + 1, body))
        self.tail.add(self.log[-1])

    def _advance(self) -> None:
        durable = self.random.randint(self.tail.synced_seq, len(self.log))
        self.tail.advance(durable, self.random.randint(self.tail.commit_index, durable))

    def _withdraw(self) -> None:
        if self.random.random() < 0.2:
            del self.log[self.tail.synced_seq :]
            self.tail.roll_back(self.tail.synced_seq)

    def _follow(self) -> None:
        unreleased = self.random.random() < 0.3
        upto = self.tail.synced_seq if unreleased else self.tail.commit_index
        after = self.random.randint(0, upto)
        self._join(after, [], unreleased)

    def _join(self, after: int, found: list[Frame], unreleased: bool) -> None:
        """Follow; what the tail no longer has is read from the log."""
        try:
            follower = self.tail.follow(after, nobody, unreleased=unreleased)
        except FellBehind as behind:
            self.behind += 1
            found += self.log[after : behind.begins - 1]
            follower = self.tail.follow(behind.begins - 1, nobody, unreleased=unreleased)
        self.followers.append((follower, found, unreleased))

    def _take(self) -> None:
        if self.followers:
            self._take_some(self.random.randrange(len(self.followers)), self.random.randrange(400))

    def _take_all(self, number: int) -> None:
        for _ in range(len(self.log) + len(self.followers) + 1):
            if not self._take_some(number, 400):
                return
        raise AssertionError("there is no end to it")

    def _take_some(self, number: int, bytes_max: int) -> bool:
        follower, found, unreleased = self.followers[number]
        try:
            step = follower.take(bytes_max)
        except FellBehind:
            self._join(follower.position, found, unreleased)
            self.followers[number] = self.followers.pop()
            return True
        found += step
        shown = self.tail.synced_seq if unreleased else self.tail.commit_index
        assert not step or step[-1].sequence <= shown
        return bool(step)


def test_any_story_ends_with_everybody_having_heard_everything(
    figure: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TAIL_BYTES", 4_000)
    behind = followers = 0
    for seed in range(60):
        story = Story(seed)
        story.run(300)
        behind += story.behind
        followers += len(story.followers)
    assert behind > 100
    figure("followers of a tail", f"{followers}, {behind} times from the log")


def _gives_too_much(tail: Tail, position: int, upto: int, bytes_max: int) -> list[Frame]:
    return _after(tail, position, upto + 1, bytes_max)


def _skips_one(tail: Tail, position: int, upto: int, bytes_max: int) -> list[Frame]:
    found = _after(tail, position, upto, bytes_max)
    return found[1:] if len(found) > 2 else found


def _keeps_what_was_undone(_tail: Tail, _upto: int) -> None:
    pass


_after = Tail.after
FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "gives what is not released": ("after", _gives_too_much),
    "skips a frame": ("after", _skips_one),
    "keeps what was undone": ("roll_back", _keeps_what_was_undone),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAIL_BYTES", 4_000)
    monkeypatch.setattr(Tail, *FAULTS[fault])
    with pytest.raises((AssertionError, IndexError)):
        for seed in range(60):
            Story(seed).run(300)


@with_parts
async def test_who_follows_a_node_hears_what_is_durable_once_it_is(node: Parts, /) -> None:
    found: list[tuple[int, bytes]] = []

    def hear() -> None:
        while step := follower.take(limits.MIB):
            for each in step:
                assert each.sequence <= node.committer.commit_index
                found.append((each.sequence, each.body))

    follower = node.committer.tail.follow(0, hear)
    hear()
    for number in range(3):
        node.put(f"k{number}", b"")
    assert found == []
    await node.durable(3)
    assert [sequence for sequence, _ in found] == [1, 2, 3]
    full(node.disk)
    node.put("lost", b"")
    assert await outcome(node.durable(4)) is not None
    node.disk.plan = None
    await node.durable(node.put("kept", b""))
    assert [sequence for sequence, _ in found] == [1, 2, 3, 4]
    assert b"kept" in found[-1][1]
    logged = [(each.sequence, each.body) for each in node.log.reader.read(1)]
    assert found == logged


@on_both
async def test_a_tail_begins_where_the_node_did(kind: str) -> None:
    async with parts(kind) as node:
        await node.durable(node.put("a", b""))
        disk = node.disk
    async with parts(kind, disk) as node:
        assert node.committer.tail.first == 2
        with pytest.raises(FellBehind):
            node.committer.tail.follow(0, nobody)
        follower = node.committer.tail.follow(1, nobody)
        await node.durable(node.put("b", b""))
        await until(lambda: heard(follower) == [2])
