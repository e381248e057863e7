"""Who is there: written when a cluster is begun, read by every command after that."""

from __future__ import annotations

import json
import secrets
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.processes import free_port

ETCD: Final = "etcd"
"""The name of etcd among those between which the network can be cut."""
ENVIRONMENT: Final = "env"
"""The file in the directory that a shell reads, for whoever uses the cluster."""
LEASE_SECONDS: Final = 3
BEHIND_SECONDS: Final = 2


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

    @property
    def cuts(self) -> Path:
        """The file that says between whom the network is cut: see `network.py`."""
        return self.directory / "cuts.json"

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
    return Plan(directory, nodes, *ports, user="root", password=secrets.token_urlsafe(12))


def load(directory: Path) -> Plan:
    """The plan of the cluster in a directory. :raises NoCluster:"""
    try:
        facts = json.loads((directory / "plan.json").read_text())
    except FileNotFoundError:
        raise NoCluster(f"no cluster in {directory}: `make cluster` makes one") from None
    nodes = tuple(NodeAt(**one) for one in facts.pop("nodes"))
    return Plan(**{**facts, "directory": directory, "nodes": nodes})
