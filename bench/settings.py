"""Settings of a run: its directory, rounds and amount of work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for every row of a run."""

    directory: Path
    """Directory of the stores; it must be on a disk, or syncing means nothing."""
    rounds: int = 5
    scale: float = 1.0
    """Factor on the published amounts of work; smaller for trying a run."""

    def scaled(self, amount: int) -> int:
        """Return an amount of work, scaled."""
        return max(int(amount * self.scale), 1)
