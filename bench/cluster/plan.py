"""Who is there: written when a cluster is begun, read by every command after that."""

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
"""The name of etcd among those between which the network can be cut."""
ENVIRONMENT: Final = "env"
"""The file in the directory that a shell reads, for whoever uses the cluster."""


class NoCluster(Exception):
    """There is none in this directory; the text says how one is made."""


@dataclass(frozen=True, slots=True)
class NodeAt:
    """One node, and where it is reached on the loopback."""

    name: str
    http: int
    wire: int
    peer: int
    """Where it listens for the others."""
    outside: int
    """Where the others reach it, through the network."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What is said to it there, whenever it is started."""


@dataclass(frozen=True, slots=True)
class Failover:
    """The policy."""

    acks: int
    """On how many followers each write is before it is answered."""
    lease: int = 3
    """Seconds."""
    behind: float = 2
    """Seconds."""
    promote: str = "AUTO"

    def defined_via(self, endpoint: str) -> str:
        """The statement that puts it into force."""
        return (
            f"DEFINE FAILOVER VIA '{endpoint}' LEASE {self.lease}s ACKS {self.acks}"
            f" BEHIND {round(self.behind * 1000)}ms PROMOTE {self.promote}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A cluster."""

    directory: Path
    nodes: tuple[NodeAt, ...]
    etcd: int
    """Where etcd answers."""
    etcd_outside: int
    """Where nodes reach it, through the network."""
    etcd_peer: int
    user: str
    password: str
    failover: Failover
    etcd_syncs: bool = True
    """Whether etcd waits for its disk. False: it outlives its own end, and not the machine's."""

    @property
    def cuts(self) -> Path:
        """The file that says between whom the network is cut: see `network.py`."""
        return self.directory / "cuts.json"

    @property
    def late(self) -> Path:
        """The file that says between whom the network is slow, and by how much."""
        return self.directory / "late.json"

    def node(self, which: str) -> NodeAt:
        """A node by its name or number. :raises NoCluster: there is no such node"""
        name = f"n{which}" if which.isdigit() else which
        for node in self.nodes:
            if node.name == name:
                return node
        raise NoCluster(f"no node {which}: there are {', '.join(one.name for one in self.nodes)}")

    @property
    def environment(self) -> str:
        """The nodes' addresses and who signs in, as a shell reads them."""
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
        """All nodes but one."""
        return [node for node in self.nodes if node != than]

    @property
    def etcd_endpoint(self) -> str:
        """Where nodes reach etcd, through the network."""
        return f"http://127.0.0.1:{self.etcd_outside}"

    def log_of(self, name: str) -> Path:
        """What a process said."""
        return self.directory / f"{name}.log"

    def save(self) -> None:
        """For the commands to come. Nobody else reads it: it holds the first owner's password."""
        self.directory.mkdir(parents=True, exist_ok=True)
        facts = {**asdict(self), "directory": str(self.directory)}
        for name, text in (
            ("plan.json", json.dumps(facts, indent=2)),
            (ENVIRONMENT, self.environment),
        ):
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_text(text)


def draw(directory: Path, count: int) -> Plan:
    """A new plan, on ports that are free now."""
    nodes = tuple(
        NodeAt(f"n{number}", free_port(), free_port(), free_port(), free_port())
        for number in range(1, count + 1)
    )
    ports = free_port(), free_port(), free_port()
    failover = Failover(acks=(count - 1) // 2)
    return Plan(directory, nodes, *ports, "root", secrets.token_urlsafe(12), failover)


def load(directory: Path) -> Plan:
    """The plan of the cluster in a directory. :raises NoCluster:"""
    try:
        facts = json.loads((directory / "plan.json").read_text())
    except FileNotFoundError:
        raise NoCluster(f"no cluster in {directory}: `make cluster` makes one") from None
    nodes = tuple(NodeAt(**one) for one in facts.pop("nodes"))
    failover = Failover(**facts.pop("failover"))
    return Plan(**{**facts, "directory": directory, "nodes": nodes, "failover": failover})
