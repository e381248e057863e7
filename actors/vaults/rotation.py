"""Key rotation: re-encrypts values under the newest key, in slices, while their vault is unsealed.

The state lists the values of each older key (`storage/vaults/rows.py`), so no progress has to be
kept: after a crash or at the next unseal, rotation continues with the rest. The commit that deletes
a key has read that no value uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from pykka import ActorRef

from actors.commits.committer import NODE
from actors.runtime import REST_SECONDS, tell
from actors.vaults.keyring import Keyring, root_of
from actors.vaults.parts import VaultParts
from actors.vaults.service import VaultService
from actors.vaults.trail import VaultAct
from protocol import limits
from protocol.errors import Refusal, WrongKey
from storage.engine.engine import EngineUnreadable
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.cipher import open_sealed, seal
from storage.vaults.rows import KeysRow, StoreRow
from storage.vaults.vaults import Vault

log = structlog.get_logger("vaults")

AT_ONCE: Final = 64
"""Maximum values re-encrypted in one commit."""
AT_ONCE_BYTES: Final = 256 * limits.KIB
"""Bytes of re-encrypted values after which a commit ends."""
LATER_SECONDS: Final = 5.0
"""Delay, in seconds, after a refusal: the disk is full, or the node takes no writes."""


@dataclass(frozen=True, slots=True)
class SealAgain:
    """Message of the vaults actor to itself: values may have to be re-encrypted."""


class Rotation:
    """Rotation of keys, for the vaults actor."""

    def __init__(
        self,
        parts: VaultParts,
        keyring: Keyring,
        service: VaultService,
        actor: ActorRef[Any],
        after: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._committer = parts.committer
        self._report_error = parts.runtime.report_error
        self._rights = parts.rights
        self._keyring = keyring
        self._service = service
        self._random = parts.rng.bytes
        self._actor = actor
        self._after = after
        self._pass_requested = False
        """True if another pass is requested, by a message on its way or from the current run."""
        self._runs = False
        self._rests = False
        """True if a retry after unreadable data is scheduled."""

    def wake(self) -> None:
        """Request a pass."""
        if not self._pass_requested:
            self._pass_requested = True
            tell(self._actor, SealAgain())

    async def run(self) -> None:
        """Run passes until none is requested."""
        if self._runs:
            return  # the current run makes another pass, as `_pass_requested` is set
        self._runs = True
        try:
            while self._pass_requested:
                self._pass_requested = False
                await self._all()
        except Refusal as refusal:
            log.info("values could not be sealed with the new key yet", why=refusal.code)
            self._after(LATER_SECONDS, self.wake)
        except EngineUnreadable as error:
            self._leave(error)
        finally:
            self._runs = self._pass_requested = (
                False  # after an error the retry covers pending wake-ups
            )

    def _leave(self, error: EngineUnreadable) -> None:
        """Schedule a retry for unreadable data."""
        self._report_error(type(self).__name__, error)
        if not self._rests:
            self._rests = True
            self._after(REST_SECONDS, self._rested)

    def _rested(self) -> None:
        self._rests = False
        self.wake()

    async def _all(self) -> None:
        waiting: list[Vault] = []
        with self._committer.begin_transaction() as tx:
            tx.pause()
            for number, vault in enumerate(self._rights.every_vault(tx), start=1):
                if vault is not None and self._is_open(vault) and _may_wait(tx, vault):
                    waiting.append(vault)
                if not number % AT_ONCE:
                    await asyncio.sleep(0)
        for vault in waiting:
            try:
                while await self._slice(vault):
                    await asyncio.sleep(0)
            except WrongKey as refusal:
                # The older key stays, and with it the values that it has sealed.
                log.error("a value can't be decrypted, so its key is kept", vault=vault.path)
                self._service.trail.refused(VaultAct("rotate", None, vault), refusal)
            except EngineUnreadable as error:
                self._leave(error)  # go on with the next vaults

    def _is_open(self, vault: Vault) -> bool:
        return self._keyring.until_us(root_of(vault)) is not None

    async def _slice(self, vault: Vault) -> bool:
        """Re-encrypt some values, or delete a key without values. Return False if there is nothing
        left to do, or the vault is sealed."""
        committer = self._committer
        with committer.begin_transaction() as tx:
            tx.ignores_locks = True
            row, store = vaults.keys_row(tx, vault), vaults.store_row(tx)
            if not row.older or store is None or not self._is_open(vault):
                return False
            old = row.older[0]
            if not self._seal_some(tx, vault, row, store, old):
                self._drop_key(tx, vault, row, old)
            ticket = committer.commit(tx, NODE, reason=f"rotation of vault {vault.path}")
        await committer.released(ticket)
        return True

    def _seal_some(
        self, tx: Transaction, vault: Vault, row: KeysRow, store: StoreRow, old: int
    ) -> bool:
        left = vaults.values_to_reseal(tx, vault, old, AT_ONCE)
        newest = self._keyring.key(vault, row, row.current)
        older = self._keyring.key(vault, row, old)
        done = 0
        for one in left:
            before = vaults.find_value(tx, vault, one.id, one.version)
            if before is None or before.key_version != old:
                raise WrongKey("a value sealed with the old key is missing")
            spot = vaults.spot(store, vault, one.id, one.version)
            plain = open_sealed(older.cipher, spot, old, before.sealed)
            made = seal(newest.cipher, spot, row.current, plain, self._random)
            after = before._replace(key_version=row.current, sealed=made)
            vaults.seal_again(tx, vault, one, before, after)
            done += len(made)
            if done >= AT_ONCE_BYTES:
                break
        return bool(left)

    def _drop_key(self, tx: Transaction, vault: Vault, row: KeysRow, old: int) -> None:
        wraps = {version: wrap for version, wrap in row.wraps.items() if version != old}
        row = KeysRow(row.current, wraps, row.root, row.began)
        vaults.put_keys_row(tx, vault, row)
        vaults.note_removed(tx, vault)
        self._service.trail.add(tx, VaultAct("rotated", None, vault, version=old))
        self._keyring.forget(vault, old)


def _may_wait(tx: Transaction, vault: Vault) -> bool:
    """True if a vault has older keys, or its keys can't be read, which its slice then reports."""
    try:
        return bool(vaults.keys_row(tx, vault).older)
    except EngineUnreadable:
        return True
