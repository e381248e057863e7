"""The servers that cases need: one real node for all that share it, all else for one case."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.clients.members import FakeCluster
from tests.clients.members import cluster as members
from tests.conformance import certificates
from tests.conformance.cases import Case
from tests.conformance.loops import LoopThread
from tests.conformance.peer import Peer
from tests.conformance.proxy import FaultProxy
from tests.conformance.steps import Run, World, wire_address
from tests.conformance.testee import Testee
from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability.clusters import Cluster, cluster
from tests.surfaces.wire.peers import PASSWORD as PEER_PASSWORD
from tests.surfaces.wire.peers import USER as PEER_USER

_places = itertools.count(1)


class Servers:
    """What cases share: a loop, and a node that is started for the first that needs one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.loop = LoopThread()
        self._shared: NodeProcess | None = None
        self._held = contextlib.ExitStack()
        self._cluster: Cluster | None = None

    def node(self) -> NodeProcess:
        """Return the shared node."""
        if self._shared is None:
            self._shared = NodeProcess(self._folder / "store").start()
        return self._shared

    def cluster(self) -> Cluster:
        """Return the shared cluster, with all nodes in sync."""
        if self._cluster is None:
            self._cluster = self._held.enter_context(cluster(self._folder / "three"))
        for one in self._cluster.members:
            if not one.runs:
                one.start()
        self._cluster.in_sync(len(self._cluster.members))
        return self._cluster

    def close(self) -> None:
        """End all of them."""
        self._held.close()
        self.loop.close()
        if self._shared is not None:
            self._shared.end()


@contextlib.contextmanager
def world(case: Case, servers: Servers, folder: Path) -> Iterator[World]:
    """The servers of one case, until it is over."""
    if case.node == "peer":
        tls = None if case.tls is None else certificates.context(folder, case.tls)
        peers = [Peer(None if case.tls == "none" else tls) for _ in range(case.count)]
        try:
            yield World(
                addresses=[one.address for one in peers],
                user=PEER_USER,
                password=PEER_PASSWORD,
                peers=peers,
                folder=folder,
                tls={} if case.tls is None else certificates.names(folder),
            )
        finally:
            for one in peers:
                one.close()
    elif case.node == "members":
        with _members(servers.loop, case.count) as found:
            addresses = found.addresses
            yield World(addresses, PEER_USER, PEER_PASSWORD, members=found, loop=servers.loop)
    elif case.node == "cluster":
        three = servers.cluster()
        yield World(
            addresses=[wire_address(one) for one in three.members],
            user=USER,
            password=PASSWORD,
            ns=_place(case, three.led().script),
            cluster=three,
            loop=servers.loop,
            folder=folder,
        )
    else:
        with _real(case, servers, folder) as (node, proxy):
            yield World(
                addresses=[proxy.address],
                user=USER,
                password=PASSWORD,
                ns=_place(case, node.script),
                node=node,
                proxy=proxy,
                loop=servers.loop,
                folder=folder,
            )


@contextlib.contextmanager
def _members(loop: LoopThread, count: int) -> Iterator[FakeCluster]:
    rig = members(count)
    found = loop.run(rig.__aenter__())
    try:
        yield found
    finally:
        loop.run(rig.__aexit__(None, None, None))


@contextlib.contextmanager
def _real(case: Case, servers: Servers, folder: Path) -> Iterator[tuple[NodeProcess, FaultProxy]]:
    with contextlib.ExitStack() as stack:
        if case.node == "own":
            node = NodeProcess(folder / "store").start()
            stack.callback(node.end)
        else:
            node = servers.node()
        proxy = FaultProxy(partial(address, node))
        servers.loop.run(proxy.start())
        stack.callback(lambda: servers.loop.run(proxy.close()))
        yield node, proxy


def address(node: NodeProcess) -> tuple[str, int]:
    """Return the address of a node. :raises ConnectionRefusedError: it is starting"""
    if "ready" not in node.events():
        raise ConnectionRefusedError("the node is not ready")
    return node.address("wire")


def _place(case: Case, script: Callable[[str], Any]) -> str:
    """Return the namespace of a case, with all that it defines in its database `main`."""
    name = f"n{next(_places)}"
    if case.define:
        defined = "".join(f"; DEFINE {one}" for one in case.define)
        text = f"DEFINE NAMESPACE {name}; DEFINE DATABASE {name}.main; USE {name}.main"
        answer = script(f"{text}{defined}")
        assert "error" not in answer, answer
    return name


def judge(case: Case, testee: Testee, servers: Servers, folder: Path) -> None:
    """Run a case with a testee. :raises Failed: the client does not keep a rule"""
    try:
        with world(case, servers, folder) as found:
            Run(case, testee, found).all()
    finally:
        testee.reset()
