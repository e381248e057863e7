"""Readers of a table's feed (change data capture), each with a copy of the table built from the
events.

All have a filter, so that a pipeline delivers to them; some are slow, so that other work runs in
between. Meanwhile their users' privileges on commit metadata change.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from actors.feeds.feed import Feed
from actors.feeds.request import (
    CommitHead,
    CommitPart,
    FeedChange,
    FeedCursor,
    FeedOpened,
    OpenFeed,
)
from actors.runtime import ask
from protocol.binary import unpack_object
from protocol.errors import Refusal
from protocol.requests import Caller
from protocol.values import NONE
from tests.simulation.loop import SteppedLoop
from tests.simulation.scripts import ClientScript, Draft, ModelStatement
from tests.simulation.scripts import ScriptTransaction as Transaction

if TYPE_CHECKING:
    from tests.simulation.scripts import Rows
    from tests.simulation.world import NodeLife

TABLE: Final = "t"
NAMES: Final = ("fay", "ned")
EACH: Final = 12
"""Feeds of each user."""
SLOW_SECONDS: Final = 0.002
"""Duration of a slow send, seconds: one slice of the loop."""
CATCHES_UP_SECONDS: Final = 5.0
"""Virtual seconds within which readers must catch up after the last commit."""


class _Pickled:
    """Encoding of the events for readers."""

    def change(self, change: FeedChange) -> bytes:
        fields = None if change.fields is None else unpack_object(change.fields)
        return pickle.dumps((change.id.id, fields))

    def commit(self, head: CommitHead, changes: Sequence[bytes], part: CommitPart | None) -> bytes:
        assert part is None, "commits of these tables are short"
        return pickle.dumps((head.place.sequence, list(map(pickle.loads, changes))))

    def caught_up(self, place: FeedCursor) -> bytes:
        return b""

    def beat(self, place: FeedCursor) -> bytes:
        return b""


class FeedReader:
    """A reader.

    :param slow: True if each event takes long to be sent
    """

    form = _Pickled()
    waiting = 0
    ready = True

    def __init__(self, name: str, life: NodeLife, slow: bool) -> None:
        self.name = name
        self._life = life
        self._slow = slow
        self.start = 0
        self.commits: list[tuple[int, list[tuple[Any, Any]]]] = []
        """Events received: sequences of commits, and the records that each has changed."""
        self.upto: int | None = None
        """Sequence up to which it must have all events; None: its feed ended, or its node died."""
        self.is_over = False

    def opened(self, opened: FeedOpened) -> None:
        self.start = opened.start

    def send(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        if self._slow and isinstance(loop, SteppedLoop):
            loop.advance(SLOW_SECONDS)
        if data and not self._life.over:
            self.commits.append(pickle.loads(data))

    def when_ready(self, call: Callable[[], None]) -> None:
        raise AssertionError("it is always ready")

    def ended(self, why: Refusal, place: FeedCursor) -> None:
        self.is_over = True

    # --- the verdict ------------------------------------------------------------------------------

    def wrong(self, tables: Sequence[Rows]) -> str | None:
        """Return the first error in the received events, or None.

        :param tables: content of the table, by sequence
        """
        copy, last = dict(tables[self.start]), self.start
        for at, changes in self.commits:
            if at <= last:
                return f"{self.name} is told {at} behind {last}"
            if wrong := _differs(copy, tables[at - 1]):
                return f"{self.name} was not told all before {at}: {wrong}"
            for id, fields in changes:
                if fields is None:
                    copy.pop(id, None)
                else:
                    copy[id] = fields
            if wrong := _differs(copy, tables[at]):
                return f"{self.name} has another copy at {at}: {wrong}"
            last = at
        if (
            self.upto is not None
            and last <= self.upto
            and (wrong := _differs(copy, tables[self.upto]))
        ):
            return f"{self.name} has not been told all up to {self.upto}: {wrong}"
        return None


def _differs(copy: Rows, table: Rows) -> str | None:
    if copy == table:
        return None
    ids = [id for id in {**copy, **table} if copy.get(id) != table.get(id)]
    return "; ".join(f"{id}: {copy.get(id)}, and it is {table.get(id)}" for id in ids)


class Feeds:
    def __init__(self, life: NodeLife, chance: random.Random) -> None:
        self._life = life
        self._chance = chance
        self._readers: list[FeedReader] = []

    async def prepare(self) -> None:
        for name in NAMES:
            await self._life.send(_defined(name))
            await self._life.send(_changes(f"GRANT READ ON TABLE a.b.{TABLE} TO {name}"))
        for number in range(EACH * len(NAMES)):
            await self._open(NAMES[number % len(NAMES)])

    async def _open(self, name: str) -> None:
        life = self._life
        reader = FeedReader(life.world.new_name(f"{name} "), life, self._chance.random() < 0.7)
        caller = Caller(name, "member", None, None, "wire", "192.0.2.8:5000")
        asked = OpenFeed(caller, reader.name, "a", "b", TABLE, reader, where="n >= 0")
        try:
            feed = await ask(life.node.feeds, asked)
        except Refusal:
            return
        if not life.over:
            assert isinstance(feed, Feed)
            self._readers.append(reader)
            life.world.history.readers.append(reader)

    async def change_rights(self) -> None:
        """Grant or revoke a user's privilege on the metadata of commits."""
        name, word = self._chance.choice(NAMES), self._chance.choice(("GRANT", "REVOKE"))
        to = "TO" if word == "GRANT" else "FROM"
        await self._life.send(_changes(f"{word} INFO ON TABLE a.b.{TABLE} {to} {name}"))

    async def end(self) -> None:
        """Let all readers catch up, after the last commit."""
        committer = self._life.node.committer
        await asyncio.sleep(CATCHES_UP_SECONDS)
        if not self._life.over and self._life.node.failure is None:
            for reader in self._readers:
                if not reader.is_over:
                    reader.upto = committer.commit_index


def _defined(name: str) -> ClientScript:
    def run(draft: Draft) -> Any:
        if name not in draft.users:
            draft.users.add(name)
            draft.wrote = True
        return NONE

    text = f"DEFINE USER IF NOT EXISTS {name} ROLE member PASSWORD 'correct horse'"
    return ClientScript((Transaction((ModelStatement(text, run),)),), {})


def _changes(text: str) -> ClientScript:
    def run(draft: Draft) -> Any:
        draft.perhaps = True
        return NONE

    may = frozenset({"Unknown"})  # if the user is not defined yet
    return ClientScript((Transaction((ModelStatement(text, run, may=may),)),), {})
