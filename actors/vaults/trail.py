"""What is recorded of vaults: entries of their trails, beside the statement log.

An entry of what is done is part of its commit, or a commit that is waited for. One of what was
refused, or of what time brought, has a commit of its own that nobody waits for: a turn of the
loop gathers them. Of refusals of one kind, of one user, a few are kept however quickly they come.
Those behind them are counted, and an entry says of how many it is: one a second at most; one a
minute of those who may not, or who name what they can't see, so that nobody without a right can
push out what others have done. What somebody tried with a vault that it can't see waits until
something else is kept of that vault.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import structlog

from actors.commits import NODE, Committer
from actors.rate_limited_log import RateLimitedLog
from actors.runtime import Runtime
from actors.vaults.keyring import STORE, Keyring
from protocol.errors import NotAllowed, Refusal, Sealed, Unknown, WrongKey
from protocol.requests import Caller
from storage import vault_trail
from storage.engine import EngineUnreadable
from storage.transactions import Transaction
from storage.vault_entries import VaultEntry
from storage.vault_rows import KeysRow
from storage.vault_trail import GRANTED
from storage.vaults import Vault, keys_row, store_row

log = structlog.get_logger("vaults")

BURST: Final = 10
"""Refusals of one kind, of one user, that are kept at once."""
COUNTED_SECONDS: Final = 1.0
TURNED_AWAY_SECONDS: Final = 60.0
"""Of those behind them one entry for so long; the second of who may not."""
_TURNED_AWAY_US: Final = int(TURNED_AWAY_SECONDS * 1_000_000)
REMEMBERED: Final = 1_024
"""Kinds of which it is remembered how many came."""
HEADS_SECONDS: Final = 3600.0
"""Between two lines of where trails stand."""


TrailKey = tuple[int, bytes]
"""What entries are authenticated with: a version of a vault's key, and what is derived of it."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that somebody does, or is refused, with a vault or the store's passphrase."""

    action: str
    caller: Caller | None
    """None: the node itself."""
    vault: Vault | None
    """None: the store."""
    id: str | None = None
    version: int | None = None
    reason: str | None = None
    request: str = ""

    @property
    def trail(self) -> int:
        """The number of the trail that it belongs to."""
        return STORE if self.vault is None else self.vault.id


@dataclass(slots=True)
class _Unseen:
    """Of one kind of what somebody tried with a vault that it can't see."""

    act: Act
    """The last one."""
    held: int = 0
    told_us: int | None = None
    """When an entry last said how many there were, on the monotonic clock."""


@dataclass(slots=True)
class _Count:
    """Refusals of one kind, of one user."""

    left: float
    """That are kept at once yet."""
    since_us: int
    held: int = 0
    """That are counted and not told yet."""
    timer: asyncio.TimerHandle | None = None
    """Until the next entry."""


