"""Plan of a cluster: written when it is created, read by every later command."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from bench.ports import free_port

ETCD: Final = "etcd"
"""Name of etcd as an end of a link that can be cut."""
ENVIRONMENT: Final = "env"
"""File in the directory with environment variables for the user's shell."""


class NoCluster(Exception):
    """The directory holds no cluster; the message says how to create one."""


@dataclass(frozen=True, slots=True)
class NodeAt:
    name: str
    http: int
    wire: int
    peer: int
    """Port on which it listens for the other nodes."""
    outside: int
    """Port on which the other nodes reach it, through the simulated network."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every start of the node."""


@dataclass(frozen=True, slots=True)
class Failover:
    acks: int
    """Followers that must acknowledge each write before it is answered."""
    lease: int = 3
    """Lease of the leader, seconds."""
    behind: float = 2
    """Time after which a silent replica leaves the ISR (BEHIND), seconds."""
    promote: str = "AUTO"

    def defined_via(self, endpoint: str) -> str:
        """Return the statement that defines the policy."""
        return (
            f"DEFINE FAILOVER VIA '{endpoint}' LEASE {self.lease}s ACKS {self.acks}"
            f" BEHIND {round(self.behind * 1000)}ms PROMOTE {self.promote}"
        )


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    directory: Path
    nodes: tuple[NodeAt, ...]
    etcd: int
    """Port of etcd."""
    etcd_outside: int
    """Port on which nodes reach etcd, through the simulated network."""
    etcd_peer: int
    user: str
    password: str
    failover: Failover
    etcd_syncs: bool = True
    """True if etcd syncs its writes. False: they survive a kill of etcd, but not of the machine."""

    @property
    def cuts(self) -> Path:
        """File with the pairs between which the network is cut: see `network.py`."""
        return self.directory / "cuts.json"

    @property
    def late(self) -> Path:
        """File with the pairs between which the network is slow, and the delays."""
        return self.directory / "late.json"

    def node(self, which: str) -> NodeAt:
        """Return a node by its name or number.

        :raises NoCluster: there is no such node
        """
        name = f"n{which}" if which.isdigit() else which
        for node in self.nodes:
            if node.name == name:
                return node
        raise NoCluster(
            f"no node {which}: the nodes are {', '.join(one.name for one in self.nodes)}"
        )

    @property
    def environment(self) -> str:
        """Return the nodes' addresses and the login, as shell variables."""
        told = {
            "STORE_AT": ",".join(f"127.0.0.1:{node.wire}" for node in self.nodes),
            "STORE_USER": self.user,
            "STORE_PASSWORD": self.password,
        }
        for node in self.nodes:
            told[node.name.upper()] = f"127.0.0.1:{node.wire}"
            told[f"{node.name.upper()}_HTTP"] = f"127.0.0.1:{node.http}"
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in told.items())

    def others(self, than: NodeAt) -> list[NodeAt]:
        return [node for node in self.nodes if node != than]

    @property
    def etcd_endpoint(self) -> str:
        """Address on which nodes reach etcd, through the simulated network."""
        return f"http://127.0.0.1:{self.etcd_outside}"

    def log_of(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def save(self) -> None:
        """Save the plan for later commands. Only its owner can read it: it holds the first owner's
        password."""
        self.directory.mkdir(parents=True, exist_ok=True)
        facts = {**asdict(self), "directory": str(self.directory)}
        for name, text in (
            ("plan.json", json.dumps(facts, indent=2)),
            (ENVIRONMENT, self.environment),
        ):
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_text(text)


def draw(directory: Path, count: int) -> ClusterPlan:
    """Create a plan, on ports that are free now."""
    nodes = tuple(
        NodeAt(f"n{number}", free_port(), free_port(), free_port(), free_port())
        for number in range(1, count + 1)
    )
    ports = free_port(), free_port(), free_port()
    failover = Failover(acks=(count - 1) // 2)
    return ClusterPlan(directory, nodes, *ports, "root", secrets.token_urlsafe(12), failover)


def load(directory: Path) -> ClusterPlan:
    """Load the plan of the cluster in a directory.

    :raises NoCluster: there is none
    """
    try:
        facts = json.loads((directory / "plan.json").read_text())
    except FileNotFoundError:
        raise NoCluster(f"no cluster in {directory}: create one with `make cluster`") from None
    nodes = tuple(NodeAt(**one) for one in facts.pop("nodes"))
    failover = Failover(**facts.pop("failover"))
    return ClusterPlan(**{**facts, "directory": directory, "nodes": nodes, "failover": failover})
