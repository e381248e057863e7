"""A proxy between a client and a node that knows frames, and does to them what a case asks for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.conformance.peer import Message, message

SINGLE: Final = 4096
"""Bytes of a frame that are passed one by one; the rest follows at once."""


@dataclass
class Fault:
    """Fault that happens to a frame.

    :param on: `request`, a frame of the client, or `answer`, one of the node
    :param of: the kind of the request, also of an answer
    :param op: its operation, of a KV, TOPIC or VAULT
    :param skip: frames that pass before
    :param times: frames that it happens to
    :param after_bytes: bytes of the frame that pass before the cut; -1: all of them
    :param cut: `reset`, `fin` or `silence`
    :param does: `hold` until the case lets it go, `single` bytes, `swallow`, `swap` with the next
    """

    on: str
    of: str
    op: str | None = None
    skip: int = 0
    times: int = 1
    after_bytes: int = 0
    cut: str | None = None
    does: str | None = None

    def is_due(self, on: str, kind: str, op: str | None) -> bool:
        """True if this frame is the one. Counts it."""
        if self.times == 0 or (on, kind) != (self.on, self.of) or self.op not in (None, op):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass(eq=False)
class Pair:
    """Connection of a client, and its own to the node."""

    client: asyncio.StreamWriter
    node: asyncio.StreamWriter
    asked: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    is_silent: bool = False
    kept: bytes | None = None
    """An answer that waits for the one behind it."""


class FaultProxy:
    """It listens while it is open; all its methods are for its own event loop."""

    def __init__(self, target: Callable[[], tuple[str, int]]) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pairs: set[Pair] = set()
        self._port = 0
        self.faults: list[Fault] = []
        self.frames: Counter[str] = Counter()
        """Frames of clients, by kind, and by kind and operation: `KV`, `KV incr`."""
        self.values = 0
        """Most values in one TOPIC of a client."""
        self.connections = 0
        self.happened = 0
        """Faults that have happened."""
        self._let = asyncio.Event()
        self.held = 0

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Listen no more. Connections stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """End everything."""
        await self.stop()
        self._let.set()
        for pair in list(self._pairs):
            self._end(pair)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, how: str) -> None:
        """End all connections."""
        for pair in list(self._pairs):
            self._cut(pair, how)

    def let_go(self) -> None:
        """Let frames go that are held, and those that would be."""
        self._let.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here = asyncio.current_task()
        assert here is not None
        self._tasks.add(here)
        self.connections += 1
        pair = None
        try:
            there, back = await asyncio.open_connection(*self._target())
            _set_nodelay(writer)
            _set_nodelay(back)
            pair = Pair(writer, back)
            self._pairs.add(pair)
            await asyncio.gather(
                self._pass(pair, reader, back, "request"), self._pass(pair, there, writer, "answer")
            )
        except OSError:
            pass  # the node is away, or an end is gone: so is this connection
        finally:
            if pair is not None:
                self._end(pair)
            writer.transport.abort()
            self._tasks.discard(here)

    def _end(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        pair.node.transport.abort()
        pair.client.transport.abort()

    async def _pass(
        self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on: str
    ) -> None:
        while True:
            try:
                head = await reader.readexactly(4)
                data = head + await reader.readexactly(int.from_bytes(head, "big"))
            except (asyncio.IncompleteReadError, ConnectionError) as ended:
                if not pair.is_silent:
                    with contextlib.suppress(OSError):
                        if isinstance(ended, asyncio.IncompleteReadError):
                            writer.write(ended.partial)
                        # A reset ends the other side too: a node that is killed resets.
                        writer.close()
                return
            if not pair.is_silent:
                await self._frame(pair, writer, on, data)

    async def _frame(self, pair: Pair, writer: asyncio.StreamWriter, on: str, data: bytes) -> None:
        found = message(data[4:])
        kind, op = self._noted(pair, on, found)
        fault = next((one for one in self.faults if one.is_due(on, kind, op)), None)
        if fault is None:
            writer.write(data)
            if on == "answer" and pair.kept is not None:
                kept, pair.kept = pair.kept, None
                writer.write(kept)
            await writer.drain()
            return
        self.happened += 1
        if fault.cut is not None:
            length = len(data) if fault.after_bytes < 0 else fault.after_bytes
            writer.write(data[:length])
            await writer.drain()
            self._cut(pair, fault.cut)
        elif fault.does == "hold":
            self.held += 1
            await self._let.wait()
            writer.write(data)
        elif fault.does == "single":
            for at in range(min(len(data), SINGLE)):
                writer.write(data[at : at + 1])
                await asyncio.sleep(0)
            writer.write(data[SINGLE:])
        elif fault.does == "swap":
            pair.kept = data
        else:
            assert fault.does == "swallow", fault

    def _noted(self, pair: Pair, on: str, found: Message) -> tuple[str, str | None]:
        if on == "answer":
            if found.kind in ("CHANGE", "PART", "BYE"):
                return found.kind, None
            return pair.asked.get(found.id, (found.kind, None))
        op = found.body.get("op") if isinstance(found.body, dict) else None
        pair.asked[found.id] = (found.kind, op)
        self.frames[found.kind] += 1
        if "values" in (found.body or {}):
            self.values = max(self.values, len(found.body["values"]))
        if op is not None:
            self.frames[f"{found.kind} {op}"] += 1
        return found.kind, op

    def _cut(self, pair: Pair, how: str) -> None:
        if how == "silence":
            pair.is_silent = True
            return
        if how == "fin":
            self._pairs.discard(pair)
            pair.client.close()
            pair.node.transport.abort()
            return
        sock: Any = pair.client.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end(pair)


def _set_nodelay(writer: asyncio.StreamWriter) -> None:
    sock: Any = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
