"""A real node whose disk stalls."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from protocol.frames import MessageKind
from tests.processes import PASSWORD, USER, NodeProcess
from tests.reliability import faulty
from tests.reliability.test_waits import PLACE, Peer, run, until

DECLARED: Final = """
    DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;
    DEFINE TABLE t; DEFINE SPACE c
"""
PATIENCE_SECONDS: Final = 30
"""A limit on what is waited for, no figure to reach."""


@contextmanager
def stalling(folder: Path, *faults: str) -> Iterator[tuple[NodeProcess, Requests]]:
    """A node whose disk stalls while there is a file `store.stalls` beside it, from now on."""
    more = {faulty.FAULTS: ",".join(("stalls", *faults))}
    node = NodeProcess(folder / "store", more=more, module=faulty.MODULE).start()
    try:
        with ThreadPoolExecutor(16) as threads:
            run(node, DECLARED)
            requests = Requests(node, threads)
            (folder / "store.stalls").touch()
            try:
                yield node, requests
            finally:  # those that wait are answered now, and their threads end
                (folder / "store.stalls").unlink(missing_ok=True)
    finally:
        assert node.stop() == 0


class Requests:
    """What clients ask of the node, each from a thread of its own: the code of what comes back."""

    def __init__(self, node: NodeProcess, threads: ThreadPoolExecutor) -> None:
        self._node = node
        self._threads = threads
        self._token = node.request("POST", "/session").json["token"]

    def http(self, script: str, **fields: Any) -> Future[str]:
        body = {"script": script, **PLACE, **fields}
        return self._threads.submit(self._over_http, "POST", "/script", body, self._basic())

    def put(self, key: str, *, by_token: bool) -> Future[str]:
        credential = f"Bearer {self._token}" if by_token else self._basic()
        path = f"/kv/shop/main/c/key/{key}"
        return self._threads.submit(self._over_http, "PUT", path, "1", credential)

    def wire(self, kind: MessageKind, body: dict[str, Any]) -> Future[str]:
        return self._threads.submit(self._over_wire, kind, {**PLACE, **body})

    def _basic(self) -> str:
        return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    def _over_http(self, method: str, path: str, body: object, credential: str) -> str:
        headers = {"Authorization": credential}
        found = self._node.request(method, path, body, headers, user=None).json
        return str(found["error"]["code"]) if "error" in found else "done"

    def _over_wire(self, kind: MessageKind, body: dict[str, Any]) -> str:
        with Peer(self._node) as peer:
            peer.say(kind, 1, body)
            heard = peer.hear()
        if heard.kind is not MessageKind.ERROR:
            return "done"
        assert heard.body is not None
        return str(heard.body["error"]["code"])


SHORT: Final = timedelta(seconds=2)
"""Enough for a script to come to its commit."""


def begin(requests: Requests, timeout: timedelta | None = None) -> dict[str, Future[str]]:
    """A script that writes, on each surface."""
    shown = None if timeout is None else f"{timeout // timedelta(milliseconds=1)}ms"
    return {
        "http": requests.http("CREATE t", timeout=shown),
        "wire": requests.wire(MessageKind.RUN, {"script": "CREATE t", "timeout": timeout}),
    }


def begin_keys(requests: Requests) -> dict[str, Future[str]]:
    set_key = {"op": "set", "space": "c", "key": "w", "value": 1}
    return {
        "put": requests.put("a", by_token=False),
        "put by token": requests.put("b", by_token=True),
        "kv": requests.wire(MessageKind.KV, set_key),
    }


def codes(waiting: dict[str, Future[str]], patience_s: float) -> dict[str, str]:
    """What each came to; `waits` for those that go on waiting."""
    found = {}
    for name, future in waiting.items():
        try:
            found[name] = future.result(patience_s)
        except NotYet:
            found[name] = "waits"
    return found


def killed(node: NodeProcess, count: int) -> list[str]:
    """Kill whoever waits for the disk, once there are so many; their texts."""

    def listed() -> list[dict[str, Any]]:
        return [one for one in run(node, "INFO FOR RUNNING")[0] if one["commit"] is not None]

    until(lambda: len(listed()) == count)
    found = listed()
    for one in found:
        run(node, f"KILL '{one['id']}'")
    return sorted(one["text"] for one in found)


UNKNOWN: Final = "UnknownOutcome"


def test_who_waits_for_a_disk_that_stalls_can_be_ended(tmp_path: Path) -> None:
    with stalling(tmp_path) as (node, requests):
        timed = begin(requests, SHORT) | {
            "statement": requests.http("CREATE t TIMEOUT 2s"),
        }
        assert set(codes(timed, PATIENCE_SECONDS).values()) == {UNKNOWN}
        waiting = begin(requests) | begin_keys(requests)
        reader = requests.http("SELECT * FROM t", timeout="200ms")
        assert reader.result(PATIENCE_SECONDS) == "StatementTimeout"
        assert killed(node, len(waiting)) == [
            "CREATE t", "CREATE t", "SET 'a' IN c VALUE $value", "SET 'b' IN c VALUE $value",
            "SET 'w' IN c VALUE $value",
        ]  # fmt: skip
        assert set(codes(waiting, PATIENCE_SECONDS).values()) == {UNKNOWN}
        (tmp_path / "store.stalls").unlink()
        until(lambda: run(node, "RETURN array::len((SELECT * FROM t))") == [5])
        assert run(node, "KEYS FROM c")[0]["keys"] == ["a", "b", "w"]
