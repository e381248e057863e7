"""Size and faults of a world of whole members."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ClusterShape:
    """Size of a world, and the kinds of its faults.

    :ivar rates: rates of the machines' clocks
    :ivar walls_us: offsets of the machines' wall clocks, microseconds
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
    """True if disks are lost, machines join and replicas are dropped."""
    loses_etcd: bool = False
    """True if etcd loses its data."""
    puts_back: bool = False
    """True if older copies of directories are put back."""
    watched: bool = False
    """True if CURRENT reads and the state shown are checked continually (`watchers.py`)."""
    looked_at: bool = False
    """True if clients change schemas and indexes, and both are checked (`close_looks.py`)."""

    def policy(self, acks: int | None = None, behind: str | None = None) -> str:
        """Return the statement that defines the failover policy."""
        acks = self.acks if acks is None else acks
        return (
            f"DEFINE FAILOVER VIA 'http://etcd' LEASE {self.lease_s}s ACKS {acks}"
            f" BEHIND {behind or self.behind} PROMOTE {self.promote}"
        )
