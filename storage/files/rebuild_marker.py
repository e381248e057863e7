"""Rebuild of the state from the log, and the file DAMAGED that requests it.

The log is the source of truth; a state can be replayed from it if it begins at sequence 1. The file
DAMAGED means that the state is unreadable in part, or is being rebuilt. The next start then begins
with an empty state. The file is removed when the state has caught up with the log.
"""

from __future__ import annotations

from storage.faults import StoreDamaged
from storage.files.directory import StoreDirectory


def damage(directory: StoreDirectory) -> str | None:
    """Return the recorded damage of the state; None if there is none.

    :raises StoreDamaged: the file itself is unreadable
    """
    path = _path(directory)
    if not directory.fs.exists(path):
        return None
    what = directory.read(path).get("what")
    if not isinstance(what, str):
        raise StoreDamaged(f"{path} is damaged: it holds no reason for the rebuild")
    return what


def record_damage(directory: StoreDirectory, what: str) -> None:
    """Record damage of the state. Durable on return.

    :raises OSError: the disk fails
    """
    directory.write(_path(directory), {"what": what})


def discard_state(directory: StoreDirectory) -> None:
    """Replace the state by an empty one, after `record_damage`.

    :raises OSError: the disk fails
    """
    # DAMAGED is durable by then: after a crash in between, the next start discards the rest.
    directory.fs.remove_tree(directory.state_path)
    directory.fs.make_directory(directory.state_path)
    directory.fs.sync_directory(directory.path)


def finish(directory: StoreDirectory) -> None:
    """Remove the record, once the state has caught up with the log.

    :raises OSError: the disk fails
    """
    # A crash before the sync may bring the file back; then the rebuild is only repeated.
    directory.fs.unlink(_path(directory))
    directory.fs.sync_directory(directory.path)


def _path(directory: StoreDirectory) -> str:
    return f"{directory.path}/DAMAGED"
