"""Rekeying: replaces the keys of vaults, under another root key.

All vaults change in one commit, so they never hang on different root keys. The commit is built in
batches that yield the loop, so a concurrent commit may invalidate its read set. It is then built
again; the last attempt does not yield.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from actors.vaults.service import VaultService
from protocol.environment import Rng
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.cipher import unwrap_key, wipe, wrap_key
from storage.vaults.vaults import Vault

AT_ONCE: Final = 16
"""Vaults processed between two yields of the loop; each takes some 60 µs."""
ATTEMPTS: Final = 5
"""Maximum attempts; the last one does not yield."""


class Rekeying:
    """Replacement of root keys, for the vaults actor."""

    def __init__(self, service: VaultService, rng: Rng) -> None:
        self._service = service
        self._random = rng.bytes

    async def renew(
        self,
        tx: Transaction,
        under: Iterable[Vault | None],
        root: bytearray,
        fresh: bytearray,
        *,
        paced: bool,
    ) -> int:
        """Add a new key to each vault under a root key. Return the number of vaults.

        Older keys stay, wrapped by the new root key, until their values are re-encrypted.

        :param under: the vaults; None only gives a chance to yield the loop
        :param paced: True to yield the loop between batches; the transaction must have paused
        :raises WrongKey: a key is not wrapped by `root`
        """
        count = 0
        for number, vault in enumerate(under, start=1):
            count += vault is not None and self._renewed(tx, vault, root, fresh)
            if paced and not number % AT_ONCE:
                await asyncio.sleep(0)
        return count

    def _renewed(self, tx: Transaction, vault: Vault, root: bytearray, fresh: bytearray) -> bool:
        row = vaults.keys_row(tx, vault)
        if not row.current:
            return False  # it has no values yet, so no key
        domain = vaults.need_store_row(tx, self._random).domain
        wraps = {}
        for version, wrap in row.wraps.items():
            secret = unwrap_key(root, wrap, domain, vault.id, version)
            wraps[version] = wrap_key(fresh, secret, domain, vault.id, version, self._random)
            wipe(secret)
        row = self._service.next_key(tx, vault, replace(row, wraps=wraps), fresh)
        vaults.put_keys_row(tx, vault, row)
        return True
