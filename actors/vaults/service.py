"""Vault service: writes of the statements on vaults. A value is encrypted before it is written.
Reads go through `reveals.py`, which records each of them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from actors.commits.committer import Committer
from actors.runtime import Runtime
from actors.vaults.keyring import STORE, Keyring, VaultKey, changed, root_of, sealed
from actors.vaults.trail import Trail, VaultAct, with_version
from protocol import limits
from protocol.binary import pack
from protocol.environment import Rng
from protocol.errors import BadRequest, TooLarge, TypeRefused, WrongKey
from protocol.values import NONE, Value, check, instant
from protocol.vaults import SealState
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.cipher import (  # fmt: skip
    SALT_BYTES,
    Argon2Parameters,
    new_key,
    seal,
    wipe,
    wrap_key,
    wrap_root,
)
from storage.vaults.rows import KeysRow, ValueRow
from storage.vaults.vaults import Vault

if TYPE_CHECKING:
    from actors.vaults.reveals import Reveals

SET_US: Final = 1_000_000
"""Difference, in µs, above which the wall clock was set; reads alone differ by less."""
Condition = Literal["ABSENT"] | int | None
"""Condition of a write (compare-and-swap): absent record, or its version; None: always."""


class WriteResult(NamedTuple):
    """Result of a write."""

    written: bool
    version: int
    """Version of the record after the write; if nothing was written, the existing one, or 0 if
    absent."""
    rotates: bool = False
    """True if values of an older key remain to be re-encrypted."""


class VaultService:
    """Interface from statements to sealed values. On the loop only.

    :ivar wake: called when values have to be re-encrypted
    :ivar leads_no_more: called when this node stops leading
    """

    def __init__(
        self,
        runtime: Runtime,
        committer: Committer,
        keyring: Keyring,
        trail: Trail,
        reveals: Reveals,
        rng: Rng,
        stretch: Argon2Parameters,
    ) -> None:
        self._clock = runtime.clock
        self._committer = committer
        self._keyring = keyring
        self.trail = trail
        self.reveals = reveals
        self._random = rng.bytes
        self.stretch = stretch
        """Key derivation parameters of new passphrases."""
        self.wake: Callable[[], None] = lambda: None
        self.leads_no_more: Callable[[], None] = lambda: None
        committer.on_lead_lost.append(lambda: self.leads_no_more())
        # A vault whose drop is rolled back, for example, still has older keys.
        committer.on_roll_back.append(lambda: self.wake())
        self._ahead_us = runtime.clock.wall_us() - runtime.clock.monotonic_us()
        """Offset of the wall clock to the monotonic clock, in µs. Two reads never have exactly the
        same offset, so it is kept until the wall clock is set."""

    # --- seals ------------------------------------------------------------------------------------

    def state(self, vault: Vault | None) -> SealState:
        """Return the seal state of a vault, or of the store."""
        until_us = self._keyring.until_us(STORE if vault is None else root_of(vault))
        return SealState(until_us is None, None if until_us is None else self.at_wall(until_us))

    def at_wall(self, until_us: int) -> datetime:
        """Convert a monotonic time to the wall clock; the result is stable unless the wall clock is
        set."""
        ahead_us = self._clock.wall_us() - self._clock.monotonic_us()
        if abs(ahead_us - self._ahead_us) >= SET_US:
            self._ahead_us = ahead_us
        return instant(until_us + self._ahead_us)

    def dropped(self, vault: Vault) -> None:
        """Wipe the keys of a dropped vault."""
        self._keyring.forget_all(vault)

    def new_salt(self) -> bytes:
        """Return a new salt for a passphrase."""
        return self._random(SALT_BYTES)

    def give_root(self, tx: Transaction, vault: Vault, wrapping: bytearray, salt: bytes) -> None:
        """Give a newly declared vault its own root key, which stays sealed.

        :param wrapping: wrapping key of its passphrase; it is wiped
        """
        domain = vaults.need_store_row(tx, self._random).domain
        root = new_key(self._random)
        wrap = wrap_root(wrapping, root, domain, vault.id, salt, self.stretch, self._random)
        vaults.put_keys_row(tx, vault, KeysRow(root=wrap))
        for key in (root, wrapping):
            wipe(key)

    # --- writing ----------------------------------------------------------------------------------

    def write(
        self, tx: Transaction, vault: Vault, act: VaultAct, value: Value, condition: Condition
    ) -> WriteResult:
        """Write the next version of a record. :raises Sealed, WrongKey, TooLarge, TypeRefused:"""
        id = vaults.check_id(act.id)
        if value is NONE:
            raise TypeRefused("the value of a record in a vault cannot be NONE: use ERASE")
        check(value)
        plain = pack(value)
        if len(plain) > limits.VAULT_VALUE_BYTES:
            raise TooLarge(
                f"a value of a vault has at most {limits.VAULT_VALUE_BYTES} bytes",
                limit=limits.VAULT_VALUE_BYTES,
                size=len(plain),
            )
        self._keyring.check_open(vault)
        present = vaults.find_record(tx, vault, id)
        last = 0 if present is None else present.last
        if condition is not None and last != (0 if condition == "ABSENT" else condition):
            self.trail.add(tx, replace(act, action="write withheld", version=last))
            return WriteResult(False, last)
        keys = self._writing_keys(tx, vault)
        version = vaults.next_version(tx, vault, id, present)
        key = self._sealing_key(vault, keys)
        spot = vaults.spot(vaults.need_store_row(tx, self._random), vault, id, version)
        made = seal(key.cipher, spot, keys.current, plain, self._random)
        entry = self.trail.add(
            tx, with_version(act, version), sha256(made).digest(), (keys.current, key.trail)
        )
        row = ValueRow(keys.current, tx.now_us, entry, made)
        vaults.put_value(tx, vault, id, present, version, row)
        return WriteResult(True, version, bool(keys.older))

    def _writing_keys(self, tx: Transaction, vault: Vault) -> KeysRow:
        """Return the keys of a vault, the current one usable. A new key is made for the first
        value, and when the current one has sealed its maximum number of values."""
        row = vaults.keys_row(tx, vault)
        if row.current:
            sealed_so_far = vaults.approximate_sealed(tx, vault)
            if sealed_so_far - row.began < limits.VAULT_KEY_SEALS:
                return row
            self.trail.add(tx, VaultAct("rotate", None, vault, version=row.current + 1))
        return self.with_next_key(tx, vault, row)

    def _sealing_key(self, vault: Vault, keys: KeysRow) -> VaultKey:
        """Return the key that seals the next value.

        :raises Sealed, WrongKey: as the keyring
        :raises Conflict: the keys were replaced, under another root key, since the transaction
            began
        """
        try:
            return self._keyring.key(vault, keys, keys.current)
        except WrongKey:
            with self._committer.begin_transaction() as tx:
                if vaults.keys_row(tx, vault).wraps.get(keys.current) != keys.wraps[keys.current]:
                    raise changed(vault) from None
            raise

    def with_next_key(self, tx: Transaction, vault: Vault, row: KeysRow) -> KeysRow:
        """Add a new current key to a vault, and store its keys. :raises Sealed:"""
        root = self._keyring.root(root_of(vault))
        if root is None:
            raise sealed(vault)
        row = self.next_key(tx, vault, row, root)
        vaults.put_keys_row(tx, vault, row)
        return row

    def next_key(self, tx: Transaction, vault: Vault, row: KeysRow, root: bytearray) -> KeysRow:
        """Return the keys of a vault with a new current one under a given root key; nothing is
        stored."""
        version = row.current + 1
        domain = vaults.need_store_row(tx, self._random).domain
        secret = new_key(self._random)
        wrap = wrap_key(root, secret, domain, vault.id, version, self._random)
        wipe(secret)
        began = vaults.approximate_sealed(tx, vault)
        return replace(row, current=version, wraps={**row.wraps, version: wrap}, began=began)

    def erase(self, tx: Transaction, vault: Vault, act: VaultAct) -> bool:
        """Delete a record. Return True if there was one. No key is needed, so it works on a sealed
        vault."""
        id = vaults.check_id(act.id)
        present = vaults.find_record(tx, vault, id)
        if present is None:
            self.trail.add(tx, replace(act, action="erase nothing"))
            return False
        vaults.erase(tx, vault, id, present)
        self.trail.add(tx, with_version(act, present.last))
        return True

    def rotate(self, tx: Transaction, vault: Vault, act: VaultAct) -> int:
        """Make a new key, and return its version. Values are re-encrypted after the response.

        :raises Sealed:
        """
        row = self.with_next_key(tx, vault, vaults.keys_row(tx, vault))
        self.trail.add(tx, with_version(act, row.current))
        return row.current


def condition_of(absent: bool, expected: object) -> Condition:
    """Return the condition of a write. :raises TypeRefused, BadRequest:"""
    if absent:
        return "ABSENT"
    if expected is None:
        return None
    if isinstance(expected, bool) or not isinstance(expected, int):
        raise TypeRefused("EXPECT VERSION takes a whole number")
    if expected < 0:
        raise BadRequest("EXPECT VERSION takes 0 or more; 0 means that the record must not exist")
    return expected
