"""Key files of a node: read and create them."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.environment import Fs, Rng
from protocol.errors import BadRequest
from storage.formats import sealing
from storage.formats.sealing import Key as Key


class KeyRefused(Exception):
    """A file has no usable key, or a key can't be written to it. The message is one line and
    reveals nothing of the file's content."""


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """Keys that the node was started with."""

    own: Key | None
    """Key that seals everything written; None: data is stored in clear."""
    backups: Key | None
    """Key that opens backups sealed with another key than `own`."""

    @property
    def opening(self) -> tuple[Key, ...]:
        """Keys that a backup may be sealed with, in the order to try."""
        return tuple(key for key in (self.backups, self.own) if key is not None)


def read(fs: Fs, path: str) -> Key:
    """Return the key in a file. :raises KeyRefused: it can't be read, or has no key"""
    try:
        return sealing.read_key(fs, path)
    except BadRequest as refusal:
        raise KeyRefused(refusal.message) from refusal
    except OSError as error:
        raise KeyRefused(f"{path}: {error.strerror}") from error


def make(fs: Fs, rng: Rng, path: str) -> str:
    """Create a key in a new file, durable and readable by its owner only. Return the key's id.

    :raises KeyRefused: the file exists, or can't be written
    """
    try:
        return sealing.make_key(fs, path, rng).id.hex()
    except FileExistsError as error:
        raise KeyRefused(f"{path} exists, and is not replaced: it may be somebody's key") from error
    except OSError as error:
        raise KeyRefused(f"{path}: {error.strerror}") from error
