"""Keyring: plain keys of unsealed vaults. No other module holds one beyond a call.

An unseal has a fixed end on the monotonic clock, which use does not prolong. Each use checks the
clock, so a late timer never leaves a key usable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.environment import Clock
from protocol.errors import Conflict, Sealed, WrongKey
from storage.vaults.cipher import Cipher, trail_key, unwrap_key, wipe
from storage.vaults.rows import KeysRow
from storage.vaults.trail import TrailEntry
from storage.vaults.vaults import Vault

STORE: Final = 0
"""In place of a vault's number: everything under the store's passphrase."""


PROVEN: Final = 4_096
"""Capacity of the cache of verified entries, some 5 MiB."""


class Proven(NamedTuple):
    """Trail entry whose HMAC was verified."""

    raw: bytes
    """Its bytes: only identical bytes are the same entry."""
    kept: TrailEntry
    wrap: bytes
    """Wrapped key that sealed the entry's value, as `VaultKey.wrap`."""


class VaultKey:
    """Version of a vault's key."""

    __slots__ = ("cipher", "secret", "trail", "wrap")

    def __init__(self, secret: bytearray, wrap: bytes, domain: bytes, vault: int) -> None:
        self.secret = secret
        self.wrap = wrap
        """Wrapped form of the key; another one means another key."""
        self.cipher = Cipher(secret)
        self.trail = trail_key(secret, domain, vault)


@dataclass(slots=True)
class _UnsealedKeys:
    domain: bytes
    roots: list[bytearray] = field(repr=False)
    """Root keys, newest first. More than one while a commit that replaces the root key is
    unreleased."""
    until_us: int
    keys: dict[tuple[int, int], VaultKey] = field(default_factory=dict, repr=False)
    """Keys by vault number and version."""

    def wipe(self) -> None:
        for root in self.roots:
            wipe(root)
        for key in self.keys.values():
            wipe(key.secret)
        self.keys.clear()


class Keyring:
    """Plain keys of everything that is unsealed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[int, _UnsealedKeys] = {}
        self._proven: dict[tuple[int, int], Proven] = {}
        """Verified entries by vault number and entry number, oldest first."""

    def open(self, of: int, domain: bytes, root: bytearray, until_us: int) -> None:
        """Unseal with a root key. :param of: number of a vault, or `STORE`"""
        self.seal(of)
        self._open[of] = _UnsealedKeys(domain, [root], until_us)

    def seal(self, of: int) -> bool:
        """Wipe the keys of a vault or the store. Return True if it was unsealed."""
        found = self._open.pop(of, None)
        if found is None:
            return False
        self._proven.clear()
        still = found.until_us > self._clock.monotonic_us()
        found.wipe()
        return still

    def seal_all(self) -> None:
        """Wipe every key."""
        for of in list(self._open):
            self.seal(of)

    def until_us(self, of: int) -> int | None:
        """Return the monotonic time at which an unseal ends; None: it is sealed."""
        found = self._open.get(of)
        if found is None:
            return None
        if found.until_us <= self._clock.monotonic_us():
            self.seal(of)
            return None
        return found.until_us

    def replace_root(self, of: int, root: bytearray) -> bytearray | None:
        """Use another root key from now on, and keep the one before until `confirm_root`.

        :returns: the keyring's copy of the key, wiped with the others; None: it is sealed
        """
        found = self._open.get(of)
        if found is None:
            return None
        kept = bytearray(root)
        found.roots.insert(0, kept)
        return kept

    def confirm_root(self, of: int, root: bytearray, *, stays: bool) -> None:
        """Decide between a root key from `replace_root` and those before it.

        :param stays: True: wipe all older ones. False: wipe this one only, since another may have
            come since, or everything may have been sealed
        """
        found = self._open.get(of)
        if found is None or root not in found.roots[:-1]:
            return
        at = found.roots.index(root)
        gone = slice(at + 1, None) if stays else slice(at, at + 1)
        for one in found.roots[gone]:
            wipe(one)
        del found.roots[gone]

    def key(self, vault: Vault, row: KeysRow, version: int) -> VaultKey:
        """Return a version of a vault's key.

        :raises Sealed: it is sealed
        :raises WrongKey: the stored wrapped key does not belong to this vault
        """
        of = root_of(vault)
        if self.until_us(of) is None:
            raise sealed(vault)
        found, wrap = self._open[of], row.wraps.get(version)
        if wrap is None:
            raise WrongKey(f"vault {vault.path} no longer has version {version} of its key")
        at = (vault.id, version)
        known = found.keys.get(at)
        if known is None or known.wrap != wrap:
            secret = self._unwrapped(found, wrap, vault, version)
            if known is not None:
                wipe(known.secret)
            known = found.keys[at] = VaultKey(secret, wrap, found.domain, vault.id)
        return known

    def check_open(self, vault: Vault) -> None:
        """Check that a vault is unsealed. :raises Sealed:"""
        if self.until_us(root_of(vault)) is None:
            raise sealed(vault)

    def remember(self, vault: Vault, number: int, proven: Proven) -> None:
        """Cache a verified entry, until any vault is sealed."""
        at = (vault.id, number)
        if at not in self._proven and len(self._proven) >= PROVEN:
            del self._proven[next(iter(self._proven))]
        self._proven[at] = proven

    def proven(self, vault: Vault, number: int) -> Proven | None:
        """Return a cached entry. The stored entry may differ by now: compare their bytes."""
        return self._proven.get((vault.id, number))

    def forget(self, vault: Vault, version: int) -> None:
        """Wipe a version of a vault's key."""
        found = self._open.get(root_of(vault))
        if found is not None and (key := found.keys.pop((vault.id, version), None)) is not None:
            wipe(key.secret)

    def forget_all(self, vault: Vault) -> None:
        """Wipe all keys of a dropped vault."""
        if vault.own:
            self.seal(vault.id)
        elif (found := self._open.get(STORE)) is not None:
            for at in [at for at in found.keys if at[0] == vault.id]:
                wipe(found.keys.pop(at).secret)

    def root(self, of: int) -> bytearray | None:
        """Return the current root key; None: it is sealed."""
        return None if self.until_us(of) is None else self._open[of].roots[0]

    def store_trail(self) -> bytes | None:
        """Return the HMAC key of the store's own trail; None: it is sealed."""
        root = self.root(STORE)
        return None if root is None else trail_key(root, self._open[STORE].domain, STORE)

    @staticmethod
    def _unwrapped(found: _UnsealedKeys, wrap: bytes, vault: Vault, version: int) -> bytearray:
        for root in found.roots[:-1]:
            try:
                return unwrap_key(root, wrap, found.domain, vault.id, version)
            except WrongKey:
                continue
        return unwrap_key(found.roots[-1], wrap, found.domain, vault.id, version)


def root_of(vault: Vault) -> int:
    """Return the owner of the root key that wraps a vault's keys: its own number, or `STORE`."""
    return vault.id if vault.own else STORE


def sealed(vault: Vault | None) -> Sealed:
    """Return the refusal for a sealed vault or store."""
    if vault is None or not vault.own:
        return Sealed("the store is sealed: unseal it with its passphrase")
    return Sealed(f"vault {vault.path} is sealed: unseal it with its passphrase")


def changed(vault: Vault) -> Conflict:
    """Return the refusal for keys that were replaced concurrently."""
    return Conflict(f"the keys of vault {vault.path} were changed meanwhile")
