"""Resume file of an import or export: its progress, so that a later run can resume it.

It is replaced as a whole after each batch, once that is acknowledged or on disk: it may be behind,
never ahead. The work behind is done again, which must be idempotent.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from surfaces.shell.outcomes import USAGE, CommandEnded


@dataclass
class TransferProgress:
    """Progress of a transfer.

    :ivar task: description of the transfer: another one must not resume from here
    :ivar store: id of the store; None if the user lacks the privilege to see it
    :ivar bytes: processed bytes of the file
    """

    task: str
    store: str | None = None
    rows: int = 0
    bytes: int = 0


class ResumeFile:
    """Progress in a file beside the imported or exported one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, begun: TransferProgress) -> bool:
        """Read the progress of an earlier run into `begun`. Return False if there is none.

        :raises Ended: it belongs to another transfer or store, or is malformed
        """
        try:
            found = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise self._refused("the file is not readable") from error
        if not isinstance(found, dict) or found.keys() != {one.name for one in fields(begun)}:
            raise self._refused("the file has another format")
        if found["task"] != begun.task:
            raise self._refused(f"the file belongs to: {found['task']}")
        if found["store"] != begun.store:
            raise self._refused("the transfer began with another store")
        for name, value in found.items():
            setattr(begun, name, value)
        return True

    def save(self, progress: TransferProgress) -> None:
        """Replace the file atomically. It is on disk afterwards."""
        of_task = hashlib.sha256(progress.task.encode()).hexdigest()[:16]
        new = self.path.with_name(f"{self.path.name}.{of_task}.new")
        new.unlink(missing_ok=True)  # left by an earlier run of this transfer
        with new.open("x", encoding="utf-8") as file:
            json.dump(asdict(progress), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def remove(self) -> None:
        """Remove the file: the transfer is complete."""
        self.path.unlink(missing_ok=True)

    def _refused(self, why: str) -> CommandEnded:
        return CommandEnded(f"{self.path}: {why}; remove it to start over", USAGE)
