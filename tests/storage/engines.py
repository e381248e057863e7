"""The engines behind one handle, for suites that run on each."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Protocol

from storage.engine.engine import Engine
from storage.engine.memory import MemoryEngine
from storage.engine.rocksdb import RocksEngine, RocksInMemory
from storage.engine.sealed import SealedEngine, open_state
from storage.files.directory import StoreDirectory
from storage.files.disk import Disk
from tests.simulation.environment import ManualClock, SeededRng
from tests.storage.backups.held import KEY


class EngineHome(Protocol):
    engine: Engine

    def crash(self) -> Engine:
        """The engine that comes back after the process has died now. The one before is of no
        further use."""

    def reopen(self) -> Engine:
        """Close and open again."""

    def close(self) -> None:
        """Let go of the engine there is."""


class MemoryStore:
    """The engine in memory; its crash is its own."""

    def __init__(self) -> None:
        self._memory = MemoryEngine()
        self.engine: Engine = self._memory

    def crash(self) -> Engine:
        self._memory.crash()
        return self.engine

    def reopen(self) -> Engine:
        self.engine.close()
        return self.engine

    def close(self) -> None:
        self.engine.close()


class RocksStore:
    """The engine on disk. A crash leaves the files as they are at that moment: they are copied
    while the engine is open, and the copy is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lives = 0
        self.engine: Engine = RocksEngine(str(self._directory()))

    def _directory(self) -> Path:
        return self._path / f"life{self._lives}"

    def crash(self) -> Engine:
        died = self._directory()
        self._lives += 1
        _copy(died, self._directory())
        self.engine.close()
        shutil.rmtree(died)
        self.engine = RocksEngine(str(self._directory()))
        return self.engine

    def reopen(self) -> Engine:
        self.engine.close()
        self.engine = RocksEngine(str(self._directory()))
        return self.engine

    def close(self) -> None:
        self.engine.close()


class SealedStore:
    """A sealed state over RocksDB in memory. A crash leaves the image, and nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.engine: Engine = self._open()

    def _open(self) -> Engine:
        environment = (Disk(), ManualClock(), SeededRng(1))
        self._directory = StoreDirectory.open(str(self._path), *environment, create=True, key=KEY)
        return open_state(self._directory, RocksEngine, RocksInMemory)

    def crash(self) -> Engine:
        assert isinstance(self.engine, SealedEngine)
        self.engine._inner.close()
        self._directory.close()
        self.engine = self._open()
        return self.engine

    def reopen(self) -> Engine:
        self.close()
        self.engine = self._open()
        return self.engine

    def close(self) -> None:
        self.engine.close()
        self._directory.close()


def _copy(source: Path, target: Path) -> None:
    """Copy a directory as it is at one moment, though compactions may be changing it."""
    while True:
        with contextlib.suppress(OSError):  # a file went away meanwhile: once more
            before = _listing(source)
            shutil.copytree(source, target)
            if _listing(source) == before:
                return
        shutil.rmtree(target, ignore_errors=True)


def _listing(path: Path) -> list[tuple[str, int]]:
    return sorted((entry.name, entry.stat().st_size) for entry in path.iterdir())


KINDS = ("memory", "rocks")
ALL_KINDS = (*KINDS, "sealed")


def make(kind: str, path: Path) -> EngineHome:
    if kind == "sealed":
        return SealedStore(path)
    return MemoryStore() if kind == "memory" else RocksStore(path)
