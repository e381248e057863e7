"""Reads the key files that a command line names (`keys.py`)."""

from __future__ import annotations

from actors import keys
from actors.keys import KeyRefused, NodeKeys
from protocol.environment import Fs
from surfaces.command.certificates import CertificateRefused, check_private
from surfaces.command.failures import NotOpened
from surfaces.command.keys import FLAG, OF_BACKUPS, KeyFiles


def keys_in(fs: Fs, files: KeyFiles) -> NodeKeys:
    """Read the keys of a command line.

    :raises NotOpened: a file holds none
    """
    return NodeKeys(_key(fs, FLAG, files.own), _key(fs, OF_BACKUPS, files.backups))


def _key(fs: Fs, flag: str, path: str | None) -> keys.Key | None:
    if path is None:
        return None
    try:
        check_private(flag, path)
        return keys.read(fs, path)
    except CertificateRefused as refused:
        raise NotOpened(str(refused)) from refused
    except KeyRefused as refused:
        raise NotOpened(f"{flag}: {refused}") from refused
