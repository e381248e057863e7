"""Topics when a node's process ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from protocol.frames import FrameReader, MessageKind, WireMessage, encode
from tests.processes import PASSWORD, USER, NodeProcess, Reply, serving
from tests.receipts import settled

PLACE = {"ns": "shop", "db": "main"}
DECLARED = """
    DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;
    DEFINE TOPIC t DEDUP 1h; DEFINE GROUP g ON t DEADLINE 1h; DEFINE GROUP soon ON t DEADLINE 1s
"""
SOON = timedelta(seconds=1)
TAKE = "TAKE FROM t AS g WAIT 5m"


def run(node: NodeProcess, script: str) -> list[Any]:
    """The values of a script; one that was refused fails the test."""
    answer = node.script(script, **PLACE)
    assert "error" not in answer, answer
    return [result["value"] for result in answer["results"]]


def until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.02)


def waiting(node: NodeProcess) -> int:
    return sum(run["waiting"] for run in run(node, "INFO FOR RUNNING")[0])


class Peer:
    """A raw connection over the wire."""

    def __init__(self, node: NodeProcess) -> None:
        self._socket = socket.create_connection(node.address("wire"), timeout=30)
        self._reader = FrameReader()
        hello = {"magic": "STORE", "major": 1, "minor": [0, 0], "user": USER, "password": PASSWORD}
        self.say(MessageKind.HELLO, 0, hello)
        assert self.hear().kind is MessageKind.WELCOME

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_how: object) -> None:
        self._socket.close()

    def say(self, kind: MessageKind, id: int, body: dict[str, Any] | None = None) -> None:
        self._socket.sendall(encode(kind, id, body))

    def hear(self) -> WireMessage:
        while (message := self._reader.next()) is None:
            data = self._socket.recv(65_536)
            assert data, "closed without a word"
            self._reader.feed(data)
        return message

    def ended(self) -> bool:
        with self._socket:
            return self._socket.recv(1) == b""


def test_a_stop_answers_whoever_waits(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node, ThreadPoolExecutor(4) as threads:
        run(node, DECLARED)
        body = {"script": TAKE, **PLACE}
        over_http = [threads.submit(node.request, "POST", "/script", body) for _ in range(4)]
        peer = Peer(node)
        for id in range(1, 21):
            peer.say(MessageKind.RUN, id, {"script": TAKE, **PLACE})
        until(lambda: waiting(node) == 24)
        node.signal()
        heard = [peer.hear() for _ in range(21)]
        assert [message.kind for message in heard].count(MessageKind.ANSWER) == 20
        for message in heard:
            if message.kind is MessageKind.ANSWER:
                assert message.body is not None
                assert message.body["results"][0]["value"] == []
        peer.say(MessageKind.BYE, 0)
        assert peer.ended()
        replies: list[Reply] = [future.result() for future in over_http]
        assert [reply.status for reply in replies] == [200] * 4
        assert all(reply.json["results"][0]["value"] == [] for reply in replies)
        assert node.wait() == 0


def test_a_sign_out_ends_the_wait_of_its_token(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node, ThreadPoolExecutor(2) as threads:
        run(node, DECLARED)
        signed_in = node.request("POST", "/session").json
        bearer = {"Authorization": f"Bearer {signed_in['token']}"}
        body = {"script": TAKE, **PLACE}
        taking = threads.submit(node.request, "POST", "/script", body, bearer, None)
        until(lambda: waiting(node) == 1)
        assert node.request("DELETE", "/session", None, bearer, None).status == 204
        reply: Reply = taking.result()
        assert (reply.status, reply.json["error"]["code"]) == (401, "SessionEnded")
        run(node, "PUBLISH INTO t VALUE 1")
        (taken,) = run(node, "TAKE 9 FROM t AS g")
        assert [message["attempt"] for message in taken] == [1], "it went to nobody"


def moment(message: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(message["deadline"]["$dt"])


def test_a_kill_leaves_what_was_out_as_it_was(tmp_path: Path) -> None:
    """Nothing is handed out early, attempts count on, ids are remembered, deadlines go on."""
    directory = tmp_path / "store"
    with serving(directory) as node:
        run(node, DECLARED)
        run(node, "PUBLISH INTO t VALUE 1 ID 'one'; PUBLISH INTO t VALUE 2 ID 'two'")
        (first,), (soon,) = run(node, "TAKE FROM t AS g; TAKE FROM t AS soon")
        run(node, f"NACK t AS g RECEIPTS ['{first['receipt']}']")
        ((second,),) = run(node, "TAKE FROM t AS g")
        assert second["attempt"] == 2
        node.kill()
    with serving(directory) as node:
        assert run(node, "PUBLISH INTO t VALUE 3 ID 'one'") == [{"position": 1, "duplicate": True}]
        (figures,) = run(node, "INFO FOR GROUP g ON t")
        assert (figures["in_flight"], figures["redelivered"]) == (1, 1)
        (taken,) = run(node, "TAKE 9 FROM t AS g")
        assert [message["position"] for message in taken] == [2]
        said = run(node, f"ACK t AS g RECEIPTS ['{first['receipt']}', '{second['receipt']}']")
        assert said == [settled("acked", 1, [first["receipt"]])]
        lapsed: list[dict[str, Any]] = []
        while not lapsed:
            (taken,) = run(node, "TAKE 9 FROM t AS soon WAIT 1m")
            lapsed = [message for message in taken if message["position"] == 1]
        assert lapsed[0]["attempt"] == 2
        assert moment(lapsed[0]) - SOON >= moment(soon), "it was handed out again too early"
        assert run(node, f"ACK t AS soon RECEIPTS ['{soon['receipt']}']")[0]["stale"] == 1
