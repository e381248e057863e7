"""A node in a process of its own, as shipped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.processes import MEASURED, cpu_seconds, environment
from storeclient import Client

ROOT: Final = Path(__file__).parents[1]
USER: Final = "root"
PASSWORD: Final = "correct horse battery"
NAMESPACE: Final = "bench"
DATABASE: Final = "bench"
SURFACES: Final = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")
START_SECONDS: Final = 600
"""Timeout of a node's start, seconds."""


class NodeFailed(Exception):
    """The node ended before it was ready; the message is its log."""


class NodeProcess:
    """A node that serves `directory` on free ports of the loopback.

    :param directory: made when missing; it survives the process
    :param module: the module that is run as the command
    :param tree: the tree that is run: the measured one, or another build
    :param flags: additional flags
    """

    def __init__(
        self,
        directory: Path,
        module: str = "surfaces.command.main",
        tree: Path = MEASURED,
        flags: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self._module = module
        self._tree = tree
        self._flags = flags
        self.start_seconds = 0.0
        """Seconds from the start of the process until it reports ready."""
        self.http = ""
        self.wire = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Start the node and wait until it is ready.

        :raises NodeFailed: it ended before
        """
        began = time.perf_counter()
        log_path = self.directory.with_suffix(".log")
        with log_path.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(self.directory), *SURFACES, *self._flags],
                cwd=self._tree,
                env=environment(self._tree, STORE_USER=USER, STORE_PASSWORD=PASSWORD),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                text=True,
            )
        ready = self._wait_ready(log_path, began)
        self.start_seconds = time.perf_counter() - began
        self.http, self.wire = ready["http"], ready["wire"]
        return self

    def _wait_ready(self, log_path: Path, began: float) -> dict[str, Any]:
        # The log is a file and not a pipe: a full pipe without a reader would block the node.
        with log_path.open() as log:
            kept = ""
            while time.perf_counter() - began < START_SECONDS:
                kept += log.readline()
                if not kept.endswith("\n"):
                    if self.process.poll() is not None:
                        break
                    time.sleep(0.001)
                    continue
                line, kept = kept, ""
                found = _event(line)
                if found.get("event") == "ready":
                    return found
        self.process.kill()
        self.process.wait()
        raise NodeFailed(log_path.read_text().strip() or "the node wrote nothing to its log")

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process."""
        assert self._process is not None, "start it first"
        return self._process

    def client(self) -> Client:
        """Return a client that is signed in, in the database of the benchmarks."""
        return Client(self.wire, user=USER, password=PASSWORD, ns=NAMESPACE, db=DATABASE)

    def memory_mib(self) -> float:
        """Resident memory, MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise NodeFailed("the system does not say how much memory it has")

    def cpu_seconds(self) -> float:
        """Processor time used so far, all threads together, seconds."""
        return cpu_seconds(self.process.pid)

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def kill(self) -> None:
        """Send SIGKILL: data that is not synced is lost."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.stop()


def define_place(client: Client, *tables: str) -> None:
    """Define the namespace, the database and the tables of a run."""
    client.use(None)
    client.query(f"DEFINE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    client.query(f"DEFINE DATABASE IF NOT EXISTS {NAMESPACE}.{DATABASE}")
    client.use(NAMESPACE, DATABASE)
    for table in tables:
        client.query(f"DEFINE TABLE IF NOT EXISTS {table}")


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
