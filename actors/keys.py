"""Keys of a node: what is in the files that hold them, and new ones."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.doors import Fs, Rng
from protocol.errors import BadRequest
from storage import sealing
from storage.sealing import Key as Key


class KeyRefused(Exception):
    """A file holds no key that can be used, or takes none; the message is one line, and says
    nothing of what it holds."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What key files hold."""

    own: Key | None
    """What is written is sealed with it; None: nothing is."""
    backups: Key | None
    """Opens backups that were sealed with another one."""

    @property
    def opening(self) -> tuple[Key, ...]:
        """Those that a backup may have been sealed with."""
        return tuple(key for key in (self.backups, self.own) if key is not None)


def read(fs: Fs, path: str) -> Key:
    """The key in a file. :raises KeyRefused: it can't be read, or holds none"""
    try:
        return sealing.read_key(fs, path)
    except BadRequest as refusal:
        raise KeyRefused(refusal.message) from refusal
    except OSError as error:
        raise KeyRefused(f"{path}: {error.strerror}") from error


def make(fs: Fs, rng: Rng, path: str) -> str:
    """Make a key in a new file, for its owner alone, and durable; answers its id.

    :raises KeyRefused: there is such a file, or it can't be written
    """
    try:
        return sealing.make_key(fs, path, rng).id.hex()
    except FileExistsError as error:
        raise KeyRefused(f"{path} exists, and is not replaced: it may be somebody's key") from error
    except OSError as error:
        raise KeyRefused(f"{path}: {error.strerror}") from error
