"""The small file that says how far an import or export has come, so that it can go on.

It is replaced as a whole after each batch, once that is acknowledged or on the disk: it may be
behind, never ahead. What it is behind by is done again, which must do no harm.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from surfaces.shell.outcomes import USAGE, Ended


@dataclass
class Progress:
    """How far something has come.

    :ivar task: what it is, in words: another task must not go on from here
    :ivar store: the id of the store; None when the user may not know it
    :ivar bytes: of the file that are done
    """

    task: str
    store: str | None = None
    rows: int = 0
    bytes: int = 0


class ResumeFile:
    """A progress in a file beside the one that is imported or exported."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, begun: Progress) -> bool:
        """Read into `begun` what an earlier run has left; False when there is nothing.

        :raises Ended: it is of another task or store, or no such file
        """
        try:
            found = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise self._refused("it can't be read") from error
        if not isinstance(found, dict) or found.keys() != {one.name for one in fields(begun)}:
            raise self._refused("it is of another form")
        if found["task"] != begun.task:
            raise self._refused(f"it belongs to: {found['task']}")
        if found["store"] != begun.store:
            raise self._refused("it was begun with another store")
        for name, value in found.items():
            setattr(begun, name, value)
        return True

    def save(self, progress: Progress) -> None:
        """Replace the file. It is whole at any moment, and on the disk after this."""
        of_task = hashlib.sha256(progress.task.encode()).hexdigest()[:16]
        new = self.path.with_name(f"{self.path.name}.{of_task}.new")
        new.unlink(missing_ok=True)  # of an earlier run that ended here: nobody else's is called so
        with new.open("x", encoding="utf-8") as file:
            json.dump(asdict(progress), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def remove(self) -> None:
        """There is nothing left to go on with."""
        self.path.unlink(missing_ok=True)

    def _refused(self, why: str) -> Ended:
        return Ended(f"{self.path}: {why}; remove it to begin anew", USAGE)
