"""What was typed before: a file of the user's own, without anything that may hold a secret."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from surfaces.shell.statements import may_hold_secret

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
MOST_BYTES: Final = 2 << 20
"""Of the file; past it a start keeps the newest half."""


def state_folder(environment: Mapping[str, str]) -> Path:
    """Where a user's programs keep what they remember, by the rules of freedesktop.org."""
    named = environment.get("XDG_STATE_HOME", "")
    folder = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    return folder / "storenode"


def open_history(path: Path) -> tuple[History, str | None]:
    """The history in a file, and why there is only one in memory when the file can't be used."""
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        os.close(_open(path))
        os.chmod(path, PRIVATE_FILE)  # it may be there already, made readable by others
        _shorten(path)
    except OSError as error:
        return InMemoryHistory(), f"no history is kept: {path}: {error.strerror}"
    return StatementHistory(path), None


class StatementHistory(FileHistory):
    """In the form of prompt_toolkit: a comment with the time, then the lines, each behind a `+`.

    What may hold a password is remembered until the shell ends, and never written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Write an entry. Whole entries are appended, so that two shells may share the file."""
        if may_hold_secret(string):
            return
        lines = "".join(f"+{line}\n" for line in string.split("\n"))
        at = _open(self._path)
        try:
            os.write(at, f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n{lines}".encode())
        finally:
            os.close(at)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)


def _shorten(path: Path) -> None:
    """Keep the newest half of a file that has grown too long, from an entry's beginning on."""
    if path.stat().st_size <= MOST_BYTES:
        return
    kept = path.read_bytes()[-MOST_BYTES // 2 :]
    kept = kept[kept.find(b"\n# ") :]
    new = path.with_name(f"{path.name}.{os.getpid()}")
    at = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    with os.fdopen(at, "wb") as file:
        file.write(kept)
    new.replace(path)
