"""NATS JetStream with three servers and a replicated stream (R3).

A publish is answered once two of the servers have it: on their disks with `sync_interval: always`,
and in their memory with the default, which syncs every two minutes.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.drivers import Measured, together
from bench.jetstream import BODY, DRIVERS, STREAM, publish, server_path
from bench.ports import free_port
from bench.processes import START_SECONDS, NotStarted
from bench.queues import Share

SERVERS: Final = 3
NAMES: Final = {
    "JetStream R3, sync_interval: always": "always",
    "JetStream R3, default (synced later)": "2m",
}
ASKED_SECONDS: Final = 2.0


class Server:
    """A server, as a process."""

    def __init__(self, directory: Path, name: str, port: int, words: str) -> None:
        self.name = name
        self.address = f"nats://127.0.0.1:{port}"
        directory.mkdir(parents=True)
        self._said = directory / "log"
        settings = directory / "settings"
        settings.write_text(words)
        found = server_path()
        assert found is not None, "ask what is missing first"
        self._words = (found, "-c", str(settings))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(self._words, stdout=said, stderr=said)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Jetstreams:
    """All servers, with a stream."""

    def __init__(self, name: str, servers: list[Server]) -> None:
        self.name = name
        self.servers = servers

    def begin(self) -> None:
        """Make the stream, and retry until that succeeds.

        :raises NotStarted: it never did
        """
        self._until(self._make)
        self._until(self._publish)

    def publish(self, clients: int, requests: int) -> Measured:
        """Publish so many messages, with answers, to the server that leads the stream."""
        leader = self.leader()
        processes = min(DRIVERS, clients)
        shares = [
            Share(leader.address, clients // processes, max(requests // clients, 1))
            for _ in range(processes)
        ]
        return together(publish, shares)

    def leader(self) -> Server:
        """Return the server that leads the stream."""
        name = self._until(self._led_by)
        return next(server for server in self.servers if server.name == name)

    def publish_anywhere(self) -> None:
        """Publish one message to any server, and retry until one accepts it."""
        self._until(self._publish)

    def in_sync(self) -> None:
        """Wait until every server has all of the stream."""
        self._until(self._all_current)

    def _until(self, work: Any) -> Any:
        from nats.errors import Error

        late = time.monotonic() + START_SECONDS
        why: Exception | None = None
        while time.monotonic() < late:
            for server in self.servers:
                if server.process is None:
                    continue
                try:
                    return asyncio.run(_connected(server.address, work))
                except (Error, OSError, LookupError) as error:
                    why = error
            time.sleep(0.01)
        raise NotStarted(f"{self.name}: never: {work.__name__}: {why}")

    async def _make(self, stream: Any) -> None:
        from nats.js.api import StreamConfig

        await stream.add_stream(StreamConfig(name=STREAM, subjects=[STREAM], num_replicas=SERVERS))

    async def _publish(self, stream: Any) -> None:
        await stream.publish(STREAM, BODY, timeout=ASKED_SECONDS)

    async def _led_by(self, stream: Any) -> str:
        told = await stream.stream_info(STREAM)
        found: str = told.cluster.leader
        if found not in {server.name for server in self.servers if server.process is not None}:
            raise LookupError(found)
        return found

    async def _all_current(self, stream: Any) -> None:
        told = await stream.stream_info(STREAM)
        if not all(replica.current for replica in told.cluster.replicas):
            raise LookupError("one is behind")


async def _connected(address: str, work: Any) -> Any:
    import nats

    async def silent(_error: Exception) -> None:
        pass

    connection = await nats.connect(
        address, allow_reconnect=False, connect_timeout=1, error_cb=silent
    )
    try:
        return await work(connection.jetstream(timeout=ASKED_SECONDS))
    finally:
        await connection.close()


@contextmanager
def jetstreams(directory: Path, name: str) -> Iterator[Jetstreams]:
    """Serve one of `NAMES`."""
    ports = [(free_port(), free_port()) for _ in range(SERVERS)]
    routes = ", ".join(f'"nats://127.0.0.1:{among}"' for _, among in ports)
    servers = []
    for number, (port, among) in enumerate(ports, 1):
        own = directory / f"s{number}"
        words = (
            f"server_name: s{number}\nlisten: 127.0.0.1:{port}\n"
            f'jetstream {{ store_dir: "{own}", sync_interval: {NAMES[name]} }}\n'
            f"cluster {{ name: bench, listen: 127.0.0.1:{among}, routes: [{routes}] }}\n"
        )
        servers.append(Server(own, f"s{number}", port, words))
    found = Jetstreams(name, servers)
    try:
        for server in servers:
            server.start()
        found.begin()
        yield found
    finally:
        for server in servers:
            server.kill()
