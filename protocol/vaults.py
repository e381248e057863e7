"""What surfaces ask of vaults beside statements: passphrases, which are never statement text.

Each names its vault by namespace, database and name; None: the store, whose passphrase opens every
vault without one of its own.
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
"""Of a namespace, a database and a vault."""


@dataclass(frozen=True, slots=True)
class Unseal(Request[datetime]):
    """Open it for a while; answers until when, by the wall clock. Refused: NotAllowed, Unknown,
    NotWritable, WrongKey (of another passphrase), TooManyTries, Sealed (it has none)."""

    caller: Caller
    vault: Names | None
    passphrase: str = field(repr=False)
    request: str = ""


@dataclass(frozen=True, slots=True)
class Seal(Request[None]):
    """Close it now. Refused: NotAllowed, Unknown, NotWritable."""

    caller: Caller
    vault: Names | None
    request: str = ""


@dataclass(frozen=True, slots=True)
class ChangePassphrase(Request[int]):
    """Give it another passphrase, or the store its first; answers how many wraps were made anew.
    Refused: as Unseal, and BadRequest (of the new one's length)."""

    caller: Caller
    vault: Names | None
    old: str | None = field(repr=False)
    """None: the store has none yet."""
    new: str = field(repr=False)
    rekey: bool = False
    """Whether root key and vault keys are made anew as well, and every value is sealed again."""
    request: str = ""


@dataclass(frozen=True, slots=True)
class SealState:
    """How it stands with a seal."""

    sealed: bool
    until: datetime | None
    """When it is sealed again, by the wall clock; None: it is."""


@dataclass(frozen=True, slots=True)
class VaultStanding:
    """How it stands with one vault."""

    names: Names
    own: bool
    """Whether it has a passphrase of its own."""
    seal: SealState
    records: int


@dataclass(frozen=True, slots=True)
class Standings:
    """How it stands with the store and the vaults that the caller may see."""

    is_set: bool
    """Whether the store has a passphrase."""
    seal: SealState
    vaults: tuple[VaultStanding, ...]

    def described(self, moment: Callable[[datetime | None], object]) -> dict[str, Any]:
        """As a surface answers it. :param moment: what is shown for a time, or for none"""

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
class ShowVaults(Request[Standings]):
    """How it stands with all of them."""

    caller: Caller


def checked_names(namespace: str, database: str, vault: str) -> Names:
    """The names of a vault. :raises NameRefused: one is none"""
    return (
        check_name(namespace, "namespace"),
        check_name(database, "database"),
        check_name(vault, "vault"),
    )


def check_passphrase(passphrase: object) -> str:
    """A new passphrase. :raises TypeRefused, BadRequest: it is none"""
    if not isinstance(passphrase, str):
        raise TypeRefused("a passphrase is a string")
    least, most = limits.PASSPHRASE_CHARACTERS_MIN, limits.PASSPHRASE_CHARACTERS_MAX
    if not least <= len(passphrase) <= most:
        raise BadRequest(f"a passphrase has {least} to {most} characters")
    return passphrase
