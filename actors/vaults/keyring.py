"""The plain keys of what is unsealed. Nothing else in the node holds one longer than a call.

What is opened is open until a moment of the monotonic clock, fixed at the unseal; using it makes it
no longer. At each use the clock is asked, so a timer that comes late opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.doors import Clock
from protocol.errors import Conflict, Sealed, WrongKey
from storage.vault_rows import KeysRow
from storage.vault_seals import Cipher, trail_key, unwrap_key, wipe
from storage.vault_trail import Kept
from storage.vaults import Vault

STORE: Final = 0
"""In place of a vault's number: what hangs on the store's passphrase."""


PROVEN: Final = 4_096
"""Entries of trails that are remembered: some 5 MiB."""


class Proven(NamedTuple):
    """An entry of a trail whose HMAC was found to be right."""

    raw: bytes
    """As it was read: only the very same bytes are that entry."""
    kept: Kept
    wrap: bytes
    """What the key was found under that had sealed the value it is about, as `VaultKey.wrap`."""


class VaultKey:
    """One version of a vault's key."""

    __slots__ = ("cipher", "secret", "trail", "wrap")

    def __init__(self, secret: bytearray, wrap: bytes, domain: bytes, vault: int) -> None:
        self.secret = secret
        self.wrap = wrap
        """What it was found under; another one is another key."""
        self.cipher = Cipher(secret)
        self.trail = trail_key(secret, domain, vault)


@dataclass(slots=True)
class _Open:
    domain: bytes
    roots: list[bytearray] = field(repr=False)
    """The newest first. More than one: while it is not sure which of them are to stay."""
    until_us: int
    keys: dict[tuple[int, int], VaultKey] = field(default_factory=dict, repr=False)
    """By the number of the vault and the version."""

    def wipe(self) -> None:
        for root in self.roots:
            wipe(root)
        for key in self.keys.values():
            wipe(key.secret)
        self.keys.clear()


class Keyring:
    """See the head of the file."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._proven: dict[tuple[int, int], Proven] = {}
        """By the numbers of vault and entry; the oldest first."""

    def open(self, of: int, domain: bytes, root: bytearray, until_us: int) -> None:
        """Open with a root key. :param of: the number of a vault, or `STORE`"""
        self.seal(of)
        self._open[of] = _Open(domain, [root], until_us)

    def seal(self, of: int) -> bool:
        """Drop what was opened. Answers whether it was open."""
        found = self._open.pop(of, None)
        if found is None:
            return False
        self._proven.clear()
        still = found.until_us > self._clock.monotonic_us()
        found.wipe()
        return still

    def seal_all(self) -> None:
        """Drop every key."""
        for of in list(self._open):
            self.seal(of)

    def until_us(self, of: int) -> int | None:
        """Until when it is open, on the monotonic clock; None: it is sealed."""
        found = self._open.get(of)
        if found is None:
            return None
        if found.until_us <= self._clock.monotonic_us():
            self.seal(of)
            return None
        return found.until_us

    def replace_root(self, of: int, root: bytearray) -> bytearray | None:
        """From now on another root key counts, beside the one before: `settle_root` says whether it
        is to stay. Answers what is kept of it, which is wiped with the rest; None: it is sealed."""
        found = self._open.get(of)
        if found is None:
            return None
        kept = bytearray(root)
        found.roots.insert(0, kept)
        return kept

    def settle_root(self, of: int, root: bytearray, *, stays: bool) -> None:
        """Keep a root key that `replace_root` has answered and none from before it, or let go of it
        alone: another one may have come since, or all may have been sealed."""
        found = self._open.get(of)
        if found is None or root not in found.roots[:-1]:
            return
        at = found.roots.index(root)
        gone = slice(at + 1, None) if stays else slice(at, at + 1)
        for one in found.roots[gone]:
            wipe(one)
        del found.roots[gone]

    def key(self, vault: Vault, row: KeysRow, version: int) -> VaultKey:
        """A version of a vault's key.

        :raises Sealed: it is sealed
        :raises WrongKey: what is stored as that key is not of this vault
        """
        of = root_of(vault)
        if self.until_us(of) is None:
            raise sealed(vault)
        found, wrap = self._open[of], row.wraps.get(version)
        if wrap is None:
            raise WrongKey(f"vault {vault.path} has no version {version} of its key any more")
        at = (vault.id, version)
        known = found.keys.get(at)
        if known is None or known.wrap != wrap:
            secret = self._unwrapped(found, wrap, vault, version)
            if known is not None:
                wipe(known.secret)
            known = found.keys[at] = VaultKey(secret, wrap, found.domain, vault.id)
        return known

    def check_open(self, vault: Vault) -> None:
        """:raises Sealed:"""
        if self.until_us(root_of(vault)) is None:
            raise sealed(vault)

    def remember(self, vault: Vault, number: int, proven: Proven) -> None:
        """An entry was found to be right. Forgotten when something is sealed."""
        at = (vault.id, number)
        if at not in self._proven and len(self._proven) >= PROVEN:
            del self._proven[next(iter(self._proven))]
        self._proven[at] = proven

    def proven(self, vault: Vault, number: int) -> Proven | None:
        """What is remembered of an entry. The state may hold another one by now: compare it."""
        return self._proven.get((vault.id, number))

    def forget(self, vault: Vault, version: int) -> None:
        """A version of a key is no more."""
        found = self._open.get(root_of(vault))
        if found is not None and (key := found.keys.pop((vault.id, version), None)) is not None:
            wipe(key.secret)

    def forget_all(self, vault: Vault) -> None:
        """A vault is no more, nor what it was opened with."""
        if vault.own:
            self.seal(vault.id)
        elif (found := self._open.get(STORE)) is not None:
            for at in [at for at in found.keys if at[0] == vault.id]:
                wipe(found.keys.pop(at).secret)

    def root(self, of: int) -> bytearray | None:
        """The root key that counts; None: it is sealed."""
        return None if self.until_us(of) is None else self._open[of].roots[0]

    def store_trail(self) -> bytes | None:
        """What entries of the store's own trail are authenticated with; None: it is sealed."""
        root = self.root(STORE)
        return None if root is None else trail_key(root, self._open[STORE].domain, STORE)

    @staticmethod
    def _unwrapped(found: _Open, wrap: bytes, vault: Vault, version: int) -> bytearray:
        for root in found.roots[:-1]:
            try:
                return unwrap_key(root, wrap, found.domain, vault.id, version)
            except WrongKey:
                continue
        return unwrap_key(found.roots[-1], wrap, found.domain, vault.id, version)


def root_of(vault: Vault) -> int:
    """Whose root key a vault hangs on."""
    return vault.id if vault.own else STORE


def sealed(vault: Vault | None) -> Sealed:
    """The refusal of what is sealed."""
    if vault is None or not vault.own:
        return Sealed("the store is sealed: somebody with its passphrase has to unseal it")
    return Sealed(f"vault {vault.path} is sealed: somebody with its passphrase has to unseal it")


def changed(vault: Vault) -> Conflict:
    """The refusal of what was found with keys that are no more."""
    return Conflict(f"the keys of vault {vault.path} were changed in this moment")
