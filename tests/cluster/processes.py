"""Processes of a cluster. They outlive the command that starts them; a file holds their ids."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.processes import NotStarted as NotStarted
from bench.processes import environment
from bench.processes import wait_for as wait_for
from tests.cluster.plan import ETCD, ClusterPlan, NodeAt

ROOT: Final = Path(__file__).parents[2]
NETWORK: Final = "network"

_children: Final[list[subprocess.Popen[bytes]]] = []
"""Processes that this command has started and has not ended."""


def start(plan: ClusterPlan, name: str, words: Sequence[str], more: Mapping[str, str]) -> int:
    """Start a process that outlives this one. Return its id."""
    with plan.log_of(name).open("ab") as said:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment(ROOT, **more),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # an interrupt at the terminal is for the command, not for it
        )
    _children.append(process)
    (plan.directory / f"{name}.pid").write_text(str(process.pid))
    while process.poll() is None and pid_of(plan, name) is None:
        time.sleep(0.001)  # it is not the program yet
    return process.pid


def pid_of(plan: ClusterPlan, name: str) -> int | None:
    """Return the id of a running process; None: it does not run.

    An id that the system has since given to another program does not count.
    """
    try:
        pid = int((plan.directory / f"{name}.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = _state_of(pid)
    except (OSError, ValueError):
        return None
    return pid if str(plan.directory).encode() in words and state != "Z" else None


def is_paused(plan: ClusterPlan, name: str) -> bool:
    """True if a process exists and is stopped (SIGSTOP)."""
    pid = pid_of(plan, name)
    try:
        return pid is not None and _state_of(pid) == "T"
    except OSError:
        return False


def _state_of(pid: int) -> str:
    """Return the state letter of a process, from /proc."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def send(plan: ClusterPlan, name: str, number: signal.Signals) -> bool:
    """Send a signal. Return True if the process was running."""
    pid = pid_of(plan, name)
    if pid is None:
        return False
    os.kill(pid, number)
    return True


def end(plan: ClusterPlan, name: str, number: signal.Signals = signal.SIGKILL) -> None:
    """End a process, even a paused one, and wait until it is gone."""
    if send(plan, name, number):
        send(plan, name, signal.SIGCONT)
        wait_for(lambda: pid_of(plan, name) is None, f"{name} did not end in time")
        # Those of this command have been waited for: else they are left to the system.
        _children[:] = [child for child in _children if child.poll() is None]


def start_network(plan: ClusterPlan) -> None:
    """Start the simulated network, and wait until it forwards."""
    words = [sys.executable, "-m", "tests.cluster.network", str(plan.directory)]
    start(plan, NETWORK, words, {})
    ready = plan.directory / "network.ready"
    wait_for(ready.exists, f"the network: {plan.log_of(NETWORK)}")


def start_etcd(plan: ClusterPlan) -> None:
    """Start etcd, with one member, and wait until it answers.

    :raises NotStarted: it is not installed, or does not come up
    """
    found = shutil.which("etcd")
    if found is None:
        raise NotStarted("etcd is not installed: apt-get install etcd-server")
    at = f"http://127.0.0.1:{plan.etcd}"
    peers = f"http://127.0.0.1:{plan.etcd_peer}"
    words = [
        found, "--data-dir", str(plan.directory / "etcd"), "--log-level", "error",
        "--listen-client-urls", at, "--advertise-client-urls", at,
        "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
        "--initial-cluster", f"default={peers}",
    ]  # fmt: skip
    if not plan.etcd_syncs:
        words.append("--unsafe-no-fsync")
    start(plan, ETCD, words, {})
    wait_for(lambda: _answers(f"{at}/health"), f"etcd: {plan.log_of(ETCD)}")


def start_node(plan: ClusterPlan, node: NodeAt, *words: str, wait: bool = True) -> None:
    """Start a node, and wait until it answers.

    :param words: additional words of the command line
    :param wait: False: return at once; the caller waits
    """
    command = [
        sys.executable, "-m", "surfaces.command.main", str(plan.directory / node.name),
        "--http", f"127.0.0.1:{node.http}", "--serve", f"127.0.0.1:{node.wire}",
        "--peer", f"127.0.0.1:{node.peer}", *words,
    ]  # fmt: skip
    owner = {"STORE_USER": plan.user, "STORE_PASSWORD": plan.password}
    start(plan, node.name, command, {**owner, **node.environment})
    if wait:
        wait_for(
            lambda: pid_of(plan, node.name) is None or answers(node),
            f"{node.name}: {plan.log_of(node.name)}",
        )
        if pid_of(plan, node.name) is None:
            said = plan.log_of(node.name).read_text("utf-8", "replace")
            raise NotStarted(f"{node.name}: {said[-800:].strip()}")


def answers(node: NodeAt) -> bool:
    return _answers(f"http://127.0.0.1:{node.http}/health")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            answer.read()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def cut(plan: ClusterPlan, pairs: Sequence[tuple[str, str]]) -> None:
    """Cut the network from the first to the second of each pair, and nowhere else; empty: heal
    it."""
    _say(plan.cuts, pairs)


def delay(plan: ClusterPlan, pairs: Sequence[tuple[str, str]], seconds: float) -> None:
    """Delay the network from the first to the second of each pair, and nowhere else; empty: no
    delay."""
    _say(plan.late, [(*pair, seconds) for pair in pairs])


def _say(path: Path, what: Sequence[Sequence[object]]) -> None:
    """Write a file for the network, atomically: it reads the old or the new content."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(what))
    temporary.rename(path)


def cuts(plan: ClusterPlan) -> list[list[str]]:
    """Return the pairs between which the network is cut, from the first to the second."""
    with suppress(FileNotFoundError):
        found: list[list[str]] = json.loads(plan.cuts.read_text())
        return found
    return []
