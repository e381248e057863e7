"""Whether what publishers and workers of a topic were told can be true, to the last message.

A `History` holds every request with what came back, and what the topic, its dead letter topic and
the figures of the group show at the end, when the last worker has taken until nothing came and has
acknowledged all of it. `violations` names what can't be:

- a publish that was acknowledged is there, once, at its positions, and no other message is;
- positions are dense, and time never falls;
- attempts of a message count from 1, each handed out once, none after an acknowledgement, none
  more than DELIVERIES; one that nobody has seen was in an answer that never came;
- a hand-out comes again after its deadline, or what a NACK asked for, not before;
- in flight are never more than IN FLIGHT, by the figures and by what workers certainly held;
- what was given up, or handed out DELIVERIES times, is a dead letter, once, with its attempts;
- the figures of the group are those that follow.

All times are seconds of the wall clock of one machine: the node's log time is of that clock too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Final, Literal

SLACK_SECONDS: Final = 0.005
"""Between two processes' readings of one clock."""

Name = tuple[int, int]
"""Position and attempt: what a receipt names."""


@dataclass(frozen=True)
class Publish:
    """One publish, or several attempts at one under the same `id`."""

    marks: tuple[str, ...]
    """Of its messages, in order."""
    began: float
    ended: float = inf
    first: int | None = None
    """The position of the first, as answered; None: no answer came."""
    duplicate: bool = False
    id: str | None = None
    refused: str | None = None


@dataclass(frozen=True)
class HandOut:
    """A message as TAKE answered it."""

    position: int
    attempt: int
    mark: str
    deadline: float

    @property
    def name(self) -> Name:
        return self.position, self.attempt


@dataclass(frozen=True)
class Take:
    """`found` is None, and `ended` infinite, when no answer came."""

    asked: int
    began: float
    ended: float = inf
    found: tuple[HandOut, ...] | None = None


@dataclass(frozen=True)
class Settle:
    """An ACK, NACK, EXTEND or GIVE UP."""

    kind: Literal["ack", "nack", "extend", "give up"]
    names: tuple[Name, ...]
    began: float
    ended: float = inf
    done: int | None = None
    """How many of them were not stale; None: no answer came."""
    seconds: float | None = None
    """Of a NACK its DELAY, of an EXTEND its BY."""

    @property
    def certain(self) -> bool:
        """Whether it is known to hold for each of them."""
        return self.done == len(self.names)

    @property
    def possible(self) -> bool:
        """Whether it may hold for any of them."""
        return self.done is None or self.done > 0


@dataclass(frozen=True)
class Kept:
    """A message as READ shows it in the end."""

    position: int
    at: float
    mark: str


@dataclass(frozen=True)
class DeadLetter:
    """A message of the dead letter topic."""

    mark: str
    position: int
    attempts: int


@dataclass
class History:
    """Everything that happened to one topic and one group of it."""

    in_flight: int
    deliveries: int
    backoff: tuple[float, ...] = ()
    publishes: list[Publish] = field(default_factory=list)
    unreached: int = 0
    """Messages that never went out."""
    takes: list[Take] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    seen_in_flight: list[int] = field(default_factory=list)
    """By INFO, now and then."""
    kept: list[Kept] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    """Of the group, by INFO, in the end."""


def violations(history: History) -> list[str]:
    """What can't be; empty when all of it can."""
    return list(_Judge(history).verdict())


