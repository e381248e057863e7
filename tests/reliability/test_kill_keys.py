"""Keys written and read over HTTP, the node killed under them."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import START_SECONDS, NodeProcess
from tests.reliability.faulty import FAULTS, MODULE

KILLS = 4
KILLS_HARD = 60
KEYS = 4
READERS = 2
ANSWERS = range(30, 600)
"""After so many a kill comes."""


class Broken(AssertionError):
    """A key shows less than somebody was told, or what nobody wrote."""


@dataclass
class Told:
    """What was sent and told of each key: numbers that only grow, each key's one writer's."""

    sent: list[int] = field(default_factory=lambda: [0] * KEYS)
    written: list[int] = field(default_factory=lambda: [0] * KEYS)
    read: list[int] = field(default_factory=lambda: [0] * KEYS)
    answers: int = 0

    def check(self, found: list[int]) -> None:
        """:raises Broken:"""
        for key, value in enumerate(found):
            told = max(self.written[key], self.read[key])
            if value < told:
                raise Broken(f"key {key} was told to be {told}, and lost: it is {value}")
            if value > self.sent[key]:
                raise Broken(f"key {key} is {value}, and no more than {self.sent[key]} was sent")


class Client:
    """A connection whose heads are always the same, each request sent in one piece."""

    def __init__(self, node: NodeProcess, token: str) -> None:
        self._socket = socket.create_connection(node.address("http"), timeout=START_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fields = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"

    def _ask(self, method: str, key: int, body: bytes = b"") -> tuple[int, bytes]:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        asked = f"{method} /kv/shop/main/c/key/k{key} {self._fields}{length}\r\n"
        self._socket.sendall(asked.encode() + body)
        kept = b""
        while b"\r\n\r\n" not in kept:
            kept += self._more()
        head, _, answer = kept.partition(b"\r\n\r\n")
        found = re.search(rb"Content-Length: (\d+)", head)
        assert found is not None, head
        while len(answer) < int(found[1]):
            answer += self._more()
        return int(head.split(b" ", 2)[1]), answer

    def _more(self) -> bytes:
        data = self._socket.recv(65_536)
        if not data:
            raise ConnectionResetError("the node is dead")
        return data

    def close(self) -> None:
        self._socket.close()

    def put(self, key: int, number: int) -> None:
        """Set it; returns when the node said so."""
        status, body = self._ask("PUT", key, b"%d" % number)
        assert (status, body) == (200, b'{"written":true}'), body

    def get(self, key: int) -> int:
        """What it is; 0: there is none."""
        status, body = self._ask("GET", key)
        assert status in (200, 404), body
        return int(json.loads(body)["value"]) if status == 200 else 0


def _until_killed(work: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        try:
            while True:
                work()
        except OSError:
            return  # the node is dead

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def kill_once(node: NodeProcess, told: Told, dice: random.Random) -> None:
    """Have it written and read, and kill it on the way."""
    token = node.request("POST", "/session").json["token"]
    writers, readers = ([Client(node, token) for _ in range(count)] for count in (KEYS, READERS))

    def write(key: int) -> None:
        told.sent[key] += 1
        writers[key].put(key, told.sent[key])
        told.written[key] = told.sent[key]
        told.answers += 1

    def read(reader: Client) -> None:
        for key in range(KEYS):
            told.read[key] = max(told.read[key], reader.get(key))
            told.answers += 1

    working = [_until_killed(lambda key=key: write(key)) for key in range(KEYS)]  # type: ignore[misc]
    working += [_until_killed(lambda reader=reader: read(reader)) for reader in readers]  # type: ignore[misc]
    goal = told.answers + dice.choice(ANSWERS)
    while told.answers < goal or not all(told.written + told.read):
        if not any(thread.is_alive() for thread in working):
            break
        time.sleep(0.001)
    node.kill()
    for thread in working:
        thread.join()
    for client in writers + readers:
        client.close()


def kill_often(directory: Path, kills: int, seed: int, faults: str = "") -> Told:
    """So many kills of one store, each followed by a look. :raises Broken:"""
    told, dice = Told(), random.Random(seed)

    def started() -> NodeProcess:
        if not faults:
            return NodeProcess(directory).start()
        return NodeProcess(directory, more={FAULTS: faults}, module=MODULE).start()

    node = started()
    node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE SPACE c")
    for _ in range(kills):
        kill_once(node, told, dice)
        node = started()
        looking = Client(node, node.request("POST", "/session").json["token"])
        try:
            told.check([looking.get(key) for key in range(KEYS)])
        except Broken:
            node.kill()
            raise
        finally:
            looking.close()
    assert node.stop() == 0
    return told


def test_kills_lose_no_key(tmp_path: Path, figure: Callable[[str, object], None]) -> None:
    told = kill_often(tmp_path / "store", KILLS, seed=1)
    assert told.answers > 100 and min(told.written) > 0 and min(told.read) > 0
    figure("R2 keys over HTTP", f"{KILLS} kills, {told.answers} answers, none taken back")


@pytest.mark.hard
@pytest.mark.timeout(600)
def test_many_kills_lose_no_key(tmp_path: Path, figure: Callable[[str, object], None]) -> None:
    told = kill_often(tmp_path / "store", KILLS_HARD, seed=2)
    figure("R2 keys over HTTP", f"{KILLS_HARD} kills, {told.answers} answers, none taken back")


@pytest.mark.parametrize("fault", ["answers-before-the-log", "shows-keys-in-flight"])
def test_answers_that_wait_for_nothing_are_caught(tmp_path: Path, fault: str) -> None:
    with pytest.raises(Broken, match="lost"):
        for seed in range(5):  # where a kill falls is chance
            kill_often(tmp_path / f"store{seed}", 10, seed, faults=fault)


@pytest.mark.parametrize("found", [[5, 5, 5, 4], [5, 5, 5, 7]])
def test_the_check_catches_what_is_lost_and_what_nobody_wrote(found: list[int]) -> None:
    told = Told(sent=[6] * KEYS, written=[5] * KEYS, read=[4, 4, 4, 5])
    told.check([5, 5, 6, 5])
    with pytest.raises(Broken):
        told.check(found)
