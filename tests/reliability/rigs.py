"""A node on a port of its own that is killed, paused and started again under its clients; commands
that are killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path

from bench.ports import free_port
from storeclient import AsyncClient
from tests.architecture.sources import ROOT
from tests.processes import PASSWORD, USER, NodeProcess, command_line, environment
from tests.reliability import faulty

NAMESPACE = "shop"
DATABASE = "main"


class Rig:
    """The node, whose wire surface keeps its port.

    :param definitions: what its database holds at first, as one script
    :param faults: what is broken in the node, see `faulty`
    """

    def __init__(self, directory: Path, definitions: str, faults: str = "") -> None:
        self.port = free_port()
        self._faults = faults
        self.node = self._process(directory).start()
        place = f"{NAMESPACE}.{DATABASE}"
        answer = self.node.script(
            f"DEFINE NAMESPACE {NAMESPACE}; DEFINE DATABASE {place}; USE {place}; {definitions}"
        )
        assert "error" not in answer, answer["error"]

    def _process(self, directory: Path) -> NodeProcess:
        words = ("--http", "127.0.0.1:0", "--serve", f"127.0.0.1:{self.port}")
        return NodeProcess(
            directory, words, more={faulty.FAULTS: self._faults}, module=faulty.MODULE
        )

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
        again = self._process(self.node.directory)
        self.node = await asyncio.to_thread(again.start)

    async def pause(self, seconds: float) -> None:
        self.node.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.node.signal(signal.SIGCONT)

    def end(self) -> None:
        if self.node.process.poll() is None:
            self.node.kill()


def killed_at_line(lines: int, *words: str) -> bool:
    """Run the command, and kill it once it has said so many lines; whether it was killed."""
    with subprocess.Popen(
        command_line(*words),
        env=environment(),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as running:
        assert running.stderr is not None
        for _ in range(lines):
            if not running.stderr.readline():
                return False
        running.kill()
    return True
