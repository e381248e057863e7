"""The floor: the minimum that CPython needs for a node's work over the wire.

`python -m bench.floor PORT FILE` answers like a node, and is a toy. It decodes, looks up in a dict,
encodes, and syncs each write with all others that wait (group commit). It has no users, privileges,
statements, transactions or limits, and keeps nothing after its end. The difference to a node is the
cost of all that, on this machine and with this interpreter: `make floor`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgpack

from bench import node_queue
from bench.people import person
from bench.ports import free_port
from bench.processes import cpu_seconds
from bench.queues import MESSAGE, QueueSide
from storeclient.frames import PREFIX_BYTES, Kind

FLOOR: Final = "floor"
ROW: Final = {"id": "person:1", **person(1)}
MESSAGES: Final = [{"position": 1, "value": MESSAGE, "receipt": "1.1.1.1", "attempt": 1}]


class Toy:
    """State shared by the connections of the toy."""

    def __init__(self, path: str) -> None:
        self.values: dict[str, Any] = {"k": "hello"}
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        self._waiting: deque[tuple[asyncio.Transport, bytes, bytes]] = deque()
        self._syncs = False

    def write(self, transport: asyncio.Transport, kept: bytes, answer: bytes) -> None:
        """Answer once `kept` is synced."""
        self._waiting.append((transport, kept, answer))
        if not self._syncs:
            self._syncs = True
            asyncio.get_running_loop().call_soon(self._sync)

    def _sync(self) -> None:
        batch, self._waiting = self._waiting, deque()
        loop = asyncio.get_running_loop()
        synced = loop.run_in_executor(None, self._append, b"".join(one[1] for one in batch))
        synced.add_done_callback(partial(self._synced, batch))

    def _append(self, data: bytes) -> None:
        os.write(self._file, data)
        os.fdatasync(self._file)

    def _synced(
        self, batch: deque[tuple[asyncio.Transport, bytes, bytes]], future: asyncio.Future[None]
    ) -> None:
        future.result()
        said: dict[asyncio.Transport, list[bytes]] = {}
        for transport, _, answer in batch:
            said.setdefault(transport, []).append(answer)
        for transport, answers in said.items():
            if not transport.is_closing():
                transport.write(b"".join(answers))
        self._syncs = False
        if self._waiting:
            self._syncs = True
            self._sync()


class FloorConnection(asyncio.Protocol):
    """A connection."""

    def __init__(self, toy: Toy) -> None:
        self._toy = toy
        self._read = bytearray()
        self._said: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer complete requests at the end of this iteration of the loop, as a node does."""
        read = self._read
        read += data
        first = not self._said
        while len(read) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(read[:PREFIX_BYTES], "big")
            if len(read) < end:
                break
            self._act(*msgpack.unpackb(read[PREFIX_BYTES:end]))
            del read[:end]
        if self._said and first:
            asyncio.get_running_loop().call_soon(self._say)

    def _act(self, kind: int, id: int, body: Any) -> None:
        toy, op = self._toy, body.get("op")
        if kind == Kind.HELLO:
            self._said.append(_frame(Kind.WELCOME, id, {}))
        elif kind == Kind.RUN and body["script"].startswith("CREATE"):
            self._keep(body["params"], _frame(Kind.ANSWER, id, {"results": [{"value": [ROW]}]}))
        elif kind == Kind.RUN:
            self._said.append(_frame(Kind.ANSWER, id, {"results": [{"value": [ROW]}]}))
        elif op == "get":
            self._said.append(_frame(Kind.VALUE, id, {"value": toy.values.get(body["key"])}))
        elif op == "set":
            toy.values[body["key"]] = body["value"]
            self._keep(body, _frame(Kind.VALUE, id, {"written": True}))
        elif op == "publish":
            self._keep(body, _frame(Kind.VALUE, id, {"position": 1, "duplicate": False}))
        elif op == "take":
            self._keep(body, _frame(Kind.VALUE, id, {"messages": MESSAGES}))
        elif op == "ack":
            self._keep(body, _frame(Kind.VALUE, id, {"acked": 1, "stale": 0}))

    def _keep(self, change: Any, answer: bytes) -> None:
        self._toy.write(self._transport, msgpack.packb(change), answer)

    def _say(self) -> None:
        said, self._said = self._said, []
        self._transport.write(b"".join(said))


def _frame(kind: Kind, id: int, body: Any) -> bytes:
    packed: bytes = msgpack.packb((int(kind), id, body))
    return len(packed).to_bytes(PREFIX_BYTES, "big") + packed


async def serve(port: int, path: str) -> None:
    """Serve until the process is ended."""
    toy = Toy(path)
    server = await asyncio.get_running_loop().create_server(
        lambda: FloorConnection(toy), "127.0.0.1", port
    )
    print("ready", flush=True)
    await server.serve_forever()


# --- beside a node --------------------------------------------------------------------------------


class FloorProcess:
    """The toy in a process of its own.

    :param path: a file on the disk that nodes are measured on
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.wire = ""

    def __enter__(self) -> Self:
        port = free_port()
        words = [sys.executable, "-m", "bench.floor", str(port), str(self._path)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        self.wire = f"127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes its pipes, and waits
            self._process.kill()

    def cpu_seconds(self) -> float:
        """Processor time used so far, all threads together, seconds."""
        return cpu_seconds(self._process.pid)

    def queue(self) -> QueueSide:
        """Return a queue that always has a message."""
        publish, take = node_queue.publish, node_queue.take
        return QueueSide(
            FLOOR, self.wire, _nothing_to_fill, publish, take, node_queue.pass_on, None,
            cpu_seconds=self.cpu_seconds,
        )  # fmt: skip


def _nothing_to_fill(_count: int) -> None:
    """Do nothing: every take finds a message."""


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
