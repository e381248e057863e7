"""Who waits for messages: the lines of groups and the readers of topics, without a node."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from actors.topics.waiting import ReadWaits, StatementWait, TakeLine, TopicWaits
from storage.txn.appends import HEAD
from storage.txn.write_set import WriteSet

LAST, OTHER = b"last of one", b"last of another"
"""Keys of two topics' last positions."""


def _nobody(_hear: object) -> None:
    """Commits are told by hand."""


def write_set(key: bytes, last: int) -> WriteSet:
    """A commit that has brought a topic's messages up to a position."""
    made = WriteSet(1)
    made.write(key, HEAD.pack(last, 0))
    return made


class Taker:
    """What a script does that takes with WAIT, driven by hand."""

    def __init__(
        self, name: int, line: TakeLine, stock: list[int], taken: list[int], *, looks: bool = True
    ) -> None:
        self.name = name
        self.line, self.stock, self.taken = line, stock, taken
        self.woken = False
        self.done = False
        self.wait = StatementWait(line, 0, self._wake)
        if looks:
            self.look()

    def _wake(self) -> None:
        self.woken = True

    def look(self) -> None:
        """One run of the statement."""
        self.woken = False
        if self.line.may_look(self.wait) and self.stock:
            self.stock.pop(0)
            self.taken.append(self.name)
            self.end()
        elif self.wait.over:
            self.end()
        else:
            self.stand()

    def stand(self) -> None:
        """It has found nothing, or was not to look."""
        self.wait.join()
        if self.wait.woken and not self.woken:
            self.look()

    def end(self) -> None:
        self.done = True
        self.wait.leave()


def settle(takers: list[Taker]) -> int:
    """Run whoever was woken, until nobody is; how many runs that took."""
    runs = 0
    while woken := [taker for taker in takers if taker.woken and not taker.done]:
        for taker in woken:
            if not taker.done:
                taker.look()
                runs += 1
    return runs


def line_of(count: int) -> tuple[TopicWaits, TakeLine, list[Taker], list[int], list[int]]:
    waits, stock, taken = TopicWaits(_nobody), list[int](), list[int]()
    line = waits.line(1, 1)
    takers = [Taker(name, line, stock, taken) for name in range(count)]
    return waits, line, takers, stock, taken


def test_takers_are_served_in_the_order_they_came() -> None:
    waits, _, takers, stock, taken = line_of(20)
    for _ in range(20):
        stock.append(1)
        waits.published(1)
        settle(takers)
    assert taken == list(range(20))
    assert len(waits) == 0


def test_one_wake_serves_as_many_as_there_is_for_and_runs_one_more() -> None:
    waits, _, takers, stock, taken = line_of(1_000)
    stock += [1] * 10
    waits.published(1)
    assert settle(takers) == 11
    assert taken == list(range(10))


def test_one_that_leaves_with_the_turn_passes_it_on() -> None:
    waits, _, takers, stock, taken = line_of(3)
    stock.append(1)
    waits.published(1)
    assert takers[0].woken
    takers[0].end()  # cancelled before it could look
    settle(takers)
    assert taken == [1]


def test_a_wake_during_a_look_is_not_lost() -> None:
    waits, line, takers, stock, taken = line_of(2)
    waits.may_take(1, 1)
    first = takers[0]
    first.woken = False
    assert line.may_look(first.wait)  # it looks, finds nothing, and …
    stock.append(1)
    waits.published(1)  # … before it is back in the line something comes
    first.wait.join()
    assert first.wait.woken
    first.look()
    assert taken == [0]


def test_who_comes_while_one_has_the_turn_that_leaves_without_a_look_looks_itself() -> None:
    """As where some are run together and the first is refused: it is gone before the others stand,
    and nobody has looked."""
    _, line, _, stock, taken = line_of(0)
    stock.append(1)
    refused = StatementWait(line, 0, lambda: None)
    assert line.may_look(refused)
    takers = [Taker(name, line, stock, taken, looks=False) for name in range(2)]
    assert not any(line.may_look(taker.wait) for taker in takers)
    refused.leave()
    for taker in takers:
        taker.stand()
    settle(takers)
    assert taken == [0]
    assert not takers[1].done