class _Judge:
    def __init__(self, history: History) -> None:
        self._history = history
        self._marks = {kept.position: kept.mark for kept in history.kept}
        self._attempts: dict[int, dict[int, tuple[Take, HandOut]]] = defaultdict(dict)
        """By position and attempt."""
        self._settled: dict[Name, list[Settle]] = defaultdict(list)
        for settle in history.settles:
            for name in settle.names:
                self._settled[name].append(settle)
        self._dead = {letter.position: letter for letter in history.dead}

    def verdict(self) -> Iterator[str]:
        yield from self._published()
        yield from self._dense()
        yield from self._handed_out()
        yield from self._unseen()
        yield from self._early()
        yield from self._resolved()
        yield from self._limits()
        yield from self._figures()

    # --- the topic ------------------------------------------------------------------------------

    def _published(self) -> Iterator[str]:
        at = {mark: position for position, mark in self._marks.items()}
        counts = Counter(self._marks.values())
        yield from (f"{mark} is there {n} times" for mark, n in counts.items() if n > 1)
        may: set[str] = set()
        first_of: dict[str, int] = {}
        for publish in self._history.publishes:
            if publish.refused is None:
                may.update(publish.marks)
            there = [at.get(mark) for mark in publish.marks]
            if publish.first is not None:
                wanted = list(range(publish.first, publish.first + len(publish.marks)))
                if there != wanted:
                    yield f"lost: {publish.marks} were answered at {wanted} and are at {there}"
                if publish.id and first_of.setdefault(publish.id, publish.first) != publish.first:
                    yield f"{publish.id} was answered at {first_of[publish.id]}, {publish.first}"
            elif publish.refused is None:
                held = [position for position in there if position is not None]
                if held and held != list(range(held[0], held[0] + len(there))):
                    yield f"half of a publish: {publish.marks} are at {there}"
        fresh = Counter(
            publish.id
            for publish in self._history.publishes
            if publish.id and publish.first is not None and not publish.duplicate
        )
        yield from (f"{id} was published {n} times anew" for id, n in fresh.items() if n > 1)
        yield from (f"ghost: {mark} was never published" for mark in at if mark not in may)

    def _dense(self) -> Iterator[str]:
        positions = [kept.position for kept in self._history.kept]
        if positions != list(range(1, len(positions) + 1)):
            yield f"positions are not dense: {len(positions)} up to {max(positions, default=0)}"
        times = [kept.at for kept in self._history.kept]
        if times != sorted(times):
            yield "the time of messages falls"

    # --- hand-outs ------------------------------------------------------------------------------

    def _handed_out(self) -> Iterator[str]:
        for take in self._history.takes:
            if take.found is not None and len(take.found) > take.asked:
                yield f"asked for {take.asked}, got {len(take.found)}"
            for one in take.found or ():
                if self._marks.get(one.position) != one.mark:
                    yield f"handed out {one}, kept is {self._marks.get(one.position)}"
                if not 1 <= one.attempt <= self._history.deliveries:
                    yield f"attempt {one.attempt} of {one.position}"
                if one.attempt in self._attempts[one.position]:
                    yield f"attempt {one.attempt} of {one.position} was handed out twice"
                self._attempts[one.position][one.attempt] = take, one
        for position, attempts in self._attempts.items():
            numbers = sorted(attempts)
            for before, after in pairwise(numbers):
                if attempts[after][0].ended < attempts[before][0].began:
                    yield f"attempt {after} of {position} came before attempt {before}"

    def _unseen(self) -> Iterator[str]:
        """Attempts that nobody has seen: there must have been answers that never came."""
        unknown = sorted(take.began for take in self._history.takes if take.found is None)
        room = sum(take.asked for take in self._history.takes if take.found is None)
        missing = 0
        for position, attempts in self._attempts.items():
            for number in range(1, max(attempts)):
                if number in attempts:
                    continue
                missing += 1
                following = min(n for n in attempts if n > number)
                if not unknown or unknown[0] > attempts[following][0].ended:
                    yield f"attempt {following} of {position} without attempt {number}"
        if missing > room:
            yield f"{missing} attempts were never seen, answers for {room} never came"

    def _early(self) -> Iterator[str]:
        for position, attempts in self._attempts.items():
            for number, (_, one) in attempts.items():
                following = attempts.get(number + 1)
                if following is None:
                    continue
                earliest = self._back(one)
                if following[0].ended < earliest - SLACK_SECONDS:
                    early = earliest - following[0].ended
                    yield f"attempt {number + 1} of {position} came {early:.3f} s early"

    def _back(self, one: HandOut) -> float:
        """When a hand-out that is not acknowledged may come again at the earliest."""
        settles = self._settled[one.name]
        pause = self._pause(one.attempt)
        lapses = one.deadline
        for settle in settles:
            if settle.kind == "extend" and settle.certain:
                assert settle.seconds is not None
                lapses = settle.began + settle.seconds
        ways = [lapses + pause]
        for settle in settles:
            if settle.kind == "nack" and settle.possible:
                ways.append(settle.began + (pause if settle.seconds is None else settle.seconds))
            if settle.kind == "extend" and not settle.certain and settle.possible:
                assert settle.seconds is not None
                ways.append(settle.began + settle.seconds + pause)
        return min(ways)

    def _pause(self, attempt: int) -> float:
        backoff = self._history.backoff
        return backoff[min(attempt, len(backoff)) - 1] if backoff else 0.0

    # --- ends -----------------------------------------------------------------------------------

    def _resolved(self) -> Iterator[str]:
        """Every message is acknowledged or a dead letter, and nothing happens to it after that."""
        counts = Counter(letter.position for letter in self._history.dead)
        yield from (f"{p} is {n} dead letters" for p, n in counts.items() if n > 1)
        for position, mark in self._marks.items():
            attempts, letter = self._attempts.get(position, {}), self._dead.get(position)
            last = max(attempts, default=0)
            acks = [(n, s) for n in attempts for s in self._kinds((position, n), "ack")]
            acked = [number for number, settle in acks if settle.certain]
            if letter is not None and letter.mark != mark:
                yield f"dead letter of {position} is {letter.mark}, not {mark}"
            if acked and letter is not None:
                yield f"{position} was acknowledged and is a dead letter"
            if acked and last > min(acked):
                yield f"{position} was acknowledged at attempt {min(acked)} and came again"
            if letter is None and not any(settle.possible for _, settle in acks):
                yield f"lost: {position} was neither acknowledged nor is it a dead letter"
            if letter is None:
                gave = [s for n in attempts for s in self._kinds((position, n), "give up")]
                if any(settle.certain for settle in gave):
                    yield f"{position} was given up and is no dead letter"
            else:
                yield from self._dies(letter, last)
        for position in self._dead.keys() - self._marks.keys():
            yield f"ghost: a dead letter of {position}, which is not there"

    def _dies(self, letter: DeadLetter, last: int) -> Iterator[str]:
        """Why a message may be a dead letter with so many attempts."""
        where = f"dead letter of {letter.position} with {letter.attempts} attempts"
        unseen = any(take.found is None for take in self._history.takes)
        if letter.attempts < last or (letter.attempts > last and not unseen):
            yield f"{where}: {last} were handed out"
        given_up = self._kinds((letter.position, letter.attempts), "give up")
        allowed = any(settle.possible for settle in given_up)
        if letter.attempts != self._history.deliveries and not allowed:
            yield f"{where}: nobody gave it up"

    def _kinds(self, name: Name, kind: str) -> list[Settle]:
        return [settle for settle in self._settled.get(name, ()) if settle.kind == kind]

    # --- limits and figures ---------------------------------------------------------------------

    def _limits(self) -> Iterator[str]:
        limit = self._history.in_flight
        if (most := max(self._history.seen_in_flight, default=0)) > limit:
            yield f"in flight by INFO: {most}, the limit is {limit}"
        if (most := certainly_held(self._history)) > limit:
            yield f"in flight as workers held them: {most}, the limit is {limit}"

    def _figures(self) -> Iterator[str]:
        last = len(self._history.kept)
        finals = {p: max(attempts) for p, attempts in self._attempts.items() if attempts}
        finals |= {p: letter.attempts for p, letter in self._dead.items()}
        wanted = {
            "in_flight": 0, "handed_out": last, "committed": last, "lag": 0, "pending": 0,
            "waiting": 0, "width": 0, "dead_lettered": len(self._history.dead),
            "redelivered": sum(final - 1 for final in finals.values()),
        }  # fmt: skip
        for name, value in wanted.items():
            if self._history.figures.get(name) != value:
                yield f"{name} is {self._history.figures.get(name)}, and must be {value}"