class Trail:
    """Makes the entries."""

    def __init__(self, runtime: Runtime, committer: Committer, keyring: Keyring) -> None:
        self._runtime = runtime
        self._committer = committer
        self._keyring = keyring
        self._counts: OrderedDict[tuple[object, ...], _Count] = OrderedDict()
        self._held: dict[tuple[object, ...], tuple[Act, str]] = {}
        """Of each kind that is counted the last one."""
        self._unseen: OrderedDict[tuple[object, ...], _Unseen] = OrderedDict()
        self._waiting: list[tuple[Act, str, int]] = []
        self._turn: asyncio.Handle | None = None
        self._moved: dict[int, str] = {}
        """Trails that have grown since their heads were last said, with their paths."""
        self.limited_log = RateLimitedLog("vaults")
        """For what could not be recorded."""

    def add(
        self, tx: Transaction, act: Act, digest: bytes | None = None, key: TrailKey | None = None
    ) -> int:
        """Put an entry of what is done by this transaction; its number.

        :param key: what it is authenticated with, if that is at hand
        """
        if self._unseen:
            self._release(act.trail)
        return self._append(tx, act, GRANTED, 0, digest, key)

    def add_to_both(self, tx: Transaction, act: Act) -> None:
        """What concerns a vault as a whole stands in the store's trail too, with the number of the
        vault: by that its own trail is found when it is no more."""
        self.add(tx, act)
        assert act.vault is not None, "the store's own trail is the other one"
        action = f"{act.action} {act.vault.path}"
        self.add(tx, replace(act, action=action, vault=None, version=act.vault.id))

    def refused(self, act: Act, refusal: Refusal) -> None:
        """Let the trail keep that something was refused."""
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
            count.timer = self._runtime.loop.call_later(seconds, self._tell, kind, count)

    def _tell(self, kind: tuple[object, ...], count: _Count) -> None:
        """Let an entry say how many were counted."""
        count.timer = None
        held, count.held = count.held, 0
        act, outcome = self._held.pop(kind)
        self._later(act, outcome, held - 1)

    def unseen(self, act: Act) -> None:
        """Let the trail keep that somebody named a vault that it can't see. Not before something
        else is kept there, or the heads are said: a commit of its own would tell, by the sequence
        that everybody is shown, that there is such a vault."""
        user = "" if act.caller is None else act.caller.user
        kind = (act.trail, user, act.action)
        found = self._unseen.get(kind)
        if found is None:
            if len(self._unseen) >= REMEMBERED:
                _, oldest = self._unseen.popitem(last=False)
                self._tell_unseen(oldest)
            found = self._unseen[kind] = _Unseen(act)
        self._unseen.move_to_end(kind)
        found.act, found.held = act, found.held + 1

    def _release(self, trail: int | None) -> None:
        """Tell what was unseen. :param trail: there, as often as it may be; None: all of it"""
        now_us = self._runtime.clock.monotonic_us()
        for found in self._unseen.values():
            rested = found.told_us is None or now_us - found.told_us >= _TURNED_AWAY_US
            if trail is None or (found.act.trail == trail and rested):
                found.told_us = now_us
                self._tell_unseen(found)

    def _tell_unseen(self, found: _Unseen) -> None:
        if found.held:
            held, found.held = found.held, 0
            self._later(found.act, Unknown.__name__, held - 1)

    def did(self, act: Act) -> None:
        """Let the trail keep what time has brought."""
        self._later(act, GRANTED, 0)

    def is_sound(self, tx: Transaction, vault: Vault | None, kept: vault_trail.Kept) -> bool:
        """Whether an entry's HMAC is right; that of one which can't be known now counts as such."""
        return not kept.mac or self.is_authentic(tx, vault, kept) is not False

    def is_authentic(
        self, tx: Transaction, vault: Vault | None, kept: vault_trail.Kept
    ) -> bool | None:
        """Whether an entry's HMAC is right; None: its key is gone, or nobody holds it now."""
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
        act: Act,
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
        """The key that entries are authenticated with, and its version."""
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
            return None  # nobody holds it, or it is not this vault's: who wants to use it is told

    def _later(self, act: Act, outcome: str, more: int) -> None:
        self._waiting.append((act, outcome, more))
        if self._turn is None:
            self._turn = self._runtime.loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._turn = None
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with self._committer.begin() as tx:
            tx.passes = True
            try:
                for act, outcome, more in waiting:
                    self._append(tx, act, outcome, more, None, None)
                ticket = self._committer.commit(tx, NODE, reason="the trails of vaults")
            except Refusal as refusal:
                self._committed(waiting, refusal)
                return
            except EngineUnreadable as error:
                self._runtime.noticed(type(self).__name__, error)
                self._committed(waiting, error)
                return
        self._committer.when_released(ticket, partial(self._committed, waiting))

    def _committed(self, entries: list[tuple[Act, str, int]], lost: BaseException | None) -> None:
        """Entries have had their commit. What they say stands in the node's own output where they
        had none, or it was taken back, as far as it is not too much: anybody may ask for a
        vault."""
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

    def _count(self, kind: tuple[object, ...]) -> _Count:
        now_us = self._runtime.clock.monotonic_us()
        count = self._counts.get(kind)
        if count is None:
            if len(self._counts) >= REMEMBERED:
                gone, oldest = self._counts.popitem(last=False)
                if oldest.timer is not None:
                    oldest.timer.cancel()
                    self._tell(gone, oldest)
            count = self._counts[kind] = _Count(BURST, now_us)
        self._counts.move_to_end(kind)
        gained = (now_us - count.since_us) / 1_000_000 / TURNED_AWAY_SECONDS
        count.left = min(BURST, count.left + gained)
        count.since_us = now_us
        return count

    # --- heads ------------------------------------------------------------------------------------

    def say_heads(self) -> None:
        """Say where trails stand that have grown, outside of the store: putting all of it back is
        noticed by these lines alone. Said is what is released: what may be rolled back yet would
        look put back later."""
        self._release(None)
        self._say_released()

    def _say_released(self) -> None:
        moved, self._moved = self._moved, {}
        with self._committer.begin_shown() as shown, self._committer.begin() as tx:
            for number, path in moved.items():
                try:
                    found, newest = vault_trail.head(shown, number), vault_trail.head(tx, number)
                except EngineUnreadable as error:
                    self._runtime.noticed(type(self).__name__, error)
                    self._moved.setdefault(number, path)
                    continue
                if found != newest:
                    self._moved.setdefault(number, path)  # the rest is said the next time
                if found.number:
                    log.info(
                        "head of a vault's trail",
                        vault=path,
                        number=number,
                        entries=found.number,
                        hash=found.hash.hex(),
                    )

    def close(self) -> None:
        """The node stops: what waits is committed now, and heads are said."""
        self._release(None)
        for kind, count in self._counts.items():
            if count.timer is not None:
                count.timer.cancel()
                self._tell(kind, count)
        if self._turn is not None:
            self._turn.cancel()
        self._commit()
        self.limited_log.close()
        newest = self._committer.ticket(self._committer.committed)
        self._committer.when_released(newest, lambda _: self._say_released())


def with_version(act: Act, version: int | None) -> Act:
    """The same act, of a version that is known now."""
    return replace(act, version=version)
