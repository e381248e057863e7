"""Pinned snapshots (*moments*): kept between requests, so that several of them read the same state.

A pinned snapshot belongs to its user. Its name is random, so that a name from before a restart, or
from another node, is unknown. It ends in these cases:

- no request has read in it for the requested time, or an hour has passed since it was made
- commits were rolled back, because the disk is full or another node leads
- any user or grant changes, since privileges are checked as of the snapshot
- the node stops
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from actors.commits.committer import Committer
from actors.runtime import Runtime
from protocol import limits
from protocol.errors import Busy, Unknown
from protocol.requests import NEW_MOMENT
from protocol.shares import fits
from storage.txn.snapshots import PinnedSnapshot
from storage.txn.transaction import Transaction

# 72 random bits: a name is not guessed, and none comes twice.
NAME_BYTES: Final = 9
NAME_CHARACTERS: Final = 64
"""Most characters of an unknown name that the refusal repeats."""


class NamedSnapshot:
    """A pinned snapshot."""

    def __init__(self, name: str, user: str, moment: PinnedSnapshot, until_us: int) -> None:
        self.name = name
        self.user = user
        self.moment = moment
        self.ends_us = until_us
        """Latest end on the monotonic clock, whatever happens."""
        self.lapses_us = until_us
        """End on the monotonic clock, unless it is read before."""
        self.readers = 0
        """Scripts that read in it now."""

    def begin_transaction(self) -> Transaction:
        """Begin a transaction that reads in it. :raises Unknown: it has ended meanwhile"""
        if self.moment.ended:
            raise _gone(self.name)
        return self.moment.begin_transaction()


def _gone(name: str) -> Unknown:
    return Unknown(
        f"moment {name!r} is not kept any more: it was not read for too long, a user or grant"
        " changed, the disk was full, another node leads, the node restarted, or another node"
        " keeps it",
        moment=name,
    )


class NamedSnapshots:
    """Pinned snapshots of one node, by name."""

    def __init__(self, runtime: Runtime, committer: Committer) -> None:
        self._runtime = runtime
        self._committer = committer
        self._kept: dict[str, NamedSnapshot] = {}
        self._timer: asyncio.TimerHandle | None = None
        committer.on_roll_back.append(self.end_all)  # snapshots keep old versions on a full disk

    def __len__(self) -> int:
        self._forget_ended()
        return len(self._kept)

    def __iter__(self) -> Iterator[NamedSnapshot]:
        self._forget_ended()
        return iter(list(self._kept.values()))

    def _forget_ended(self) -> None:
        """Remove snapshots that the ledger has ended: they must not count against the limit."""
        for kept in list(self._kept.values()):
            if kept.moment.ended:
                del self._kept[kept.name]

    def enter(self, name: str, user: str) -> NamedSnapshot:
        """Begin to read in a snapshot; the script calls `leave` at its end.

        :param name: name of a kept snapshot, or `NEW_MOMENT`
        :raises Unknown: it has ended, or is another user's
        :raises Busy: the limit of kept snapshots is reached
        """
        kept = self._new(user) if name == NEW_MOMENT else self._kept.get(name)
        # Another user's snapshot is refused as an unknown one: its existence is not disclosed.
        if kept is None or kept.user != user:
            raise _gone(name[:NAME_CHARACTERS])
        kept.readers += 1
        return kept

    def leave(self, kept: NamedSnapshot, keep_us: int | None) -> bool:
        """End a script's reads in a snapshot. Return True if the snapshot stays.

        :param keep_us: time to keep it, µs; None: the default
        """
        kept.readers -= 1
        if keep_us is None:
            keep_us = limits.MOMENT_SECONDS * 1_000_000
        kept.lapses_us = min(self._now_us() + keep_us, kept.ends_us)
        if not keep_us or kept.moment.ended:
            self._end(kept)
        self._end_expired()
        return kept.name in self._kept

    def end_all(self) -> None:
        """End all snapshots: those in use go when their readers have ended."""
        for kept in list(self._kept.values()):
            self._end(kept)
        self._end_expired()

    def _now_us(self) -> int:
        return self._runtime.clock.monotonic_us()

    def _new(self, user: str) -> NamedSnapshot:
        held, mine = len(self), sum(one.user == user for one in self._kept.values())
        # A reserve stays for other users (`protocol/shares.py`).
        alone = min(limits.MOMENTS_OF_USER, limits.MOMENTS)
        if not fits(mine, 1, held, alone, limits.MOMENTS - alone):
            raise Busy(
                f"too many moments are kept: {held}, of which {mine} by {user}. Release one first"
            )
        ledger = self._committer.ledger
        name = f"m-{ledger.state.rng.bytes(NAME_BYTES).hex()}"
        ends_us = self._now_us() + limits.MOMENT_LIFE_SECONDS * 1_000_000
        kept = self._kept[name] = NamedSnapshot(name, user, ledger.moment(), ends_us)
        return kept

    def _end(self, kept: NamedSnapshot) -> None:
        self._kept.pop(kept.name, None)
        kept.moment.end()

    def _end_expired(self) -> None:
        """End snapshots whose time is over, and set the timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_us, next_us = self._now_us(), None
        for kept in list(self._kept.values()):
            # A snapshot in use has no idle time, only its latest end.
            due_us = kept.ends_us if kept.readers else kept.lapses_us
            if due_us <= now_us:
                self._end(kept)
            elif next_us is None or due_us < next_us:
                next_us = due_us
        if next_us is not None:
            self._timer = self._runtime.loop.call_later((next_us - now_us) / 1e6, self._end_expired)
