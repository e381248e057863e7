"""Shell history: a file in the user's home, without statements that may contain a secret."""

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
"""Maximum bytes of the file; beyond it the shell keeps the newest half at its start."""


def state_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for state files, according to the XDG base directory specification."""
    named = environment.get("XDG_STATE_HOME", "")
    folder = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    return folder / "storenode"


def open_history(path: Path) -> tuple[History, str | None]:
    """Return the history in a file, or one in memory with the reason why the file can't be used."""
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        os.close(_open(path))
        os.chmod(path, PRIVATE_FILE)  # an existing file may be readable by others
        _shorten(path)
    except OSError as error:
        return InMemoryHistory(), f"the history is not saved: {path}: {error.strerror}"
    return StatementHistory(path), None


class StatementHistory(FileHistory):
    """History in prompt_toolkit's format: a comment with the time, then the lines, each after a
    `+`.

    An entry that may contain a password is kept until the shell ends, and never written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Append a whole entry, so that two shells may share the file."""
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
    """Keep the newest half of a file that has grown too long, from the start of an entry."""
    if path.stat().st_size <= MOST_BYTES:
        return
    kept = path.read_bytes()[-MOST_BYTES // 2 :]
    kept = kept[kept.find(b"\n# ") :]
    new = path.with_name(f"{path.name}.{os.getpid()}")
    at = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    with os.fdopen(at, "wb") as file:
        file.write(kept)
    new.replace(path)
