"""How large and how long a run is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every row of a run."""

    directory: Path
    """Where the stores are kept; on a disk, or syncing means nothing."""
    rounds: int = 5
    scale: float = 1.0
    """By how much the amounts of work are smaller than the published ones: for trying it out."""

    def scaled(self, amount: int) -> int:
        """An amount of work."""
        return max(int(amount * self.scale), 1)
