"""How large a world of whole members is, and what goes wrong in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Shape:
    """How large a world is, and what goes wrong in it.

    :ivar rates: of machines' clocks
    :ivar walls_us: how far their walls are apart
    """

    machines: int = 3
    lease_s: int = 3
    behind: str = "1s"
    acks: int = 1
    promote: str = "AUTO"
    steps: int = 40
    clients: int = 3
    rates: tuple[float, ...] = (1.0,)
    walls_us: tuple[int, ...] = (0,)
    keep: int | None = None
    """Frames of the log that are kept; None: all."""
    newcomers: bool = False
    """Whether disks are lost, machines come new and rows go."""
    loses_etcd: bool = False
    """Whether etcd loses what it knew."""
    puts_back: bool = False
    """Whether older copies of directories are put back."""
    watched: bool = False
    """Whether it is looked closely at what nodes show, and take for current."""

    def policy(self, acks: int | None = None, behind: str | None = None) -> str:
        """The statement."""
        acks = self.acks if acks is None else acks
        return (
            f"DEFINE FAILOVER VIA 'http://etcd' LEASE {self.lease_s}s ACKS {acks}"
            f" BEHIND {behind or self.behind} PROMOTE {self.promote}"
        )