def certainly_held(history: History) -> int:
    """The most hand-outs that workers held at one moment, whatever was on its way then: each from
    when its answer was there until something was asked for it, or its deadline. An EXTEND may
    bring that nearer."""
    asked: dict[Name, float] = {}
    for settle in history.settles:
        at = settle.began + (settle.seconds or 0.0) if settle.kind == "extend" else settle.began
        for name in settle.names:
            asked[name] = min(asked.get(name, inf), at)
    moments: list[tuple[float, int]] = []
    for take in history.takes:
        for one in take.found or ():
            until = min(one.deadline, asked.get(one.name, inf))
            if until > take.ended:
                moments += [(take.ended, 1), (until, -1)]
    held = most = 0
    for _, change in sorted(moments):
        held += change
        most = max(most, held)
    return most


def latest_redelivery(history: History) -> float:
    """How long after its deadline a lapsed hand-out came again, at the most. Seconds; a figure to
    tell, not to judge: the node may have been dead, or the group full."""
    attempts = {one.name: (take, one) for take in history.takes for one in take.found or ()}
    settled = {name for settle in history.settles for name in settle.names}
    late = [
        attempts[position, attempt + 1][0].ended - one.deadline
        for (position, attempt), (_, one) in attempts.items()
        if (position, attempt) not in settled and (position, attempt + 1) in attempts
    ]
    return max(late, default=0.0)
