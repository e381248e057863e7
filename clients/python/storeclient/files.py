"""Atomic creation of files."""

from __future__ import annotations

import os
from contextlib import suppress


def give_name(made: str, path: str) -> None:
    """Rename a synced file durably, without replacing another.

    :raises FileExistsError: the target exists; the file keeps its old name
    """
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists; choose another name") from None
        os.rename(made, path)
    else:
        os.unlink(made)
    _sync_folder(os.path.dirname(path) or ".")


def _sync_folder(path: str) -> None:
    with suppress(OSError, AttributeError):  # systems without fsync of directories
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
