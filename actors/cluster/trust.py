"""Trust in peer certificates, from the replica rows and the revocations.

A certificate is trusted if a row of the cluster names it and it is not revoked.
The trusted set is rebuilt from the rows after each change of declarations, and holders of links are
notified: links trusted by a dropped row end at once. A new row gives trust once its commit is
released.

A joining node, whose rows are missing or older than its token, trusts the certificate in the token
by its fingerprint, unless it knows of a revocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from actors.commits import Committer, FellBehind, TailFollower
from actors.runtime import Runtime
from protocol.values import instant
from storage.catalog import join_tokens, replicas
from storage.catalog.replicas import Replica
from storage.engine.engine import EngineUnreadable
from storage.txn.transaction import Transaction

AGAIN_SECONDS: Final = 5.0
"""Delay before link holders are notified again, after the declarations could not be read (s)."""


class Pinned(NamedTuple):
    """Owner of a trusted certificate."""

    row: str
    """Name of the row."""
    node: str | None
    """Id of its node; None: no node has shown the certificate yet."""
    expires: datetime | None
    """Expiry date, if known here."""


class Trust:
    """On the loop only.

    :param store: id of the store
    """

    def __init__(self, runtime: Runtime, committer: Committer, store: str) -> None:
        self._runtime = runtime
        self._committer = committer
        self._store = store
        self._version = (0, -1, -1)
        """Version of the declarations that were read last, and up to which sequence they were
        released."""
        self._notified_version = (0, -1)
        """Version of the last notification."""
        self._pinned: dict[str, Pinned] = {}
        self._rows: dict[str, str] = {}
        """Names of rows by node id."""
        self._revoked: frozenset[str] = frozenset()
        self._follower: TailFollower | None = None
        self._look: asyncio.Handle | None = None
        self._unread: tuple[int, int] | None = None
        """Version of the declarations for which some holders of links could not be notified."""
        self._again: asyncio.Handle | None = None
        self.on_change: list[Callable[[], None]] = []
        """Called when a declaration has changed, perhaps one of the cluster."""

    # --- what is asked ----------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """Time for checking the validity of certificates."""
        return instant(self._runtime.clock.wall_us())

    def of(self, fingerprint: str) -> Pinned | None:
        """Return the owner of a certificate; None: it is not trusted."""
        self._refresh()
        return self._pinned.get(fingerprint)

    def is_revoked(self, fingerprint: str) -> bool:
        """True if a certificate is revoked, whatever else names it."""
        self._refresh()
        return fingerprint in self._revoked

    def pins_of(self, node: str) -> frozenset[str]:
        """Return the trusted certificates of a node; empty: it has no row, or none in it."""
        self._refresh()
        return frozenset(one for one, pinned in self._pinned.items() if pinned.node == node)

    def row_of(self, node: str) -> str | None:
        """Return the name of a node's row, whatever its certificate."""
        self._refresh()
        return self._rows.get(node)

    def admits_unknown(self) -> bool:
        """True if an unknown node may connect: a join token is usable, or its use is not released
        yet. A node that has used it may come again."""
        with self._committer.begin_transaction() as tx:
            usable = join_tokens.any_usable(tx, self._store)
        # If no declaration is pending, the released state says the same.
        if usable or self._committer.ledger.state.catalog_version <= self._committer.commit_index:
            return usable
        with self._committer.begin_released_read() as tx:
            return join_tokens.any_usable(tx, self._store)

    # --- what changes -----------------------------------------------------------------------------

    def start_notifying(self) -> None:
        """Call `on_change` at each change from now on, until `close`."""
        self._notified_version = self._declared
        self._follow()

    def close(self) -> None:
        """Stop the notifications."""
        if self._follower is not None:
            self._follower.leave()
            self._follower = None
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._forget_unread()

    def _follow(self) -> None:
        tail = self._committer.tail
        self._follower = tail.follow(tail.commit_index, self._wake)
        self._drain(self._follower)

    def _wake(self) -> None:
        """Schedule a check in a loop iteration of its own: this is called in the middle of a
        release."""
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._on_checked)

    def _on_checked(self) -> None:
        self._look = None
        if self._follower is None:
            return
        self._drain(self._follower)
        # Compare with the last notification, not with the last read: `_refresh` may have read
        # the change between its commit and its release.
        if (version := self._declared) not in (self._notified_version, self._unread):
            self._notify_holders(version)

    def _notify_holders(self, version: tuple[int, int]) -> None:
        self._forget_unread()
        for changed in self.on_change:
            try:
                changed()
            except EngineUnreadable as error:
                self._runtime.report_error(type(self).__name__, error)
                self._unread = version
        if self._unread is None:
            self._notified_version = version
        else:  # links without trust may still be open: notify all again soon
            self._again = self._runtime.loop.call_later(AGAIN_SECONDS, self._notify_again)

    def _notify_again(self) -> None:
        self._notify_holders(self._declared)

    def _forget_unread(self) -> None:
        self._unread = None
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _drain(self, follower: TailFollower) -> None:
        """Read the tail to its end; only the fact of news matters."""
        try:
            while follower.take(1 << 62):
                pass
        except FellBehind:
            self._follow()

    @property
    def _declared(self) -> tuple[int, int]:
        """Version of all declarations. Includes the generation, because a rolled-back sequence is
        reused."""
        return self._committer.generation, self._committer.ledger.state.catalog_version

    def _refresh(self) -> None:
        """Read the declarations, if they have changed. An unreleased commit revokes trust at once,
        but gives none: it may be rolled back."""
        generation, declared = self._declared
        # Part of the version: a release changes the result without a new declaration.
        released = min(declared, self._committer.commit_index)
        if self._version == (version := (generation, declared, released)):
            return
        with self._committer.begin_transaction() as tx:
            self._revoked, rows = _revoked(tx), replicas.every(tx)
        self._rows = {row.node: row.name for row in rows if row.node is not None}
        pinned = _pinned(rows, self._revoked)
        if released < declared:
            with self._committer.begin_released_read() as tx:
                shown = _pinned(replicas.every(tx), _revoked(tx))
            pinned = {one: pinned[one] for one in pinned.keys() & shown.keys()}
        self._pinned = pinned
        self._version = version


def _pinned(rows: Sequence[Replica], revoked: frozenset[str]) -> dict[str, Pinned]:
    """Return the trusted certificates of the given rows, by fingerprint."""
    return {
        fingerprint: Pinned(row.name, row.node, expires)
        for row in rows
        for fingerprint, expires in row.certificates.items()
        if fingerprint not in revoked
    }


def _revoked(tx: Transaction) -> frozenset[str]:
    return frozenset(one.certificate for some in replicas.each_revocation(tx) for one in some)
