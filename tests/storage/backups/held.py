"""Backup files that are held in memory, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from storage.formats.container import (
    CHUNK_HEAD_BYTES,
    HEADER_BYTES,
    ContainerWriter,
    LogFacts,
    SnapshotFacts,
)
from storage.formats.frames import NO_DIGEST
from storage.formats.positions import LogPosition
from storage.formats.sealing import Key, key_of
from tests.simulation.environment import SeededRng

T = TypeVar("T")

STORE = "7b0a7a52-6a5f-4c0e-9d2e-0d3f4a5b6c7d"
START = LogPosition(0, 1, 0, NO_DIGEST)
KEY, OTHER_KEY = key_of(bytes(range(32))), key_of(bytes(32))
KEYS = pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])


class HeldFile:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def read(self, offset: int, count: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + count]

    def size(self) -> int:
        return len(self.data)

    def append(self, data: bytes, ahead: int = 0) -> None:
        raise AssertionError("a backup that is read is not written")

    def sync(self) -> None:
        raise AssertionError("a backup that is read is not written")

    def truncate(self, size: int) -> None:
        raise AssertionError("a backup that is read is not written")

    def forget_cache(self) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to close."""


def finished(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            answer: T = done.value
            return answer


def snapshot_facts(at: LogPosition = START) -> SnapshotFacts:
    """What a snapshot of some store says of itself."""
    return SnapshotFacts("0.1.0", STORE, "2026-01-01T00:00:00+00:00", 1, at)


def log_facts(last: int, before: LogPosition = START) -> LogFacts:
    """What a log backup of some store says of itself."""
    return LogFacts("0.1.0", STORE, "2026-01-01T00:00:00+00:00", 1, before, last)


def container(stream: list[bytes], key: Key | None = None, seed: int = 1) -> bytes:
    """A container whose stream is put in piece by piece."""
    parts: list[bytes] = []
    writer = ContainerWriter(snapshot_facts(), parts.append, SeededRng(seed), key)
    for piece in stream:
        writer.add(piece)
    writer.end(len(stream), 0, 0)
    return b"".join(parts)


def chunks(data: bytes) -> list[tuple[int, int]]:
    """Where each chunk of a container begins and ends."""
    found, at = [], HEADER_BYTES
    while at < len(data):
        end = at + CHUNK_HEAD_BYTES + int.from_bytes(data[at : at + 4], "big")
        found.append((at, end))
        at = end
    return found
