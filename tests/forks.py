"""Processes of the command that begin as forks of one that has imported it.

Nine tenths of what a run of the command computes is Python's imports, half a second of them; the
suite begins some four hundred. Here they are done once for each process of tests, by a program that
then waits to be forked. What it forks runs `python -m surfaces.command.main` from there on: with
its own words, environment, directory and standard streams, and it is a child of the test's process
as any other, which signals it and awaits its end.

What it has not done is start an interpreter: hashes have the seed of the one that was forked, and a
variable that the interpreter, its linker or its libraries read at their start comes too late.
`Forked.may` says which processes can begin so. Those of tests that begin one by themselves don't.

A command with faults in it (`tests.reliability.faulty`) is forked of one that had them before it
imported anything else, as it has by itself: a program for each set of them, of which few run.

Nor does it take an interpreter apart: what is imported is left out of every collection, and who is
done ends as children of `multiprocessing` do, its threads over, its last words written. To look
through what all share, and to free it, copies it first, which took longer than the rest of a run.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from tests import durations
from tests.reliability import faulty

COMMAND: Final = "surfaces.command.main"
MODULES: Final = (COMMAND, faulty.MODULE)
"""What can be forked."""
IMPORTED: Final = (
    "surfaces.shell.main",
    *(
        f"surfaces.command.{name}"
        for name in (
            "arguments", "backups", "console", "dumping", "health", "heap", "joining",
            "key_making", "privacy", "restoring", "scripts", "serving", "verifying",
        )
    ),
)  # fmt: skip
"""What the command imports when it is asked to do something."""
OWN: Final = ("STORE_", faulty.FAULTS)
"""How the variables begin that the command reads itself."""
MOST: Final = 4
"""Programs to fork that run beside each other: some 50 MiB each."""
LOOK_SECONDS: Final = 1.0
"""How often it is looked whether the tests are still there."""
LONGEST: Final = 1 << 20
"""Bytes of what is asked: words and variables."""

_SUBREAPER: Final = 36


class Forked(subprocess.Popen[Any]):
    """A `Popen` of the command, begun by a fork. `args` are the words behind its name.

    :param module: what is run as the command; without faults one is as good as the other
    """

    def __init__(self, args: Sequence[str], module: str = COMMAND, **about: Any) -> None:
        self._module = module
        super().__init__(args, **about)

    @staticmethod
    def may(more: Mapping[str, str]) -> bool:
        """Whether a process can begin so that has these variables beside those of the tests."""
        return all(name.startswith(OWN) for name in more)

    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        creationflags, shell, read_in, write_in, read_out, write_out, read_err, write_err, *_rest,
    ) -> None:  # fmt: skip
        streams = [
            own if given == -1 else given
            for own, given in ((0, read_in), (1, write_out), (2, write_err))
        ]
        faults = env.get(faulty.FAULTS, "") if self._module == faulty.MODULE else ""
        self.pid = _fork([str(word) for word in args], dict(env), str(cwd), streams, faults)
        self._child_created = True
        self._close_pipe_fds(read_in, write_in, read_out, write_out, read_err, write_err)  # type: ignore[attr-defined]


# --- asking ---------------------------------------------------------------------------------------

_mothers: dict[str, subprocess.Popen[bytes]] = {}
"""What is forked, by the faults in it; that which was asked last is the last."""
_lock = threading.Lock()


def _fork(
    words: Sequence[str], variables: dict[str, str], cwd: str, streams: list[int], faults: str
) -> int:
    """Begin a process; its id."""
    asked = json.dumps([words, variables, cwd]).encode(errors="surrogateescape")
    with _lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        _begin(variables, faults)
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        asking.connect(_address(os.getpid(), faults))
        socket.send_fds(asking, [asked], streams)
        return int(asking.recv(64))


def _begin(variables: Mapping[str, str], faults: str) -> None:
    """Have the program that is forked run, if it doesn't."""
    mother = _mothers.pop(faults, None)
    while len(_mothers) >= MOST:
        _end(_mothers.pop(next(iter(_mothers))))
    if mother is None or mother.poll() is not None:
        mother = _started(variables, faults)
    _mothers[faults] = mother


def _started(variables: Mapping[str, str], faults: str) -> subprocess.Popen[bytes]:
    _prctl(_SUBREAPER, 1)
    plain = {name: value for name, value in variables.items() if not name.startswith(OWN)}
    durations.starts["interpreters"] += 1
    mother = subprocess.Popen(
        [sys.executable, "-m", __name__],
        env={**plain, faulty.FAULTS: faults},
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert mother.stdout is not None
    with mother.stdout as said:
        assert said.readline() == b"ready\n", "what is forked did not start"
    mother.stdout = None
    return mother


def _end(mother: subprocess.Popen[bytes]) -> None:
    mother.kill()
    mother.wait()


@atexit.register
def _end_all() -> None:
    while _mothers:
        _end(_mothers.popitem()[1])


def _address(pid: int, faults: str) -> str:
    """Where it is asked, by whoever has this id: a name that is in no folder."""
    return f"\0storenode-forks-{pid}-{faults}"


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


# --- being forked ---------------------------------------------------------------------------------


def _serve() -> list[str]:
    """Fork whenever that is asked. Returns in what was forked, with its words."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: that is for the tests
    tests = os.getppid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(_address(tests, os.environ[faulty.FAULTS]))
        listening.listen()
        os.write(1, b"ready\n")
        while True:
            # The system's signal at the end of a parent comes when the thread ends that began this,
            # which may be one of a test's.
            asked, _, _ = select.select([listening], [], [], LOOK_SECONDS)
            if os.getppid() != tests:
                os._exit(0)
            if not asked:
                continue
            asking, _ = listening.accept()
            with asking:
                words = _forked(asking)
            if words is not None:
                return words


def _forked(asking: socket.socket) -> list[str] | None:
    """Fork as somebody asks. None in what is forked again."""
    asked, streams, _, _ = socket.recv_fds(asking, LONGEST, 3)
    read, write = os.pipe()
    between = os.fork()  # whose end makes whoever asks the parent of what it begins
    if between:
        os.close(write)
        os.waitpid(between, 0)
        with os.fdopen(read, "rb") as told:
            asking.send(told.read())
        for stream in streams:
            os.close(stream)
        return None
    pid = os.fork()
    if pid:
        os.write(write, str(pid).encode())
        os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words, variables, cwd = json.loads(asked.decode(errors="surrogateescape"))
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(cwd)
    return [str(word) for word in words]


def _leave(code: int) -> None:
    """End as `sys.exit(code)` does, without freeing what is there. Returns where the last words
    can't be written, of which the interpreter says something."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for those that are no daemons
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    faulty.plant()
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()
    sys.argv[1:] = _serve()
    os.closerange(3, 1024)
    try:
        runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if type(ended.code) is int:
            _leave(ended.code)
        raise
