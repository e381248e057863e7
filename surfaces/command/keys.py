"""Key files of a command line. `key_reading.py` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from surfaces.command.flags import ParsedFlags, variable

FLAG: Final = "--key-file"
OF_BACKUPS: Final = "--backup-key-file"
VARIABLE: Final = "STORE_KEY_FILE"


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """Paths of key files."""

    own: str | None = None
    """Key file that encrypts everything written; None: nothing is encrypted."""
    backups: str | None = None
    """Key file for backups that were encrypted with another key."""


NO_KEYS: Final = KeyFiles()


def with_variable(given: ParsedFlags, environment: Mapping[str, str]) -> ParsedFlags:
    """Return the command line with the key file of the environment, unless it names one itself.

    :raises UsageRefused: the variable is set but empty
    """
    path = None if FLAG in given else variable(environment, VARIABLE)
    if path is None:
        return given
    return replace(given, flags={**given.flags, FLAG: path})


def files(given: ParsedFlags) -> KeyFiles:
    """Return the key files that a command line names."""
    return KeyFiles(given.get(FLAG), given.get(OF_BACKUPS))
