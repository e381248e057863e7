"""`python -m tests.cluster.network DIR`: a proxy in place of the network between nodes and etcd.

The proxy has an address for every node and for etcd, which the others use. It identifies the
connecting process by its socket (`/proc`), so that it can cut the network between two processes,
even in one direction only. A cut connection is not closed: bytes wait, as on an unplugged cable. A
slow link delays all data, up to `CHUNK_BYTES` at a time. `cuts.json` and `late.json` hold the cuts
and delays by pairs of names, and are polled all the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from tests.cluster.plan import ETCD, ClusterPlan, load
from tests.cluster.processes import pid_of

LOOK_SECONDS: Final = 0.02
CHUNK_BYTES: Final = 64 * 1024


class Network:
    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._cut: frozenset[tuple[str, str]] = frozenset()
        self._late: dict[tuple[str, str], float] = {}
        """Delays, seconds."""
        self._changed = asyncio.Condition()
        self._seen: dict[Path, int] = {}

    async def run(self) -> None:
        """Forward until the process ends."""
        places = [(node.name, node.outside, node.peer) for node in self._plan.nodes]
        places.append((ETCD, self._plan.etcd_outside, self._plan.etcd))
        async with AsyncExitStack() as open_ones:
            for name, outside, inside in places:
                await open_ones.enter_async_context(
                    await asyncio.start_server(self._carrier(name, inside), "127.0.0.1", outside)
                )
            (self._plan.directory / "network.ready").touch()
            while True:
                await self._look()
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        late, cut = self._news(self._plan.late), self._news(self._plan.cuts)
        if late is not None:
            self._late = {(source, to): seconds for source, to, seconds in late}
        if cut is not None:
            self._cut = frozenset((source, to) for source, to in cut)
            async with self._changed:
                self._changed.notify_all()

    def _news(self, path: Path) -> list[Any] | None:
        """Return the content of a file that has changed since it was read; None: it has not."""
        try:
            written = path.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if written == self._seen.get(path):
            return None
        self._seen[path] = written
        said: list[Any] = json.loads(path.read_text())
        return said

    def _carrier(self, to: str, port: int) -> Callable[[Reader, Writer], Awaitable[None]]:
        async def carry(reader: Reader, writer: Writer) -> None:
            name = self._who(writer)
            try:
                await self._whole(name, to)
                behind, ahead = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.transport.abort()
                return
            await self._carry(name, (reader, writer), to, (behind, ahead))

        return carry

    async def _carry(
        self, name: str, near: tuple[Reader, Writer], to: str, far: tuple[Reader, Writer]
    ) -> None:
        ways = [
            asyncio.create_task(self._pump(near[0], far[1], name, to)),
            asyncio.create_task(self._pump(far[0], near[1], to, name)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        # Close the other end too, once the link is not cut.
        with suppress(OSError):
            await self._whole(name, to)
        for way in ways:
            way.cancel()
        for end in (near[1], far[1]):
            end.transport.abort()

    async def _pump(self, reader: Reader, writer: Writer, source: str, to: str) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if late := self._late.get((source, to)):
                    await asyncio.sleep(late)
                await self._whole(source, to)
                writer.write(data)
                await writer.drain()

    async def _whole(self, source: str, to: str) -> None:
        """Wait until the link is not cut in that direction."""
        async with self._changed:
            await self._changed.wait_for(lambda: (source, to) not in self._cut)

    def _who(self, writer: Writer) -> str:
        """Return the name of the node at the other end; empty: it is no node."""
        theirs, ours = (writer.get_extra_info(name)[1] for name in ("peername", "sockname"))
        wanted = f"socket:[{_inode(theirs, ours)}]"
        for node in self._plan.nodes:
            pid = pid_of(self._plan, node.name)
            if pid is not None and wanted in _sockets(pid):
                return node.name
        return ""


def _inode(port: int, to: int) -> str:
    """Return the inode of the socket that is connected from one port of the loopback to another.

    A port alone is not enough: one that was closed a moment ago may be in use again.
    """
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if [int(end.rpartition(":")[2], 16) for end in fields[1:3]] == [port, to]:
                return fields[9]
    return ""


def _sockets(pid: int) -> Iterator[str]:
    """Yield the targets of a process's file descriptors."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


if __name__ == "__main__":
    asyncio.run(Network(load(Path(sys.argv[1]))).run())
