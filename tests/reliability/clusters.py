"""A cluster of real nodes, each a process, with a real etcd; and a writer that remembers what was
acknowledged to it.

The first node has begun alone; the others join with tokens. Each is killed, stopped and started as
a machine would be: with its directory, on its address for other nodes.
"""

from __future__ import annotations

import http.client
import itertools
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.actors.agreement.etcds import EtcdProcess, etcd_process
from tests.processes import NodeProcess

ROLES = "serving, writable, coordinating"
LEASE_SECONDS = 2
PATIENCE_SECONDS = 60
"""Until something happens that has to happen; a limit on the wait, not a figure to reach."""
PASSING = {"NotWritable", "NotEnoughReplicas", "Busy", "UnknownOutcome", "Draining", "Failed"}
"""What a write may be refused with while nodes die."""


@dataclass
class Member:
    """One node."""

    name: str
    directory: Path
    peer: str
    """Where other nodes reach it."""
    process: NodeProcess | None = None
    stands: bool = False
    """Whether it is stopped by a signal, and nobody asks it."""
    _reader: threading.Thread | None = None

    def start(self, **more: str) -> None:
        """Start it, and wait until it is ready to be asked."""
        words = ("--http", "127.0.0.1:0", "--peer", self.peer)
        found = NodeProcess(self.directory, words, more).start()
        # What it logs is read all along: a full pipe would stop it.
        self._reader = threading.Thread(target=_read, args=(found,), daemon=True)
        self._reader.start()
        self.process = found

    def kill(self) -> None:
        """SIGKILL."""
        process, self.process = self.process, None
        if process is not None:
            process.process.kill()
            process.process.wait()
            self._ended(process)

    def pause(self) -> None:
        """SIGSTOP: as a machine that is suspended, it does nothing, and knows nothing of it."""
        assert self.process is not None
        self.stands = True
        self.process.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.signal(signal.SIGCONT)
        self.stands = False

    def stop(self) -> None:
        """SIGTERM, and its end."""
        process, self.process = self.process, None
        if process is not None:
            process.signal()
            assert process.process.wait(PATIENCE_SECONDS) == 0, process.lines[-20:]
            self._ended(process)

    def _ended(self, process: NodeProcess) -> None:
        assert self._reader is not None
        self._reader.join(PATIENCE_SECONDS)
        process._stderr.close()

    def script(self, text: str) -> Any:
        """The JSON answer of a script; None: nobody answers."""
        process = self.process
        if process is None or self.stands:
            return None
        try:
            return process.script(text)
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def value(self, text: str) -> Any:
        """What the last statement answered; None: it was refused, or nobody answers."""
        answer = self.script(text)
        if answer is None or "error" in answer:
            return None
        return answer["results"][-1]["value"]

    @property
    def about(self) -> dict[str, Any]:
        """What it says of itself; empty: nothing."""
        return self.value("INFO FOR NODE") or {}


def _read(process: NodeProcess) -> None:
    with suppress(ValueError, OSError):
        for raw in process._stderr:
            process.lines.append({"event": raw.decode("utf-8", "replace")})