def test_a_drain_answers_all_and_nobody_waits_after_it() -> None:
    waits, line, takers, stock, taken = line_of(5)
    waits.drain()
    settle(takers)
    assert all(taker.done for taker in takers) and not taken
    late = Taker(9, waits.line(1, 1), stock, taken)
    settle([late])
    assert late.done
    assert len(waits) == 0
    assert line is not waits.line(1, 1)


def test_all_look_again_and_keep_their_order() -> None:
    waits, _, takers, stock, taken = line_of(5)
    waits.look_again()
    settle(takers)
    stock += [1] * 5
    waits.published(1)
    settle(takers)
    assert taken == list(range(5))


def test_no_mixture_loses_a_wake() -> None:
    for seed in range(300):
        rng = Random(seed)
        waits, _, takers, stock, taken = line_of(0)
        left: set[int] = set()
        for step in range(60):
            what = rng.choice(("come", "come", "refused", "publish", "leave", "look", "run"))
            waiting = [taker for taker in takers if not taker.done]
            if what == "come":
                takers.append(Taker(len(takers), waits.line(1, 1), stock, taken))
            elif what == "refused":  # the first of some that are run together
                line = waits.line(1, 1)
                first = StatementWait(line, 0, lambda: None)
                line.may_look(first)
                others = range(len(takers), len(takers) + rng.randint(1, 2))
                came = [Taker(name, line, stock, taken, looks=False) for name in others]
                takers += came
                assert not any(line.may_look(taker.wait) for taker in came)
                first.leave()
                for taker in came:
                    taker.stand()
            elif what == "publish":
                stock += [step] * rng.randint(1, 3)
                waits.published(1)
            elif what == "leave" and waiting:
                gone = rng.choice(waiting)
                left.add(gone.name)
                gone.end()
            elif what == "look":
                waits.look_again()
            elif waiting and (woken := [taker for taker in waiting if taker.woken]):
                rng.choice(woken).look()
        settle(takers)
        waiting_names = [taker.name for taker in takers if not taker.done]
        assert not (stock and waiting_names), (seed, "a wake was lost")
        assert len(waits) == len(waiting_names), seed
        assert sorted([*taken, *left, *waiting_names]) == list(range(len(takers))), seed


class Reader:
    """What a script does that reads with WAIT."""

    def __init__(self, readers: ReadWaits, after: int, last: Callable[[], int]) -> None:
        self.runs = 0
        self.woken = False
        self.last, self.after = last, after
        self.found = False
        self.wait = StatementWait(readers, 0, self._wake)
        self.look()

    def _wake(self) -> None:
        self.woken = True

    def look(self) -> None:
        self.woken, self.runs = False, self.runs + 1
        if self.last() > self.after or self.wait.over:
            self.found = self.last() > self.after
            self.wait.leave()
            return
        self.wait.after = self.after
        self.wait.join()
        if self.wait.woken and not self.woken:
            self.look()


def test_readers_wake_only_for_what_they_want() -> None:
    heard: list[object] = []
    waits, last = TopicWaits(heard.append), 0
    readers = [Reader(waits.readers(1, LAST), after, lambda: last) for after in range(10)]
    assert heard == [waits.on_pending_commit]
    last = 5
    waits.on_pending_commit(write_set(OTHER, 9))
    assert not any(reader.woken for reader in readers)
    waits.on_pending_commit(write_set(LAST, last))
    assert [reader.woken for reader in readers] == [True] * 5 + [False] * 5
    for reader in readers[:5]:
        reader.look()
    assert all(reader.found and reader.runs == 2 for reader in readers[:5])
    assert all(reader.runs == 1 for reader in readers[5:])
    assert len(waits) == 5
    waits.drain()
    for reader in readers[5:]:
        assert reader.woken
        reader.look()
        assert not reader.found
    assert len(waits) == 0
    assert heard == [waits.on_pending_commit, None], (
        "commits are looked at only while somebody reads"
    )


def test_readers_look_again_when_their_topic_goes() -> None:
    for gone in ("range", "key"):
        waits = TopicWaits(_nobody)
        of_it = Reader(waits.readers(1, LAST), 7, lambda: 7)
        of_another = Reader(waits.readers(2, OTHER), 7, lambda: 7)
        dropped = WriteSet(1)
        if gone == "range":
            dropped.delete_range(LAST, LAST + b"\0")
        else:
            dropped.write(LAST, None)
        waits.on_pending_commit(dropped)
        assert (of_it.woken, of_another.woken) == (True, False)
