"""etcd with three members, and puts over its JSON gateway, without a client library.

A put is answered once two of the members have synced it. Requests go to etcd's leader.
"""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.ports import free_port
from bench.processes import START_SECONDS, NotStarted

NAME: Final = "etcd, 3 members"
MEMBERS: Final = 3
ASKED_SECONDS: Final = 2.0


def missing() -> str | None:
    """Return the reason why etcd can't run on this machine, or None."""
    return None if shutil.which("etcd") else "not installed (apt-get install etcd-server)"


class EtcdMember:
    """A member, as a process."""

    def __init__(self, directory: Path, name: str, port: int, peer: int, all_of: str) -> None:
        self.port = port
        directory.mkdir(parents=True)
        at = f"http://127.0.0.1:{port}"
        among = f"http://127.0.0.1:{peer}"
        self._said = directory / "log"
        self._words = (
            "etcd", "--name", name, "--data-dir", str(directory / "data"),
            "--listen-client-urls", at, "--advertise-client-urls", at,
            "--listen-peer-urls", among, "--initial-advertise-peer-urls", among,
            "--initial-cluster", all_of, "--log-level", "error",
        )  # fmt: skip
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

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the gateway.

        :raises OSError: it failed
        """
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ASKED_SECONDS)
        try:
            asked.request("POST", path, json.dumps(body))
            answer = asked.getresponse()
            data = answer.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            asked.close()
        if answer.status != 200:
            raise OSError(data.decode(errors="replace"))
        found: dict[str, Any] = json.loads(data)
        return found

    def put(self, key: str = "k") -> None:
        """Put a key.

        :raises OSError: it failed
        """
        self.ask("/v3/kv/put", {"key": encoded(key), "value": encoded("v")})


class Etcds:
    """All members."""

    def __init__(self, members: list[EtcdMember]) -> None:
        self.members = members

    def leader(self) -> EtcdMember:
        """Wait for an elected leader and return it.

        :raises NotStarted: no member leads in time
        """
        late = time.monotonic() + START_SECONDS
        while time.monotonic() < late:
            for member in self.members:
                with suppress(OSError, KeyError):
                    told = member.ask("/v3/maintenance/status", {})
                    if told["leader"] == told["header"]["member_id"]:
                        return member
            time.sleep(0.02)
        raise NotStarted("etcd: no member leads")

    def put_anywhere(self) -> None:
        """Put a key on any member, and retry until one accepts it."""
        while True:
            for member in self.members:
                if member.process is None:
                    continue
                with suppress(OSError):
                    member.put()
                    return


@contextmanager
def etcds(directory: Path) -> Iterator[Etcds]:
    """Run three members, ready with a leader."""
    ports = [(free_port(), free_port()) for _ in range(MEMBERS)]
    names = [f"m{number}" for number in range(1, MEMBERS + 1)]
    all_of = ",".join(
        f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in zip(names, ports, strict=True)
    )
    found = Etcds(
        [
            EtcdMember(directory / name, name, port, peer, all_of)
            for name, (port, peer) in zip(names, ports, strict=True)
        ]
    )
    try:
        for member in found.members:
            member.start()
        found.leader()
        found.put_anywhere()
        yield found
    finally:
        for member in found.members:
            member.kill()


def encoded(text: str) -> str:
    """Encode a key or value for the gateway (base64)."""
    return base64.b64encode(text.encode()).decode()
