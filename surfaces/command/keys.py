"""The keys of a command line: which files hold them. What is in these: `opening.keys_in`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from surfaces.command.flags import Given, variable

FLAG: Final = "--key-file"
OF_BACKUPS: Final = "--backup-key-file"
VARIABLE: Final = "STORE_KEY_FILE"


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The paths of key files."""

    own: str | None = None
    """What is written is sealed with it; None: nothing is."""
    backups: str | None = None
    """Opens backups that were sealed with another one."""


NO_KEYS: Final = KeyFiles()


def with_variable(given: Given, environment: Mapping[str, str]) -> Given:
    """A command line that names the key file of the environment, where it names none itself.

    :raises UsageRefused: the environment names one, and says nothing
    """
    path = None if FLAG in given else variable(environment, VARIABLE)
    if path is None:
        return given
    return replace(given, flags={**given.flags, FLAG: path})


def files(given: Given) -> KeyFiles:
    """The key files that a command line names."""
    return KeyFiles(given.get(FLAG), given.get(OF_BACKUPS))
