"""`make starts`: the artefacts of dist/ and the checkout, each by its size and its first start.

A start lasts from the start of the process, on an empty directory, until GET /ready answers 200. On
a busy machine compare the processor time that the node has used by then.
"""

from __future__ import annotations

import argparse
import http.client
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import machine
from bench.__main__ import STORES, TOP, WIDTH, facts_line, table
from bench.figures import Measurement, in_turns
from bench.nodes import START_SECONDS
from bench.ports import free_port
from bench.processes import NotStarted, cpu_seconds, environment
from bench.settings import Settings
from compiling.modules import ROOT

COMPILED: Final = ROOT / "build" / "compiled"
COMMAND: Final = "import sys; from storenode import main; sys.exit(main())"
POLL_SECONDS: Final = 0.005
OWNER: Final = {"STORE_USER": "root", "STORE_PASSWORD": "correct horse battery"}
ULIMITS: Final = ("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096")
"""Podman's own may be higher than the machine's, and are refused then."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """Something that a node starts from."""

    words: Sequence[str]
    """Command without the data directory and the flags, or podman's words before `run`."""
    tree: Path | None
    """On the import path; None: nothing of this environment is."""
    bytes: int | None = None
    """Size of the file that is handed on; None: there is none."""
    image: str = ""
    """Of a container."""


def main() -> None:
    """Measure the artefacts that are there."""
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dist", type=Path, default=TOP / "dist", help="folder of the artefacts")
    parser.add_argument("--podman", default="podman", help="podman with its options")
    asked = parser.parse_args()
    (TOP / STORES).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="storenode-starts-", dir=TOP / STORES) as folder:
        settings = Settings(Path(folder), asked.rounds)
        found, gaps = artefacts(asked.dist, settings.directory, shlex.split(asked.podman))
        console = Console(width=WIDTH)
        console.print(facts_line(machine.facts(settings.directory), settings))
        console.print(table(measured(settings, found, gaps)))


def artefacts(
    dist: Path, folder: Path, podman: Sequence[str]
) -> tuple[dict[str, Artefact], list[str]]:
    """Return what a node can start from, by name, and a message for each that is missing.

    :param dist: folder of the built artefacts
    :param folder: where they are unpacked
    """
    checkout = [sys.executable, "-m", "surfaces.command.main"]
    found, gaps = {"checkout": Artefact(checkout, ROOT)}, []
    if COMPILED.is_dir():
        found["checkout, compiled"] = Artefact(checkout, COMPILED)
    else:
        gaps.append("checkout, compiled: make compiled")
    for name, pattern, target in (
        ("wheel, plain", "storenode-*-py3-none-any.whl", "wheel PLAIN=1"),
        ("wheel, compiled", "storenode-*-cp3*.whl", "wheel"),
        ("package", "storenode_*.deb", "deb"),
        ("image", "storenode-*.image.tar.gz", "image"),
    ):
        files = sorted(dist.glob(pattern), key=os.path.getmtime)
        if not files:
            gaps.append(f"{name}: make {target}")
            continue
        file, site = files[-1], folder / f"{name} unpacked"
        if name == "image":
            with file.open("rb") as packed:
                unpacked = subprocess.Popen(["gunzip", "-c"], stdin=packed, stdout=subprocess.PIPE)
                said = _output([*podman, "load", "--quiet"], stdin=unpacked.stdout)
            tag = said.rpartition(" ")[2]
            found[name] = Artefact(podman, None, file.stat().st_size, tag)
        elif name == "package":
            _output(["dpkg-deb", "-x", str(file), str(site)])
            code = f"import sys; sys.path.append({str(site / 'usr/lib/storenode')!r})\n{COMMAND}"
            found[name] = Artefact(
                ["/usr/bin/python3", "-IS", "-c", code], None, file.stat().st_size
            )
        else:
            pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps"]
            _output([*pip, "--target", str(site), str(file)])
            found[name] = Artefact([sys.executable, "-c", COMMAND], site, file.stat().st_size)
    return found, gaps


def measured(
    settings: Settings, found: Mapping[str, Artefact], gaps: Sequence[str]
) -> list[Measurement]:
    """Start each artefact in turns. The first of its starts, which fills caches, does not count."""
    wall = Measurement("start", "first start, until GET /ready answers 200", "s", "less")
    processor = Measurement("start-processor", "the same; processor of the node", "s", "less")
    wall.gaps.extend(gaps)
    used: dict[str, list[float]] = {name: [] for name in found}

    def start(name: str) -> float:
        with tempfile.TemporaryDirectory(dir=settings.directory) as folder:
            took, cpu = _start(found[name], Path(folder))
        used[name].append(cpu)
        return took

    measures: dict[str, Callable[[], float]] = {name: partial(start, name) for name in found}
    wall.sides = in_turns(settings.rounds, measures)
    processor.sides = {name: figures[1:] for name, figures in used.items()}
    for name, artefact in found.items():
        wall.notes.append(f"{name}: least {min(wall.sides[name]):.2f} s")
        if artefact.bytes is not None:
            wall.notes.append(f"{artefact.bytes / 2**20:.1f} MiB")
    return [wall, processor]


def _start(artefact: Artefact, folder: Path) -> tuple[float, float]:
    """Start a node once.

    :returns: seconds until it is ready, and seconds of processor that it has used then
    """
    address = f"127.0.0.1:{free_port()}"
    began = time.perf_counter()
    with (_container if artefact.image else _process)(artefact, folder, address) as pid:
        while not _is_ready(address):
            pid()  # raises when it has ended
            if time.perf_counter() - began > START_SECONDS:
                raise NotStarted(f"{artefact.words[0]}: not ready in {START_SECONDS} s")
            time.sleep(POLL_SECONDS)
        return time.perf_counter() - began, cpu_seconds(pid())


@contextmanager
def _process(artefact: Artefact, folder: Path, address: str) -> Iterator[Callable[[], int]]:
    log = folder / "log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [*artefact.words, str(folder / "store"), "--http", address],
            cwd=folder,
            env=environment(artefact.tree or folder, **OWNER),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )

    def pid() -> int:
        if process.poll() is not None:
            raise NotStarted(f"{artefact.words[0]}: {log.read_text()[-500:]}")
        return process.pid

    try:
        yield pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _container(artefact: Artefact, _folder: Path, address: str) -> Iterator[Callable[[], int]]:
    variables = {**OWNER, "STORE_HTTP": address, "STORE_SERVE": ""}
    name = _output(
        [
            *(*artefact.words, "run", "--detach", "--rm", "--network", "host", *ULIMITS),
            *(word for one in variables.items() for word in ("--env", "=".join(one))),
            artefact.image,
        ]
    )

    def pid() -> int:
        return int(_output([*artefact.words, "inspect", "--format", "{{.State.Pid}}", name]))

    try:
        yield pid
    finally:
        _output([*artefact.words, "stop", "--time", "60", name])


def _is_ready(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=START_SECONDS)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except ConnectionError:
        return False
    finally:
        connection.close()


def _output(words: Sequence[str], **streams: object) -> str:
    """Run a program to its end. Return its output.

    :raises NotStarted: it failed
    """
    ended = subprocess.run(words, capture_output=True, text=True, check=False, **streams)  # type: ignore[call-overload]
    if ended.returncode != 0:
        raise NotStarted(f"{' '.join(words[:2])}: {ended.stdout}{ended.stderr}")
    return str(ended.stdout).strip()


if __name__ == "__main__":
    main()
