"""Vault trails: hash-chained audit entries of vaults, beside the statement log.

The entry of an act is in the act's own commit, or in a commit that the act waits for. Entries of
refusals and timers get commits of their own, which no request waits for; one loop iteration gathers
them.

Refusals of one kind and user are limited. A burst of a few is kept; later ones are counted, and one
entry reports the count. There is at most one such entry a second, or one a minute for callers
without the privilege or sight of the vault. So an unprivileged client can't displace the entries of
others. Attempts on a vault that the caller can't see wait until another entry of that vault is
made.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from actors.commits.committer import NODE, Committer
from actors.rate_limited_log import RateLimitedLog
from actors.runtime import Runtime
from actors.vaults.keyring import STORE, Keyring
from protocol.errors import NotAllowed, Refusal, Sealed, Unknown, WrongKey
from protocol.requests import Caller
from storage.engine.engine import EngineUnreadable
from storage.formats.entries import VaultEntry
from storage.txn.transaction import Transaction
from storage.vaults import trail as vault_trail
from storage.vaults.rows import KeysRow
from storage.vaults.trail import GRANTED
from storage.vaults.vaults import Vault, keys_row, store_row

log = structlog.get_logger("vaults")

BURST: Final = 10
"""Refusals of one kind and user that are kept in a burst."""
COUNTED_SECONDS: Final = 1.0
TURNED_AWAY_SECONDS: Final = 60.0
"""Intervals of entries that report counted refusals; this one for callers without privilege."""
_TURNED_AWAY_US: Final = int(TURNED_AWAY_SECONDS * 1_000_000)
REMEMBERED: Final = 1_024
"""Number of refusal kinds that are counted."""
HEADS_SECONDS: Final = 3600.0
"""Interval, in seconds, between log lines of the trails' heads."""


TrailKey = tuple[int, bytes]
"""Key that authenticates entries: version of the vault's key, and the HMAC key derived from it."""


@dataclass(frozen=True, slots=True)
class VaultAct:
    """Action on a vault or the store's passphrase, done or refused."""

    action: str
    caller: Caller | None
    """Acting caller; None: the node itself."""
    vault: Vault | None
    """Vault; None: the store."""
    id: str | None = None
    version: int | None = None
    reason: str | None = None
    request: str = ""

    @property
    def trail(self) -> int:
        """Number of the trail that records it."""
        return STORE if self.vault is None else self.vault.id


@dataclass(slots=True)
class _Unseen:
    """Attempts of one kind and user on a vault that the user can't see."""

    act: VaultAct
    """The last attempt."""
    held: int = 0
    told_us: int | None = None
    """Monotonic time, in µs, of the last entry that reported the count."""


@dataclass(slots=True)
class _RefusalBucket:
    """Token bucket of refusals of one kind and user."""

    left: float
    """Tokens: refusals that are still kept one by one."""
    since_us: int
    held: int = 0
    """Refusals counted and not reported yet."""
    timer: asyncio.TimerHandle | None = None
    """Timer of the entry that reports the count."""