@dataclass
class Cluster:
    """All of it."""

    etcd: EtcdProcess
    members: list[Member]
    acknowledged: set[int] = field(default_factory=set)
    """The records that a writer was told of."""

    def until(self, what: str, condition: Any) -> Any:
        """Wait until something is there."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"never: {what}; {self.shown()}")

    @property
    def leader(self) -> Member | None:
        """Who leads, as it says itself."""
        for each in self.members:
            if each.about.get("life") == "leading":
                return each
        return None

    def led(self) -> Member:
        """Whoever leads, as soon as somebody does."""
        found = self.until("somebody leads", lambda: self.leader)
        assert isinstance(found, Member)
        return found

    def in_sync(self, count: int) -> None:
        """Wait until so many nodes are in the set, as the log of who leads shows it by what it
        takes: all followers attached, and nobody behind."""

        def is_so() -> bool:
            leader = self.leader
            about = {} if leader is None else leader.about
            return about.get("followers") == count - 1 and about.get("furthest_lag") == 0

        self.until(f"{count} nodes in sync", is_so)

    def shown(self) -> str:
        """How all of it stands, for people."""
        lines = []
        for each in self.members:
            about = each.about
            seen = {name: about.get(name) for name in ("life", "waits_for", "leader", "sequence")}
            last = [] if each.process is None else each.process.lines[-8:]
            lines.append(f"{each.name}: {seen} {last}")
        return "\n".join(lines)

    def write(self, number: int) -> bool:
        """Write one record wherever that is taken; whether it was acknowledged."""
        for each in self.members:
            answer = each.script(f"USE a.b; UPSERT t:{number} SET n = {number}")
            if answer is None:
                continue
            if "error" not in answer:
                self.acknowledged.add(number)
                return True
            assert answer["error"]["code"] in PASSING, answer
        return False

    @contextmanager
    def written(self, writers: int = 2) -> Iterator[None]:
        """Records are written all along, by several at once, each as soon as its last was taken or
        refused."""
        numbers, over = itertools.count(1_000_000), threading.Event()

        def write() -> None:
            while not over.is_set():
                self.write(next(numbers))

        with ThreadPoolExecutor(writers) as pool:
            writing = [pool.submit(write) for _ in range(writers)]
            try:
                yield
            finally:
                over.set()
            for each in writing:
                each.result()

    def write_until_taken(self, number: int) -> None:
        """Write one record, again and again until it is acknowledged."""
        self.until(f"record {number} is taken", lambda: self.write(number))

    def check(self) -> None:
        """Every record that was acknowledged is on every node, and all have the same state."""
        self.in_sync(len(self.members))
        hashes = set()
        for each in self.members:

            def has_all(each: Member = each) -> bool:
                rows = each.value("USE a.b; SELECT n FROM t")
                return rows is not None and self.acknowledged <= {row["n"] for row in rows}

            self.until(f"{each.name} shows all that was acknowledged", has_all)
        for each in self.members:
            found = each.value("INFO FOR STATE")
            assert found is not None
            hashes.add((found["sequence"], found["hash"]))
        assert len({sequence for sequence, _ in hashes}) > 1 or len(hashes) == 1, hashes


def _free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


@contextmanager
def cluster(root: Path, count: int = 3, acks: int = 1) -> Iterator[Cluster]:
    """Nodes n1, n2, … that are in sync by a policy."""
    members = [Member(f"n{n}", root / f"n{n}", _free()) for n in range(1, count + 1)]
    with etcd_process(root / "etcd") as etcd:
        found = Cluster(etcd, members)
        try:
            _begin(found, acks)
            yield found
        finally:
            for each in members:
                each.kill()


def _begin(found: Cluster, acks: int) -> None:
    first, *others = found.members
    first.start()
    own = first.about["id"]
    rows = [f"DEFINE REPLICA n1 PEER '{first.peer}' NODE '{own}' ROLES {ROLES}"]
    rows += [f"DEFINE REPLICA {one.name} PEER '{one.peer}' ROLES {ROLES}" for one in others]
    assert first.process is not None
    begun = first.process.script(
        "DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t; " + "; ".join(rows)
    )
    assert "error" not in begun, begun
    for one in others:
        token = found.until(
            "a token", lambda one=one: first.value(f"CREATE JOIN TOKEN FOR {one.name}")
        )
        one.start(STORE_JOIN_TOKEN=token["token"])
    found.until("all follow", lambda: first.about.get("followers") == len(others))
    policy = (
        f"DEFINE FAILOVER VIA '{found.etcd.endpoint}' LEASE {LEASE_SECONDS}s ACKS {acks}"
        " BEHIND 1s PROMOTE AUTO"
    )

    def is_in_force() -> bool:
        answer = first.script(policy)
        assert answer is not None
        code = answer.get("error", {}).get("code")
        assert code in (None, "NotEnoughReplicas", "Busy"), answer
        return code is None

    found.until("the policy is in force", is_in_force)
