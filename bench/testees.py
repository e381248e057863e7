"""Programs over the clients of all languages, which make calls that they read line by line.

`clients/conformance/README.md` has their protocol. Each is built from a copy of its sources below
`build/testees/`, once for all processes that ask for it, and again when its sources have changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.nodes import ROOT

BUILT: Final = ROOT / "build" / "testees"
NOT_SOURCES: Final = ("node_modules", "build", "dist", "target", "__pycache__")
"""Folders that a build leaves beside the sources."""


class BuildFailed(Exception):
    """A program was not built; the message is what the toolchain said."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Toolchain of a language.

    :param program: program that builds, looked up on the path
    :param package: Debian package that has it
    """

    program: str
    package: str

    @property
    def missing(self) -> str | None:
        """Command that installs it; None: it is installed."""
        if shutil.which(self.program) is not None:
            return None
        return f"not installed: {self.program} (apt-get install {self.package})"


TOOLCHAINS: Final[Mapping[str, Toolchain]] = {
    "Python": Toolchain(sys.executable, "python3"),
    "Go": Toolchain("go", "golang-go"),
    "TypeScript": Toolchain("npm", "nodejs npm"),
    "Rust": Toolchain("cargo", "cargo"),
    "Kotlin": Toolchain("mvn", "maven"),
}


def client_program(language: str, release: bool = False) -> list[str]:
    """Build the testee of a client. Return its command line.

    :param release: built as for production, which takes longer where it differs
    :raises BuildFailed: the toolchain refuses the sources
    """
    sources = ROOT / "clients" / language.lower()
    if language == "Python":
        return [sys.executable, str(ROOT / "clients/python/testee.py")]
    name = f"{language.lower()}-release" if release and language == "Rust" else language.lower()
    return built(name, sources, TESTEES[language])


def built(name: str, sources: Path, build: Callable[[Path, str], list[str]]) -> list[str]:
    """Copy a folder of sources and build it there, unless that is done. Return the command line.

    :param build: builds in that folder, and returns the command line
    :raises BuildFailed: the toolchain refuses the sources
    """
    folder = BUILT / name
    folder.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of two processes may ask at one time
        stamp, now = BUILT / f"{name}.stamp", _digest(sources)
        known = stamp.read_text().splitlines() if stamp.exists() else []
        if known[:1] == [now]:
            return known[1:]
        _copied(sources, folder)
        words = build(folder, name)
        stamp.write_text("\n".join([now, *words]))
        return words


def ran(*words: str, cwd: Path, **more: str) -> str:
    """Run a toolchain, and return what it prints. :raises BuildFailed: it fails"""
    ended = subprocess.run(
        words, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise BuildFailed(f"{' '.join(words)}\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


def _files(sources: Path) -> list[Path]:
    found = []
    for top, folders, files in os.walk(sources):
        folders[:] = sorted(one for one in folders if one not in NOT_SOURCES)
        found += [Path(top, one) for one in sorted(files)]
    return found


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(sources):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(sources)} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def _copied(sources: Path, folder: Path) -> None:
    """Copy sources; a file that has not changed keeps its time, for compilers that look at it."""
    there = {path.relative_to(sources): path for path in _files(sources)}
    for path in _files(folder):
        if path.relative_to(folder) not in there:
            path.unlink()
    for name, path in there.items():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)


def _go(folder: Path, _: str) -> list[str]:
    program = folder / "build" / "testee"
    ran("go", "build", "-o", str(program), "./testee", cwd=folder, GOTOOLCHAIN="local")
    return [str(program)]


def _typescript(folder: Path, _: str) -> list[str]:
    ran("npm", "ci", "--ignore-scripts", cwd=folder)
    ran("npx", "tsc", "-p", "tsconfig.json", cwd=folder)
    return ["node", str(folder / "build" / "testee" / "testee.js")]


def _rust(folder: Path, name: str) -> list[str]:
    """Its folder of built crates is that of the client's own tests: most of it is the same."""
    profile = "release" if name.endswith("-release") else "debug"
    target = ROOT / "build" / "rust"
    words = ["cargo", "build", "--example", "testee", "--all-features", "--locked"]
    ran(
        *words, *(["--release"] if profile == "release" else []),
        cwd=folder, CARGO_TARGET_DIR=str(target),
    )  # fmt: skip
    program = folder / "build" / "testee"
    program.parent.mkdir(exist_ok=True)
    shutil.copy(target / profile / "examples" / "testee", program)
    return [str(program)]


def _kotlin(folder: Path, _: str) -> list[str]:
    ran("mvn", "--batch-mode", "--quiet", "clean", "test-compile", cwd=folder)
    build = folder / "build"
    found = (build / "classpath").read_text(encoding="utf-8").strip()
    path = f"{build / 'classes'}:{build / 'test-classes'}:{found}"
    # A case reads the system's list of IPv4 sockets; those of Java are of both versions.
    words = ["java", "-Djava.net.preferIPv4Stack=true", "-cp", path]
    return [*words, "storeclient.testee.TesteeKt"]


TESTEES: Final[Mapping[str, Callable[[Path, str], list[str]]]] = {
    "Go": _go,
    "TypeScript": _typescript,
    "Rust": _rust,
    "Kotlin": _kotlin,
}
