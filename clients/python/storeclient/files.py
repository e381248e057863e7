"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress


def give_name(made: str, path: str) -> None:
    """Give a file that is on the disk its name, durably. Nothing is replaced.

    :raises FileExistsError: there is a file of that name; what was made is as it was
    """
    try:
        os.link(made, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise FileExistsError(f"{path} is there already") from None
        os.rename(made, path)
    else:
        os.unlink(made)
    _sync_folder(os.path.dirname(path) or ".")


def _sync_folder(path: str) -> None:
    with suppress(OSError, AttributeError):  # where folders can't be opened
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