class Trail:
    """Maker and verifier of trail entries."""

    def __init__(self, runtime: Runtime, committer: Committer, keyring: Keyring) -> None:
        self._runtime = runtime
        self._committer = committer
        self._keyring = keyring
        self._counts: OrderedDict[tuple[object, ...], _RefusalBucket] = OrderedDict()
        self._held: dict[tuple[object, ...], tuple[VaultAct, str]] = {}
        """Last counted refusal of each kind."""
        self._unseen: OrderedDict[tuple[object, ...], _Unseen] = OrderedDict()
        self._waiting: list[tuple[VaultAct, str, int]] = []
        self._turn: asyncio.Handle | None = None
        self._moved: dict[int, str] = {}
        """Trails with new entries since their heads were last logged, and their paths."""
        self.limited_log = RateLimitedLog("vaults")
        """Log for entries that could not be recorded."""

    def add(
        self,
        tx: Transaction,
        act: VaultAct,
        digest: bytes | None = None,
        key: TrailKey | None = None,
    ) -> int:
        """Append an entry of an act of this transaction. Return its number.

        :param key: key that authenticates it, if at hand
        """
        if self._unseen:
            self._release(act.trail)
        return self._append(tx, act, GRANTED, 0, digest, key)

    def add_to_both(self, tx: Transaction, act: VaultAct) -> None:
        """Append an entry to a vault's trail and to the store's.

        The latter has the vault's number: it leads to the vault's trail once the vault is dropped.
        """
        self.add(tx, act)
        assert act.vault is not None, "the store's own trail is the other one"
        action = f"{act.action} {act.vault.path}"
        self.add(tx, replace(act, action=action, vault=None, version=act.vault.id))

    def refused(self, act: VaultAct, refusal: Refusal) -> None:
        """Record a refusal, or count it."""
        user = "" if act.caller is None else act.caller.user
        kind = (act.trail, user, act.action, refusal.code)
        count = self._count(kind)
        if count.timer is None and count.left >= 1:
            count.left -= 1
            self._later(act, refusal.code, 0)
            return
        count.held += 1
        self._held[kind] = (act, refusal.code)
        if count.timer is None:
            turned_away = isinstance(refusal, NotAllowed)
            seconds = TURNED_AWAY_SECONDS if turned_away else COUNTED_SECONDS
            count.timer = self._runtime.loop.call_later(seconds, self._report_counted, kind, count)

    def _report_counted(self, kind: tuple[object, ...], count: _RefusalBucket) -> None:
        """Queue the entry that reports counted refusals."""
        count.timer = None
        held, count.held = count.held, 0
        act, outcome = self._held.pop(kind)
        self._later(act, outcome, held - 1)

    def unseen(self, act: VaultAct) -> None:
        """Record an attempt on a vault that the caller can't see, with the next other entry of that
        vault.

        Heads that are logged release it too. A commit of its own would reveal, by the sequence that
        every client is shown, that there is such a vault.
        """
        user = "" if act.caller is None else act.caller.user
        kind = (act.trail, user, act.action)
        found = self._unseen.get(kind)
        if found is None:
            if len(self._unseen) >= REMEMBERED:
                _, oldest = self._unseen.popitem(last=False)
                self._report_unseen(oldest)
            found = self._unseen[kind] = _Unseen(act)
        self._unseen.move_to_end(kind)
        found.act, found.held = act, found.held + 1

    def _release(self, trail: int | None) -> None:
        """Queue entries of attempts on hidden vaults.

        :param trail: trail of the vault, at most one entry a minute; None: all trails, at once
        """
        now_us = self._runtime.clock.monotonic_us()
        for found in self._unseen.values():
            rested = found.told_us is None or now_us - found.told_us >= _TURNED_AWAY_US
            if trail is None or (found.act.trail == trail and rested):
                found.told_us = now_us
                self._report_unseen(found)

    def _report_unseen(self, found: _Unseen) -> None:
        if found.held:
            held, found.held = found.held, 0
            self._later(found.act, Unknown.__name__, held - 1)

    def did(self, act: VaultAct) -> None:
        """Record an act of a timer."""
        self._later(act, GRANTED, 0)

    def is_sound(self, tx: Transaction, vault: Vault | None, kept: vault_trail.TrailEntry) -> bool:
        """True unless an entry's HMAC is known to be invalid."""
        return not kept.mac or self.is_authentic(tx, vault, kept) is not False

    def is_authentic(
        self, tx: Transaction, vault: Vault | None, kept: vault_trail.TrailEntry
    ) -> bool | None:
        """Verify an entry's HMAC. None: its key is deleted or sealed."""
        version = kept.entry.key_version
        if vault is None:
            store = store_row(tx)
            is_of_root = store is not None and store.generation == version
            key = self._keyring.store_trail() if is_of_root else None
        else:
            key = self._key(tx, vault, keys_row(tx, vault), version)
        return None if key is None else vault_trail.is_authentic(kept, key)

    # --- entries ----------------------------------------------------------------------------------

    def _append(
        self,
        tx: Transaction,
        act: VaultAct,
        outcome: str,
        more: int,
        digest: bytes | None,
        key: TrailKey | None,
    ) -> int:
        vault, caller = act.vault, act.caller
        version, secret = self._newest(tx, vault) if key is None else key
        entry = VaultEntry(
            tx.now_us,
            NODE.user if caller is None else caller.user,
            "" if caller is None else caller.role,
            NODE.surface if caller is None else caller.surface,
            "" if caller is None else caller.address,
            act.action,
            "" if vault is None else vault.path,
            outcome,
            act.id,
            act.version,
            act.reason,
            act.request,
            more,
            digest,
            0 if secret is None else version,
        )
        self._moved[act.trail] = entry.vault
        return vault_trail.append(tx, act.trail, entry, secret)

    def _newest(self, tx: Transaction, vault: Vault | None) -> tuple[int, bytes | None]:
        """Return the key version and the HMAC key for new entries."""
        if vault is None:
            store = store_row(tx)
            return 0 if store is None else store.generation, self._keyring.store_trail()
        row = keys_row(tx, vault)
        return row.current, self._key(tx, vault, row, row.current)

    def _key(self, tx: Transaction, vault: Vault, row: KeysRow, version: int) -> bytes | None:
        if version not in row.wraps:
            return None
        try:
            return self._keyring.key(vault, row, version).trail
        except (Sealed, WrongKey):
            return None  # sealed, or not this vault's key: its next use reports that

    def _later(self, act: VaultAct, outcome: str, more: int) -> None:
        self._waiting.append((act, outcome, more))
        if self._turn is None:
            self._turn = self._runtime.loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._turn = None
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with self._committer.begin_transaction() as tx:
            tx.ignores_locks = True
            try:
                for act, outcome, more in waiting:
                    self._append(tx, act, outcome, more, None, None)
                ticket = self._committer.commit(tx, NODE, reason="the trails of vaults")
            except Refusal as refusal:
                self._committed(waiting, refusal)
                return
            except EngineUnreadable as error:
                self._runtime.report_error(type(self).__name__, error)
                self._committed(waiting, error)
                return
        self._committer.when_released(ticket, partial(self._committed, waiting))

    def _committed(
        self, entries: list[tuple[VaultAct, str, int]], lost: BaseException | None
    ) -> None:
        """Handle the end of the entries' commit. Lost entries are logged instead, rate-limited,
        since any client can cause them."""
        if lost is None:
            return
        for act, outcome, _ in entries:
            self.limited_log.warning(
                "an entry of a vault's trail was not kept",
                action=act.action,
                outcome=outcome,
                vault="" if act.vault is None else act.vault.path,
                user="" if act.caller is None else act.caller.user,
                why=lost.code if isinstance(lost, Refusal) else str(lost),
            )

    def _count(self, kind: tuple[object, ...]) -> _RefusalBucket:
        now_us = self._runtime.clock.monotonic_us()
        count = self._counts.get(kind)
        if count is None:
            if len(self._counts) >= REMEMBERED:
                gone, oldest = self._counts.popitem(last=False)
                if oldest.timer is not None:
                    oldest.timer.cancel()
                    self._report_counted(gone, oldest)
            count = self._counts[kind] = _RefusalBucket(BURST, now_us)
        self._counts.move_to_end(kind)
        gained = (now_us - count.since_us) / 1_000_000 / TURNED_AWAY_SECONDS
        count.left = min(BURST, count.left + gained)
        count.since_us = now_us
        return count

    # --- heads ------------------------------------------------------------------------------------

    def log_heads(self) -> None:
        """Log the heads of trails that have grown.

        Only these lines, outside of the store, reveal that the whole store was set back. Only
        released heads are logged: one that is rolled back later would look like tampering.
        """
        self._release(None)
        self._say_released()

    def _say_released(self) -> None:
        moved, self._moved = self._moved, {}
        with (
            self._committer.begin_released_read() as shown,
            self._committer.begin_transaction() as tx,
        ):
            for number, path in moved.items():
                try:
                    found, newest = vault_trail.head(shown, number), vault_trail.head(tx, number)
                except EngineUnreadable as error:
                    self._runtime.report_error(type(self).__name__, error)
                    self._moved.setdefault(number, path)
                    continue
                if found != newest:
                    self._moved.setdefault(number, path)  # log the unreleased rest next time
                if found.number:
                    log.info(
                        "head of a vault's trail",
                        vault=path,
                        number=number,
                        entries=found.number,
                        hash=found.hash.hex(),
                    )

    def close(self) -> None:
        """Commit the waiting entries and log the heads: the node stops."""
        self._release(None)
        for kind, count in self._counts.items():
            if count.timer is not None:
                count.timer.cancel()
                self._report_counted(kind, count)
        if self._turn is not None:
            self._turn.cancel()
        self._commit()
        self.limited_log.close()
        newest = self._committer.ticket(self._committer.committed)
        self._committer.when_released(newest, lambda _: self._say_released())


def with_version(act: VaultAct, version: int | None) -> VaultAct:
    """Return an act with its version."""
    return replace(act, version=version)
