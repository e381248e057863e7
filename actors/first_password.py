"""File that holds the generated password of a store's first owner."""

from __future__ import annotations

from typing import Final

from protocol.environment import Fs
from storage.files.metadata_file import replace_file

FIRST_PASSWORD: Final = "FIRST-PASSWORD"
"""File name in the store's directory. Only its owner can read it."""


def keep_password(fs: Fs, directory: str, password: str) -> str:
    """Write the password file. Return its path.

    The file is durable on return and appears under its name only once it is complete: a reader that
    waits for it never reads half of it.

    :raises OSError: from the disk; a file of an earlier start stays
    """
    path = f"{directory.rstrip('/')}/{FIRST_PASSWORD}"
    replace_file(fs, f"{directory}/tmp", path, f"{password}\n".encode("ascii"))
    return path
