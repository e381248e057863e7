"""A node on a port of its own that is killed, paused and started again under its clients."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

from storeclient import AsyncClient
from tests.processes import PASSWORD, USER, NodeProcess

NAMESPACE = "shop"
DATABASE = "main"


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Rig:
    """The node, whose wire surface keeps its port.

    :param definitions: what its database holds at first, as one script
    """

    def __init__(self, directory: Path, definitions: str) -> None:
        self.port = free_port()
        self.words = ("--http", "127.0.0.1:0", "--serve", f"127.0.0.1:{self.port}")
        self.node = NodeProcess(directory, self.words).start()
        place = f"{NAMESPACE}.{DATABASE}"
        answer = self.node.script(
            f"DEFINE NAMESPACE {NAMESPACE}; DEFINE DATABASE {place}; USE {place}; {definitions}"
        )
        assert "error" not in answer, answer["error"]

    def client(self) -> AsyncClient:
        """One that waits for the node to come back."""
        return AsyncClient(
            f"127.0.0.1:{self.port}",
            user=USER,
            password=PASSWORD,
            ns=NAMESPACE,
            db=DATABASE,
            connect_timeout=60,
        )

    async def kill(self) -> None:
        """SIGKILL, and start again."""
        self.node.kill()
        again = NodeProcess(self.node.directory, self.words)
        self.node = await asyncio.to_thread(again.start)

    async def pause(self, seconds: float) -> None:
        """SIGSTOP for a while."""
        self.node.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.node.signal(signal.SIGCONT)

    def end(self) -> None:
        """Let it be no more."""
        if self.node.process.poll() is None:
            self.node.kill()
