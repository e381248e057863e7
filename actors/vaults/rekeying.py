"""Makes the keys of vaults anew under another root key.

All of them are one commit: at no moment do some hang on one root key and some on another. It is
made some vaults at a time, with the others' turns in between, so what it read may have changed
until it is committed: then it is made again, and the last time at one go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from actors.vaults.service import Vaults
from protocol.doors import Rng
from storage import vaults
from storage.transactions import Transaction
from storage.vault_seals import unwrap_key, wipe, wrap_key
from storage.vaults import Vault

AT_ONCE: Final = 16
"""Vaults whose keys are made before others have their turn: each takes some 60 microseconds."""
ATTEMPTS: Final = 5
"""So often it is tried; the last time without giving others their turn."""


class Rekeying:
    """The work of the vaults actor on root keys."""

    def __init__(self, service: Vaults, rng: Rng) -> None:
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
        """Another key for each vault under a root key. The older ones stay, under the new root key,
        until their values are sealed again. Answers how many vaults there were.

        :param under: the vaults; None is a place for a pause alone
        :param paced: whether others have their turns meanwhile; the transaction has paused then
        :raises WrongKey: a key is not of that root key
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
            return False  # none has been needed so far
        domain = vaults.need_store_row(tx, self._random).domain
        wraps = {}
        for version, wrap in row.wraps.items():
            secret = unwrap_key(root, wrap, domain, vault.id, version)
            wraps[version] = wrap_key(fresh, secret, domain, vault.id, version, self._random)
            wipe(secret)
        row = self._service.next_key(tx, vault, replace(row, wraps=wraps), fresh)
        vaults.put_keys_row(tx, vault, row)
        return True
