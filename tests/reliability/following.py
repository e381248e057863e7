"""Readers of a change feed who come and go, and what must be true of all that they heard.

A writer makes numbered commits, one after the other: each puts so many records that all say its
number, and how many they are. So every reader can be judged by itself: halves, gaps, doubles and
disorder show in what it heard, whatever else it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from surfaces.http import frames
from tests.processes import PASSWORD, USER
from tests.surfaces.http import sockets
from tests.surfaces.http.raw import Raw

PLACE: Final = {"ns": "a", "db": "b", "table": "t"}
BASIC: Final = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
AGAIN_SECONDS: Final = 0.05
AWAY: Final = frozenset({"Busy", "Draining"})
"""The codes of a node that has no time for one more reader, or stops."""


class Refused(Exception):
    """The node is there, and takes no reader now."""


GONE: Final = (OSError, asyncio.IncompleteReadError, Refused)
"""What a reader meets when the node goes away, or has not come yet."""


class Wrong(Exception):
    """Something was promised of feeds and is not so."""


def spread(number: int) -> int:
    """How many records a commit puts."""
    return 1 + number % 5


def commit(number: int) -> str:
    """The script of a commit."""
    puts = "; ".join(
        f"UPSERT t:{each} SET n = {number}, of = {spread(number)}" for each in range(spread(number))
    )
    return f"BEGIN; {puts}; COMMIT"


@dataclass
class Heard:
    """What one reader was told, and kept: it comes back with what stands here."""

    name: str
    seq: int | None = 0
    """The last commit that it dealt with; None: it has to copy anew."""
    history: dict[str, str] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    """Of the commits, in the order in which they came."""
    gaps: list[int] = field(default_factory=list)
    """Before which of them it had to begin anew, since the log began later."""
    connections: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    def take(self, said: Mapping[str, Any]) -> None:
        """A message of the feed. :raises Wrong: :raises Refused:"""
        kind = said["type"]
        if kind == "open":
            self.history = {"store": said["store"]}
            if self.seq == 0 and said["begins"] > 1:
                self.gaps.append(0)  # it asked for all that the log holds
        elif kind == "commit":
            self._commit(said)
        elif kind == "error":
            self.ended(said["error"])
        elif kind in ("beat", "caught_up"):
            if self.seq is not None and said["seq"] < self.seq:
                raise Wrong(f"{self.name}: {kind} goes back to {said['seq']} from {self.seq}")
            self._is_at(said)

    def ended(self, error: Mapping[str, Any]) -> None:
        """The node ends the feed, or does not begin it. :raises Wrong: :raises Refused:"""
        code = error["code"]
        self.ends[code] = self.ends.get(code, 0) + 1
        if code == "LogPruned":
            self.seq = None
        elif code == "Unknown":  # the table is not declared yet: nothing may be missing then
            if self.numbers:
                raise Wrong(f"{self.name}: {dict(error)} after {self.numbers[-1]}")
            raise Refused

    def _commit(self, said: Mapping[str, Any]) -> None:
        if self.seq is not None and said["seq"] <= self.seq:
            raise Wrong(f"{self.name}: commit {said['seq']} after {self.seq}")
        values = [change["value"] for change in said["changes"]]
        numbers = {value["n"] for value in values}
        if len(numbers) != 1:
            raise Wrong(f"{self.name}: commit {said['seq']} is of {sorted(numbers)}")
        (number,) = numbers
        if len(values) != values[0]["of"]:
            raise Wrong(f"{self.name}: {len(values)} of {values[0]['of']} records of {number}")
        if self.numbers and number <= self.numbers[-1]:
            raise Wrong(f"{self.name}: number {number} after {self.numbers[-1]}")
        self.numbers.append(number)
        self._is_at(said)

    def _is_at(self, said: Mapping[str, Any]) -> None:
        self.seq = said["seq"]
        self.history["epoch"] = str(said["epoch"])

    def judge(self, happened: list[int]) -> None:
        """All is over: it must have heard of what happened, but where it had to begin anew.

        :param happened: the numbers of all commits that there are, in order
        :raises Wrong:
        """
        ghosts = set(self.numbers) - set(happened)
        if ghosts:
            raise Wrong(f"{self.name}: {sorted(ghosts)} never happened")
        missing = sorted(set(happened) - set(self.numbers))
        for number in missing:
            if not any(self._covers(gap, number) for gap in self.gaps):
                raise Wrong(f"{self.name}: {number} was skipped, of {len(missing)} missing")

    def _covers(self, gap: int, number: int) -> bool:
        """Whether a commit may be missing since the reader began anew after it: it stands between
        the last one heard before that and the first after."""
        before = self.numbers[gap - 1] if gap else -1
        after = self.numbers[gap] if gap < len(self.numbers) else number + 1
        return before < number < after


async def follow(
    heard: Heard,
    port: int,
    rng: random.Random,
    over: asyncio.Event,
    *,
    slow: bool = False,
    away_seconds: float = 0,
) -> None:
    """Follow, lose the connection now and then, come back, until it is over.

    :param away_seconds: it stays away so long at most, between
    """
    while not over.is_set():
        try:
            await _once(heard, port, rng, over, slow)
            if away_seconds:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), rng.uniform(0, away_seconds))
        except GONE:
            await asyncio.sleep(AGAIN_SECONDS * (1 + rng.random()))


async def _once(
    heard: Heard, port: int, rng: random.Random, over: asyncio.Event, slow: bool
) -> None:
    if heard.seq is None:
        heard.gaps.append(len(heard.numbers))
        heard.seq, heard.history = 0, {}
    query = urlencode({**PLACE, "from": str(heard.seq), **heard.history})
    asks = sockets.asks(Authorization=BASIC).replace(b"/echo", b"/watch?" + query.encode(), 1)
    peer = sockets.Peer(await Raw.connect(port))
    ends_after = rng.choice((1, 3, 20, 200, 2_000))
    async with peer:
        heard.connections += 1
        await peer.send(asks)
        answer = await peer.raw.answer()
        if answer.status != 101:
            if answer.error["code"] not in {*AWAY, "LogPruned", "Unknown"}:
                raise Wrong(f"{heard.name}: refused with {answer.error}")
            heard.ended(answer.error)
            raise Refused
        for _ in range(ends_after):
            frame = await peer.frame()
            if frame.opcode != frames.TEXT:
                return
            heard.take(frame.json)
            if over.is_set() or heard.seq is None:
                break
            if slow:
                await asyncio.sleep(0.01)
        with contextlib.suppress(OSError):
            if rng.random() < 0.5:
                peer.raw.writer.transport.abort()
