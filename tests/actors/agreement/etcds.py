"""A real etcd: one process, one directory, ended with the test."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from tests.certificates import self_signed

ETCD = shutil.which("etcd")
LOGIN = ("node", "another horse at etcd")
needs_etcd = pytest.mark.skipif(ETCD is None, reason="not installed: etcd-server")


@dataclass
class EtcdProcess:
    """One member, alone."""

    directory: Path
    words: Sequence[str] = ()
    scheme: str = "http"
    shows: ssl.SSLContext | None = None
    """What is shown to one that is reached by TLS, and who is trusted."""
    port: int = field(default_factory=free_port)
    peer: int = field(default_factory=free_port)
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

    def ask_for_users(self, name: str, password: str) -> None:
        """From now on it answers users alone, of whom this is one that may do everything."""
        self.post("/v3/auth/user/add", {"name": name, "password": password})
        self.post("/v3/auth/user/grant", {"user": name, "role": "root"})
        self.post("/v3/auth/enable", {})

    def let_in(self, name: str, password: str) -> None:
        """A user that may do what the documentation says that a node's has to."""
        below = {"key": _b64("/storenode/"), "range_end": _b64("/storenode0")}
        may = {"permType": "READWRITE", **below}
        self.post("/v3/auth/role/add", {"name": "nodes"})
        self.post("/v3/auth/role/grant", {"name": "nodes", "perm": may})
        self.post("/v3/auth/user/add", {"name": name, "password": password})
        self.post("/v3/auth/user/grant", {"user": name, "role": "nodes"})

    def post(self, path: str, body: dict[str, Any], token: str = "") -> Any:
        """One request to its gateway, for what tests set up."""
        with closing(self._connection()) as asked:
            asked.request("POST", path, json.dumps(body), {"Authorization": token} if token else {})
            answer = asked.getresponse()
            data = answer.read()
        assert answer.status == 200, data
        return json.loads(data)

    def _connection(self) -> http.client.HTTPConnection:
        if self.scheme == "https":
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=10, context=self.shows
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

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
def etcd_process(
    directory: Path, *words: str, scheme: str = "http", shows: ssl.SSLContext | None = None
) -> Iterator[EtcdProcess]:
    """One that runs while this does."""
    found = EtcdProcess(directory, words, scheme, shows)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@contextmanager
def guarded_etcd(folder: Path) -> Iterator[EtcdProcess]:
    """One that is reached by TLS, wants a certificate, and asks for a user: `LOGIN`. Its own is
    `etcd.pem`, signed by itself; who has `node.pem` and `node.key` may connect."""
    certificate, key = map(str, self_signed(folder, "etcd"))
    # Its gateway takes none with a common name, where it asks for users.
    shown, shown_key = map(str, self_signed(folder, "node", is_named=False))
    both = folder / "both.pem"  # its gateway shows itself the certificate that it shows others
    both.write_text(Path(certificate).read_text() + Path(shown).read_text())
    context = ssl.create_default_context(cafile=certificate)
    context.load_cert_chain(shown, shown_key)
    words = (
        "--cert-file", certificate, "--key-file", key,
        "--trusted-ca-file", str(both), "--client-cert-auth",
    )  # fmt: skip
    with etcd_process(folder / "etcd", *words, scheme="https", shows=context) as found:
        found.let_in(*LOGIN)
        found.ask_for_users("root", "another horse for root")
        yield found


def _b64(text: str) -> str:
    return b64encode(text.encode()).decode()
