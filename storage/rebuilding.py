"""A state that is made anew from the log: when that may be, and what says that it must be.

The log is the truth, and a state can be folded from it as long as it begins at sequence 1. The file
DAMAGED says that the state can't be read in full, or that it is being made anew; whatever starts
then begins with an empty one. It goes when the state has caught up with the log.
"""

from __future__ import annotations

from storage.directory import StoreDirectory
from storage.faults import StoreDamaged


def damage(directory: StoreDirectory) -> str | None:
    """What is said of the state; None: nothing is wrong with it.

    :raises StoreDamaged: not even that can be read
    """
    path = _path(directory)
    if not directory.fs.exists(path):
        return None
    what = directory.read(path).get("what")
    if not isinstance(what, str):
        raise StoreDamaged(f"{path} is damaged: it does not say what is wrong with the state")
    return what


def note(directory: StoreDirectory, what: str) -> None:
    """Say what is wrong with the state; durable on return. :raises OSError: as the disk says"""
    directory.write(_path(directory), {"what": what})


def throw_away(directory: StoreDirectory) -> None:
    """Begin with an empty state, after `note`. :raises OSError: as the disk says"""
    directory.fs.remove_tree(directory.state_path)
    directory.fs.make_directory(directory.state_path)
    directory.fs.sync_directory(directory.path)


def finish(directory: StoreDirectory) -> None:
    """The state has caught up with the log. :raises OSError: as the disk says"""
    directory.fs.unlink(_path(directory))
    directory.fs.sync_directory(directory.path)


def _path(directory: StoreDirectory) -> str:
    return f"{directory.path}/DAMAGED"
