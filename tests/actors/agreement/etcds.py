"""A real etcd: one process, one directory, ended with the test."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ETCD = shutil.which("etcd")
needs_etcd = pytest.mark.skipif(ETCD is None, reason="not installed: etcd-server")


@dataclass
class EtcdProcess:
    """One member, alone."""

    directory: Path
    words: Sequence[str] = ()
    scheme: str = "http"
    port: int = field(default_factory=lambda: _free_port())
    peer: int = field(default_factory=lambda: _free_port())
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin, and wait until it has a leader, itself."""
        self.directory.mkdir(parents=True, exist_ok=True)
        assert ETCD is not None
        words = [
            ETCD, "--data-dir", str(self.directory / "data"),
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", f"http://127.0.0.1:{self.peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{self.peer}",
            "--log-level", "error", "--heartbeat-interval", "20", "--election-timeout", "200",
            *self.words,
        ]  # fmt: skip
        said = (self.directory / "said").open("ab")
        with said:
            self.process = subprocess.Popen(words, stdout=said, stderr=said)
        ends = time.monotonic() + 60
        while not self._is_ready():
            assert self.process.poll() is None, (self.directory / "said").read_text()
            assert time.monotonic() < ends, (self.directory / "said").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once; what it has is on its disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """One request to its gateway, for what tests set up."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as asked:
            asked.request("POST", path, json.dumps(body))
            answer = asked.getresponse()
            data = answer.read()
        assert answer.status == 200, data
        return json.loads(data)

    def _is_ready(self) -> bool:
        if self.scheme == "https":
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                return False
            return True
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)) as asked:
            try:
                asked.request("GET", "/health")
                return bool(json.loads(asked.getresponse().read()).get("health") == "true")
            except (OSError, ValueError, http.client.HTTPException):
                return False


@contextmanager
def etcd_process(directory: Path, *words: str, scheme: str = "http") -> Iterator[EtcdProcess]:
    """One that runs while this does."""
    found = EtcdProcess(directory, words, scheme)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
