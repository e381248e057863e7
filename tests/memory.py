"""Folders in memory, for stores of tests that are not about a disk.

A folder of tests whose stores lie there says so in its conftest, by taking the fixtures over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 4 << 30
"""Free space below which tests use the disk: a worker holds some stores of 64 MiB at once."""


def has_room() -> bool:
    """True if the system has a writable folder in memory with enough free space."""
    if not os.access(MEMORY, os.W_OK):
        return False
    return shutil.disk_usage(MEMORY).free >= NEEDED_BYTES


@contextmanager
def folder(otherwise: Path) -> Iterator[Path]:
    """Make a folder in memory and remove it at the end.

    :param otherwise: the folder where the system has no such memory
    """
    if not has_room():
        yield otherwise
        return
    with TemporaryDirectory(prefix="storenode-", dir=MEMORY) as path:
        yield Path(path)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Folder of the test, in memory."""
    with folder(tmp_path) as path:
        yield path


@pytest.fixture(scope="session")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a worker, in memory."""
    with folder(tmp_path_factory.mktemp("shared")) as path:
        yield path
