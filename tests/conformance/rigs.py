"""What a history runs against: a node that is killed, and a cluster that loses its leader."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from bench.processes import wait_for
from tests.conformance.histories import DEFINED, MARK, History, Stored
from tests.conformance.loops import LoopThread
from tests.conformance.proxy import Fault, FaultProxy
from tests.conformance.steps import wire_address
from tests.conformance.testee import Testee
from tests.conformance.worlds import address
from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability.clusters import Cluster

KILLS: Final = 3
CONNECT_MS: Final = 60_000
"""Longest search of the client for a node: longer than one takes to start."""
PAGE: Final = 1000

_places = itertools.count(1)


class Rig(Protocol):
    """Nodes of one store, and the faults that they meet."""

    @property
    def addresses(self) -> list[str]:
        """Addresses for the client."""

    def script(self, text: str, **fields: object) -> list[Any]:
        """Run a script, and return the values of its statements."""

    def faults(self, history: History) -> None:
        """Let all faults happen, each after more writes of the history."""


class KilledNode:
    """A node behind a proxy, which is killed again and again."""

    def __init__(self, folder: Path, loop: LoopThread) -> None:
        self._node = NodeProcess(folder / "store").start()
        self._loop = loop
        self._proxy = FaultProxy(lambda: address(self._node))
        loop.run(self._proxy.start())

    @property
    def addresses(self) -> list[str]:
        return [self._proxy.address]

    def script(self, text: str, **fields: object) -> list[Any]:
        answer = self._node.script(text, **fields)
        assert "error" not in answer, answer
        return [one["value"] for one in answer["results"]]

    def faults(self, history: History) -> None:
        for number in range(KILLS):
            history.wait_more()
            if number == 1:
                self._hold_answer()
            self._node.kill()
            self._loop.call(lambda: self._proxy.cut("reset"))
            self._node.lines.clear()
            self._node.start()

    def _hold_answer(self) -> None:
        """Wait until a write is done that the client does not learn of."""
        fault = Fault(on="answer", of="KV", op="incr", does="hold")
        self._loop.call(lambda: self._proxy.faults.append(fault))
        wait_for(lambda: self._loop.call(lambda: self._proxy.held) > 0, "no answer is held")

    def close(self) -> None:
        """End it."""
        self._loop.run(self._proxy.close())
        self._node.end()


class LedCluster:
    """A cluster of three, whose leader is killed once, and comes back as a follower."""

    def __init__(self, found: Cluster) -> None:
        self._found = found

    @property
    def addresses(self) -> list[str]:
        return [wire_address(one) for one in self._found.members]

    def script(self, text: str, **fields: object) -> list[Any]:
        return self._found.led().script(text, **fields)

    def faults(self, history: History) -> None:
        history.wait_more()
        leader = self._found.led()
        leader.pause()  # what is under way then is never answered
        wait_for(history.is_waiting, "no worker waits for the leader")
        leader.kill()
        self._found.led(but=leader)
        history.wait_more()
        leader.start()
        self._found.in_sync(len(self._found.members))


def checked(testee: Testee, rig: Rig) -> History:
    """Run a history against a rig. :raises AssertionError: with what is wrong in it"""
    place = f"h{next(_places)}", "main"
    rig.script(
        f"DEFINE NAMESPACE {place[0]}; DEFINE DATABASE {'.'.join(place)}; USE {'.'.join(place)};"
        f" {DEFINED}"
    )
    answer = testee.call(
        call="open", addresses=rig.addresses, user=USER, password=PASSWORD, reads="any",
        connect_timeout=CONNECT_MS, **{"as": "c"},
    )  # fmt: skip
    assert "error" not in answer, answer
    history = History(testee, place)
    try:
        history.run(rig.faults)
    finally:
        testee.reset()
    wrong = history.judge(stored(rig, place))
    assert not wrong, "\n".join([*wrong, history.figures])
    assert history.acknowledged
    print(history.figures)
    return history


def stored(rig: Rig, place: tuple[str, str]) -> Stored:
    """Read what the store holds at the end."""
    at = {"ns": place[0], "db": place[1]}
    made, newest, handled, listed = rig.script(
        "SELECT VALUE n FROM made; SELECT VALUE n FROM newest; SELECT VALUE position FROM handled;"
        " KEYS FROM counts", **at,
    )  # fmt: skip
    counts = {
        key: rig.script("GET $k FROM counts", params={"k": key}, **at)[0]["value"]
        for key in listed["keys"]
    }
    return Stored(
        made=[one for one in made if one != MARK],
        newest=newest,
        counts=counts,
        messages=list(_messages(rig, at)),
        handled=handled,
    )


def _messages(rig: Rig, at: dict[str, str]) -> Iterator[tuple[int, str]]:
    after = 0
    while True:
        (page,) = rig.script(f"READ FROM told AFTER {after} LIMIT {PAGE}", **at)
        for one in page:
            yield one["position"], one["value"]
        if not page:
            return
        after = page[-1]["position"]


@contextlib.contextmanager
def killed_node(folder: Path) -> Iterator[KilledNode]:
    """A node that a history kills."""
    loop = LoopThread()
    rig = KilledNode(folder, loop)
    try:
        yield rig
    finally:
        rig.close()
        loop.close()
