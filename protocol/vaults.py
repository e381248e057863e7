"""Requests of surfaces to vaults that are not statements: those with passphrases, which never stand
in statement text.

Each names its vault by namespace, database and name. None means the store, whose passphrase opens
every vault without one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from protocol import limits
from protocol.errors import BadRequest, TypeRefused
from protocol.requests import Caller, Request
from protocol.text import check_name

Names = tuple[str, str, str]
"""Names of a namespace, a database and a vault."""


@dataclass(frozen=True, slots=True)
class Unseal(Request[datetime]):
    """Unseal a vault for a while. Return the end of that, by the wall clock. Refused: NotAllowed,
    Unknown, NotWritable, WrongKey (another passphrase), TooManyTries, Sealed (it has no
    passphrase)."""

    caller: Caller
    vault: Names | None
    passphrase: str = field(repr=False)
    request: str = ""


@dataclass(frozen=True, slots=True)
class Seal(Request[None]):
    """Seal a vault immediately. Refused: NotAllowed, Unknown, NotWritable."""

    caller: Caller
    vault: Names | None
    request: str = ""


@dataclass(frozen=True, slots=True)
class ChangePassphrase(Request[int]):
    """Change the passphrase of a vault, or set the store's first. Return the number of keys that
    were wrapped again. Refused: as Unseal, and BadRequest (length of the new one)."""

    caller: Caller
    vault: Names | None
    old: str | None = field(repr=False)
    """The current passphrase; None: the store has none yet."""
    new: str = field(repr=False)
    rekey: bool = False
    """True to replace root key and vault keys too, and to seal every value again."""
    request: str = ""


@dataclass(frozen=True, slots=True)
class SealState:
    """State of one seal."""

    sealed: bool
    until: datetime | None
    """End of the unseal, by the wall clock; None: it is sealed."""


@dataclass(frozen=True, slots=True)
class VaultState:
    """State of one vault."""

    names: Names
    own: bool
    """True if it has a passphrase of its own."""
    seal: SealState
    records: int


@dataclass(frozen=True, slots=True)
class VaultStates:
    """State of the store's seal and of the vaults that the caller may see."""

    is_set: bool
    """True if the store has a passphrase."""
    seal: SealState
    vaults: tuple[VaultState, ...]

    def described(self, moment: Callable[[datetime | None], object]) -> dict[str, Any]:
        """Return the body of a surface's answer. :param moment: formats a time, or None"""

        def state(seal: SealState) -> dict[str, Any]:
            return {"sealed": seal.sealed, "until": moment(seal.until)}

        vaults = [
            {
                **dict(zip(("namespace", "database", "vault"), one.names, strict=True)),
                "own": one.own,
                **state(one.seal),
                "records": one.records,
            }
            for one in self.vaults
        ]
        return {"store": {"set": self.is_set, **state(self.seal)}, "vaults": vaults}


@dataclass(frozen=True, slots=True)
class ShowVaults(Request[VaultStates]):
    """Return the state of the store's seal and of all visible vaults."""

    caller: Caller


def checked_names(namespace: str, database: str, vault: str) -> Names:
    """Return the three names if each is valid. :raises NameRefused: one is not"""
    return (
        check_name(namespace, "namespace"),
        check_name(database, "database"),
        check_name(vault, "vault"),
    )


def check_passphrase(passphrase: object) -> str:
    """Return a new passphrase if it is valid. :raises TypeRefused, BadRequest: it is not"""
    if not isinstance(passphrase, str):
        raise TypeRefused("a passphrase must be a string")
    least, most = limits.PASSPHRASE_CHARACTERS_MIN, limits.PASSPHRASE_CHARACTERS_MAX
    if not least <= len(passphrase) <= most:
        raise BadRequest(f"a passphrase must have {least} to {most} characters")
    return passphrase
