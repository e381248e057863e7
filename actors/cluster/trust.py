"""Whom this node trusts: who shows a certificate that a row of the cluster names and that nobody
has revoked.

It is made of the rows as they stand, anew whenever a declaration has changed, and those who hold
links are told then: whoever was trusted by a row that is gone is let go at once. Who is declared is
trusted once that is released.

A node whose own rows are older than a token, or are not there yet, trusts what that token names, by
its fingerprint, as long as it has not heard that it was revoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from actors.commits import Committer, FellBehind, Follower
from actors.runtime import Runtime
from protocol.values import instant
from storage import join_tokens, replicas, revocations
from storage.engine import EngineUnreadable
from storage.replicas import Replica
from storage.transactions import Transaction

AGAIN_SECONDS: Final = 5.0
"""When those who hold links are told again, where what is declared could not be read."""


class Pinned(NamedTuple):
    """Who shows a certificate that is trusted."""

    row: str
    """Its name."""
    node: str | None
    """The id of its node; None: nobody has come with the certificate yet."""
    expires: datetime | None
    """As far as it is known here."""


class Trust:
    """On the loop only.

    :param store: the store's id
    """

    def __init__(self, runtime: Runtime, committer: Committer, store: str) -> None:
        self._runtime = runtime
        self._committer = committer
        self._store = store
        self._version = (0, -1, -1)
        """Of the declarations as they were last read here, and up to where they were released."""
        self._told = (0, -1)
        """The version that was last told of."""
        self._pinned: dict[str, Pinned] = {}
        self._rows: dict[str, str] = {}
        """By the id of a node, the name of its row."""
        self._revoked: frozenset[str] = frozenset()
        self._follower: Follower | None = None
        self._look: asyncio.Handle | None = None
        self._unread: tuple[int, int] | None = None
        """The version of declarations of which not everybody could be told."""
        self._again: asyncio.Handle | None = None
        self.on_change: list[Callable[[], None]] = []
        """Called when a declaration has changed, one of the cluster perhaps."""

    # --- what is asked ----------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """By which it is judged whether a certificate is valid."""
        return instant(self._runtime.clock.wall_us())

    def of(self, fingerprint: str) -> Pinned | None:
        """Who shows that certificate; None: nobody who is trusted."""
        self._refresh()
        return self._pinned.get(fingerprint)

    def is_revoked(self, fingerprint: str) -> bool:
        """Whether nobody who shows it is trusted, whatever else names it."""
        self._refresh()
        return fingerprint in self._revoked

    def pins_of(self, node: str) -> frozenset[str]:
        """The certificates that a node may show; none: it has no row, or no certificate in it."""
        self._refresh()
        return frozenset(one for one, pinned in self._pinned.items() if pinned.node == node)

    def row_of(self, node: str) -> str | None:
        """The name of the row that names a node by its id, whatever certificate it has."""
        self._refresh()
        return self._rows.get(node)

    def awaits_unknown(self) -> bool:
        """Whether somebody may come whom nobody knows: there is a join token that can be used, or
        whose use is not released. Who has used it may come again."""
        with self._committer.begin() as tx:
            usable = join_tokens.any_usable(tx, self._store)
        if usable or self._committer.ledger.catalog_version <= self._committer.released_upto:
            return usable
        with self._committer.begin_shown() as tx:
            return join_tokens.any_usable(tx, self._store)

    # --- what changes -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Tell `on_change` of changes from now on, until `close`."""
        self._told = self._declared
        self._follow()

    def close(self) -> None:
        """Tell nobody any more."""
        if self._follower is not None:
            self._follower.leave()
            self._follower = None
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._forget_unread()

    def _follow(self) -> None:
        tail = self._committer.tail
        self._follower = tail.follow(tail.released_upto, self._wake)
        self._drain(self._follower)

    def _wake(self) -> None:
        """Something was released. What it was is looked at in a turn of its own: this is called in
        the middle of releasing it."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._looked)

    def _looked(self) -> None:
        self._look = None
        if self._follower is None:
            return
        self._drain(self._follower)
        # Not what was last read: between its commit and its release somebody may have asked.
        if (version := self._declared) not in (self._told, self._unread):
            self._tell(version)

    def _tell(self, version: tuple[int, int]) -> None:
        self._forget_unread()
        for changed in self.on_change:
            try:
                changed()
            except EngineUnreadable as error:
                self._runtime.noticed(type(self).__name__, error)
                self._unread = version
        if self._unread is None:
            self._told = version
        else:  # links of who is trusted no more may stand yet: all are told again, and soon
            self._again = self._runtime.loop.call_later(AGAIN_SECONDS, self._tell_again)

    def _tell_again(self) -> None:
        self._tell(self._declared)

    def _forget_unread(self) -> None:
        self._unread = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _drain(self, follower: Follower) -> None:
        """Take what there is: that there is something is all that matters of it."""
        try:
            while follower.take(1 << 62):
                pass
        except FellBehind:
            self._follow()

    @property
    def _declared(self) -> tuple[int, int]:
        """The version of all declarations: a sequence that was taken back is given again."""
        return self._committer.generation, self._committer.ledger.catalog_version

    def _refresh(self) -> None:
        """Read the declarations, if they are others than were read last. What is on its way to be
        released takes trust at once, and gives none before it is: it may be taken back."""
        generation, declared = self._declared
        released = min(declared, self._committer.released_upto)
        if self._version == (version := (generation, declared, released)):
            return
        with self._committer.begin() as tx:
            self._revoked, rows = _revoked(tx), replicas.every(tx)
        self._rows = {row.node: row.name for row in rows if row.node is not None}
        pinned = _pinned(rows, self._revoked)
        if released < declared:
            with self._committer.begin_shown() as tx:
                shown = _pinned(replicas.every(tx), _revoked(tx))
            pinned = {one: pinned[one] for one in pinned.keys() & shown.keys()}
        self._pinned = pinned
        self._version = version


def _pinned(rows: Sequence[Replica], revoked: frozenset[str]) -> dict[str, Pinned]:
    """Who is trusted by some rows, by fingerprint."""
    return {
        fingerprint: Pinned(row.name, row.node, expires)
        for row in rows
        for fingerprint, expires in row.certificates.items()
        if fingerprint not in revoked
    }


def _revoked(tx: Transaction) -> frozenset[str]:
    return frozenset(one.certificate for some in revocations.every(tx) for one in some)
