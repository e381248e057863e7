"""A real node in a process of its own, and single runs of the command."""

from __future__ import annotations

import base64
import http.client
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from bench import processes
from tests import canaries, durations
from tests.architecture.sources import ROOT
from tests.forks import MODULES, Forked

USER = "root"
PASSWORD = "correct horse battery"
COMMAND = "surfaces.command.main"
START_SECONDS = 60
"""A start that takes longer hangs; a limit on the wait, not a figure to reach."""
SHOWN_BYTES = 8_000
"""Of what a node said last, where a test has failed."""


class StartFailed(Exception):
    """The process ended before it was ready; the message is its standard error."""


def command_line(*words: str, module: str = COMMAND) -> list[str]:
    """The command as a test runs it: this interpreter, this tree."""
    return [sys.executable, "-m", module, *words]


def environment(**more: str) -> dict[str, str]:
    """The environment of a test's process, with the first owner every test knows."""
    found = processes.environment(ROOT, STORE_USER=USER, STORE_PASSWORD=PASSWORD)
    # Compiled once for all the processes of a run, and not into the source tree.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    found.setdefault("PYTHONPYCACHEPREFIX", f"{tempfile.gettempdir()}/storenode-pycache")
    return {**found, **more}


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    with begin(
        *words, more=more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def begin(
    *words: str,
    more: Mapping[str, str],
    under: Sequence[str] = (),
    module: str = COMMAND,
    cold: bool = False,
    **streams: Any,
) -> subprocess.Popen[Any]:
    """Begin a process of the command, without standard input.

    :param more: of its environment
    :param under: a program, with its words, that runs the command
    :param cold: with an interpreter of its own, also where a fork would do
    """
    about = {"env": environment(**more), "cwd": ROOT, "stdin": subprocess.DEVNULL, **streams}
    if cold or under or module not in MODULES or not Forked.may(more):
        durations.starts["interpreters"] += 1
        return subprocess.Popen([*under, *command_line(*words, module=module)], **about)
    durations.starts["processes"] += 1
    return Forked(words, module, **about)


def said(stderr: str) -> str:
    """The one line of a refused command. One that was to serve says it as a line of its log."""
    (line,) = stderr.splitlines()
    return str(json.loads(line)["event"]) if line.startswith("{") else line


@dataclass
class Reply:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def request(
    address: tuple[str, int],
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    user: tuple[str, str] | None = (USER, PASSWORD),
) -> Reply:
    """One HTTP request on a connection of its own. A `body` that is neither bytes nor a string
    goes as JSON."""
    sent = dict(headers or {})
    if user is not None:
        pair = base64.b64encode(":".join(user).encode()).decode()
        sent["Authorization"] = f"Basic {pair}"
    if body is not None and not isinstance(body, str | bytes):
        body = json.dumps(body)
        sent.setdefault("Content-Type", "application/json")
    elif body is not None:
        sent.setdefault("Content-Type", "text/plain; charset=utf-8")
    connection = http.client.HTTPConnection(*address, timeout=START_SECONDS)
    try:
        data = body.encode() if isinstance(body, str) else body
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        reply = Reply(answer.status, dict(answer.getheaders()), answer.read())
        canaries.heard(f"{reply.headers}", f"headers of {method} {path}")
        canaries.heard(reply.body, f"{method} {path}")
        return reply
    finally:
        connection.close()


@dataclass
class NodeProcess:
    """A serving node. `start` answers once it is ready; `lines` are what it logged so far."""

    directory: Path
    words: Sequence[str] = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")
    more: Mapping[str, str] = field(default_factory=dict)
    under: Sequence[str] = ()
    """A program, with its words, that runs the command: `strace …`."""
    module: str = COMMAND
    """What is run as the command."""
    cold: bool = False
    """Whether it has an interpreter of its own, also where a fork would do."""
    lines: list[dict[str, Any]] = field(default_factory=list)

    def start(self) -> NodeProcess:
        """Start the process and wait until it says that it is ready.

        :raises StartFailed: it ended instead
        """
        self.spawn()
        self.wait_ready()
        return self

    def spawn(self) -> None:
        """Start the process."""
        self.process = begin(
            str(self.directory),
            *self.words,
            more=self.more,
            under=self.under,
            module=self.module,
            cold=self.cold,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            bufsize=0,  # a line left in a buffer would be invisible to the wait for the next
        )

    def wait_ready(self) -> None:
        """Wait until the process says that it is ready.

        :raises StartFailed: it ended instead
        """
        if self.wait_line("ready") is None:
            self.process.wait()
            self._stderr.close()
            raise StartFailed("\n".join(str(line) for line in self.lines))

    @property
    def _stderr(self) -> IO[bytes]:
        assert self.process.stderr is not None
        return self.process.stderr

    def wait_line(self, event: str) -> dict[str, Any] | None:
        """Read the log until this event; None when the log ends first."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._stderr, selectors.EVENT_READ)
            while True:
                assert ready.select(START_SECONDS), f"no {event!r} in the log: {self.lines}"
                raw = self._stderr.readline()
                if not raw:
                    return None
                line = _log_line(raw)
                self.lines.append(line)
                if line["event"] == event:
                    return line

    def address(self, surface: str) -> tuple[str, int]:
        """Host and port of `http` or `wire`."""
        ready = next(line for line in self.lines if line["event"] == "ready")
        host, _, port = ready[surface].rpartition(":")
        return host, int(port)

    def at(self, surface: str) -> str:
        """The same, in one text."""
        return "{}:{}".format(*self.address(surface))

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        user: tuple[str, str] | None = (USER, PASSWORD),
    ) -> Reply:
        """One HTTP request; see `request`."""
        return request(self.address("http"), method, path, body, headers, user)

    def script(self, text: str, **fields: object) -> Any:
        """Run a script over HTTP; answers the whole JSON answer."""
        return self.request("POST", "/script", {"script": text, **fields}).json

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Read the log to its end; answers the exit code."""
        for raw in self._stderr:
            self.lines.append(_log_line(raw))
        self._stderr.close()
        return self.process.wait(START_SECONDS)

    def stop(self) -> int:
        """SIGTERM, then wait for the end."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, then wait for the end."""
        self.process.kill()
        self.process.wait()
        self._stderr.close()

    def end(self) -> None:
        """Kill it if it still runs, and show what it said last: pytest prints that when a test has
        failed."""
        if self._stderr.closed:
            return
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.set_blocking(self._stderr.fileno(), False)  # a child of its own may hold the other end
        rest = self._stderr.read() or b""
        canaries.heard(rest, "standard error")
        print(rest[-SHOWN_BYTES:].decode("utf-8", "replace"))
        self._stderr.close()

    def events(self) -> list[str]:
        """What it logged so far, by name."""
        return [line["event"] for line in self.lines]


@contextmanager
def serving(directory: Path, *words: str, **more: str) -> Iterator[NodeProcess]:
    """A node that serves inside the block, and is stopped (or was) after it."""
    node = NodeProcess(directory, words or NodeProcess.words, more).start()
    try:
        yield node
    finally:
        node.end()


def tree(directory: Path) -> dict[str, bytes | None]:
    """Every path below a directory with its content (None for directories): what "unchanged"
    compares."""
    if not directory.exists():
        return {}
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
    }


def _log_line(raw: bytes) -> dict[str, Any]:
    canaries.heard(raw, "standard error")
    try:
        line = json.loads(raw)
    except ValueError:
        return {"event": raw.decode("utf-8", "replace").rstrip("\n"), "plain": True}
    return line if isinstance(line, dict) else {"event": raw.decode()}
