"""Three nodes of one store, each a process, and the etcd that elects their leader.

They are linked directly, over TLS as always; etcd is one member. The waits are those of three
machines, but without network latency, and with processors and disk shared by all.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.nodes import PASSWORD, USER, NodeProcess
from bench.ports import free_port
from bench.processes import wait_for
from bench.spaces import etcd
from storeclient import Client, StoreError

NODES: Final = 3
ROLES: Final = "serving, writable, coordinating"
LEASE_SECONDS: Final = 3
BEHIND_SECONDS: Final = 2


class Trio:
    """:param directory: root of all files
    :param held: ends the processes
    """

    def __init__(self, directory: Path, held: ExitStack) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._held = held
        self._via = f"http://127.0.0.1:{held.enter_context(etcd(directory / 'etcd'))}"
        self.nodes: list[NodeProcess] = []
        first = self._begin(1, peer := _free())
        row = f"DEFINE REPLICA n1 PEER '{peer}' NODE '{info(first)['id']}' ROLES {ROLES}"
        self._ask(first, row)
        for number in range(2, NODES + 1):
            self.join(number)
        self.lead()

    def _begin(self, number: int, peer: str, *flags: str) -> NodeProcess:
        """Start a node that others reach at an address. Return it."""
        node = NodeProcess(self._directory / f"n{number}", flags=("--peer", peer, *flags))
        self._held.enter_context(node)
        self.nodes.append(node)
        return node

    def join(self, number: int) -> NodeProcess:
        """Add a node with an empty directory; return once it has copied the store and is ready.

        Its `start_seconds` is the duration of that.
        """
        leader, peer = self._leads() or self.nodes[0], _free()
        self._ask(leader, f"DEFINE REPLICA n{number} PEER '{peer}' ROLES {ROLES}")
        token = self._ask(leader, f"CREATE JOIN TOKEN FOR n{number}")["token"]
        path = self._directory / f"n{number}.token"
        path.write_text(token)
        return self._begin(number, peer, "--join", str(path))

    def leave(self) -> None:
        """Drop the newest node from the store, stop it, and remove its directory."""
        node = self.nodes.pop()
        self._ask(self.leader(), f"DROP REPLICA n{len(self.nodes) + 1}")
        node.stop()
        shutil.rmtree(node.directory)

    def lead(self, acks: int = 1) -> None:
        """Define a failover policy with so many acknowledgements, and wait until all replicas are
        in sync."""
        node = self._leads() or self.nodes[0]
        wait_for(lambda: info(node)["followers"] == len(self.nodes) - 1, "never: that all follow")
        self._ask(
            node,
            f"DEFINE FAILOVER VIA '{self._via}' LEASE {LEASE_SECONDS}s ACKS {acks}"
            f" BEHIND {BEHIND_SECONDS}s PROMOTE AUTO",
        )
        self.tell_endpoints()
        self.in_sync()

    def tell_endpoints(self) -> None:
        """Declare where clients reach each node: ports change with each start."""
        leader = self.leader()
        for number, node in enumerate(self.nodes, 1):
            at = f"'{node.wire}', '{node.http}'"
            self._ask(leader, f"ALTER REPLICA n{number} SET ENDPOINTS {at}")

    def in_sync(self) -> None:
        """Wait until all nodes are in-sync replicas without lag."""
        wait_for(self._is_whole, "never: all in sync")

    def _is_whole(self) -> bool:
        node = self._leads()
        if node is None:
            return False
        told = info(node)
        in_set = [one["in_set"] for one in told["downstream"]]
        return in_set == [True] * (len(self.nodes) - 1) and told["furthest_lag"] == 0

    def leader(self) -> NodeProcess:
        """Wait for a leader and return it."""
        wait_for(lambda: self._leads() is not None, "never: a leader")
        found = self._leads()
        assert found is not None, "it led a moment ago"
        return found

    def _leads(self) -> NodeProcess | None:
        for node in self.nodes:
            if node.process.poll() is None and info(node).get("life") == "leading":
                return node
        return None

    @property
    def followers(self) -> list[NodeProcess]:
        """All nodes but the leader."""
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    def cpu_seconds(self) -> float:
        """Processor time of all nodes together, seconds."""
        return sum(node.cpu_seconds() for node in self.nodes)

    def client(self) -> Client:
        """Return a client that knows all addresses and finds the leader."""
        return Client([node.wire for node in self.nodes], user=USER, password=PASSWORD)

    def _ask(self, node: NodeProcess, script: str) -> Any:
        with Client(node.wire, user=USER, password=PASSWORD) as client:
            return client.run(script).value


def info(node: NodeProcess) -> dict[str, Any]:
    """Return INFO FOR NODE of a node; empty: it does not answer."""
    try:
        with Client(node.wire, user=USER, password=PASSWORD, connect_timeout=2) as client:
            found: dict[str, Any] = client.query("INFO FOR NODE")
    except StoreError:
        return {}
    return found


def _free() -> str:
    return f"127.0.0.1:{free_port()}"
