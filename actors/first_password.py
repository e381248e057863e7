"""The file for the password that was made up for the first owner of a store."""

from __future__ import annotations

from typing import Final

from protocol.doors import Fs
from storage.facts import replace_file

FIRST_PASSWORD: Final = "FIRST-PASSWORD"
"""In the store's directory, for its owner alone."""


def keep_password(fs: Fs, directory: str, password: str) -> str:
    """Keep it; answers the path. The file has its name once all of it is on the disk, durable on
    return: who waits for it reads no half of it.

    :raises OSError: as the disk says; a file of an earlier start stays
    """
    path = f"{directory.rstrip('/')}/{FIRST_PASSWORD}"
    replace_file(fs, f"{directory}/tmp", path, f"{password}\n".encode("ascii"))
    return path
