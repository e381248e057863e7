"""A testee: a program over one client that makes the calls of a case."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.architecture.sources import ROOT
from tests.processes import environment

PATIENCE_SECONDS: Final = 60.0
"""Longest wait for what has to come; a limit on a failure, not a figure to reach."""
SHOWN_BYTES: Final = 6000
SHOWN_LINES: Final = 40


class Failed(AssertionError):
    """A case failed: the client does not keep a rule."""


class Testee:
    """The process, and the answers that have come.

    :param words: its command line
    """

    __test__ = False  # its name begins as those of tests do

    def __init__(self, words: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment(**(more or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._next = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._came: queue.Queue[bytes] = queue.Queue()
        self.lines: deque[str] = deque(maxlen=SHOWN_LINES)
        """The newest calls and answers of the case."""
        self.skipped: list[str] = []
        """Reasons of the calls that the language cannot express."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._came.put(line)
        self._came.put(b"")

    def begin(self, *calls: dict[str, Any]) -> list[int]:
        """Begin calls, several of them at one time. Return their ids."""
        ids = [self._next + number for number in range(1, len(calls) + 1)]
        self._next += len(calls)
        numbered = [{"id": id, **call} for id, call in zip(ids, calls, strict=True)]
        line = json.dumps(numbered if len(numbered) > 1 else numbered[0], ensure_ascii=False)
        self.lines.append(f"> {line[:2000]}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"the testee has ended\n{self.shown()}") from None
        return ids

    def end(self, id: int) -> dict[str, Any]:
        """Return the answer to a call. :raises Failed: none comes"""
        while id not in self._answers:
            self._wait(id)
        return self._answers.pop(id)

    def next_answer(self) -> tuple[int, dict[str, Any]]:
        """Return the id and the answer of whichever call ends next. :raises Failed: none does"""
        while not self._answers:
            self._wait("any call")
        return self._answers.popitem()

    def _wait(self, call: object) -> None:
        try:
            line = self._came.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise Failed(f"no answer to call {call}\n{self.shown()}") from None
        self._take(line)

    def _take(self, line: bytes) -> None:
        if not line:
            self._came.put(b"")
            raise Failed(f"the testee has ended\n{self.shown()}")
        answer = json.loads(line)
        self.lines.append(f"< {line.decode()[:2000].rstrip()}")
        self._answers[answer["id"]] = answer

    def has_answered(self, id: int) -> bool:
        """True if the answer to a call has come."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._take(self._came.get_nowait())
        return id in self._answers

    def call(self, **call: Any) -> dict[str, Any]:
        """Make a call and return its answer."""
        return self.end(self.begin(call)[0])

    def reset(self) -> None:
        """End all that the case has left behind in the testee."""
        answer = self.call(call="reset")
        if "error" in answer:
            raise Failed(f"reset: {answer['error']}\n{self.shown()}")
        self._answers.clear()
        self.lines.clear()

    def shown(self) -> str:
        """Return the last calls and answers, and what the testee has said."""
        self._said.seek(0)
        said = self._said.read()[-SHOWN_BYTES:].decode("utf-8", "replace")
        return "\n".join([*self.lines, said])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._said.close()
