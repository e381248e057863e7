"""Real file systems in image files: mounted, cut off, filled, mounted again. Needs root."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

SHUTDOWN: Final = 0x8004587D
"""The ioctl that ext4 and XFS share: from now on the disk takes nothing."""
WITHOUT_FLUSH: Final = 2
"""… not even what stands in the journal's memory: as if the power had been cut."""
MIB: Final = 1 << 20
SMALLEST: Final = {"ext4": 48 * MIB, "xfs": 300 * MIB, "btrfs": 256 * MIB}


def require(*tools: str) -> None:
    """Skip the test where it can't run, saying why."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount images")
    missing = [tool for tool in tools if shutil.which(tool, path=_PATH) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def run(*words: str) -> None:
    """A system command. :raises CalledProcessError: it failed"""
    subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PATH": _PATH})


class ImageDisk:
    """A file system in a sparse image, mounted on a directory beside it."""

    def __init__(self, folder: Path, kind: str, size: int, inodes: int = 2048) -> None:
        self.image = folder / f"{kind}.img"
        self.point = folder / kind
        self.point.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size)
        # Nothing is kept for root, who runs these tests: full is full.
        ext4 = ("-E", "lazy_itable_init=1,nodiscard", "-N", str(inodes), "-m", "0")
        quick = ext4 if kind == "ext4" else ("-K",)
        run(f"mkfs.{kind}", "-q", *quick, str(self.image))

    @property
    def store(self) -> Path:
        return self.point / "store"

    def mount(self) -> None:
        """Bring it up, with what the last cut left."""
        run("mount", "-o", "loop", str(self.image), str(self.point))

    def unmount(self) -> None:
        """Take it away; what was synced or not is written, unless the power was cut."""
        run("umount", str(self.point))

    def cut(self) -> None:
        """Cut the power: nothing more reaches the image."""
        descriptor = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def free(self) -> int:
        """Bytes that may still be written."""
        figures = os.statvfs(self.point)
        return figures.f_bavail * figures.f_frsize


class QuotaDisk(ImageDisk):
    """One with a directory that takes only so much: a quota, which `free` does not know."""

    def __init__(self, folder: Path, kind: str, size: int, quota: int) -> None:
        self._kind = kind
        self._quota = quota
        super().__init__(folder, kind, size)
        if kind == "ext4":
            run("tune2fs", "-O", "project,quota", "-Q", "prjquota", str(self.image))

    @property
    def limited(self) -> Path:
        return self.point / "limited"

    @property
    def store(self) -> Path:
        return self.limited / "store"

    def mount(self) -> None:
        """Bring it up, with its quota."""
        known = ("prjquota",) if self._kind != "btrfs" else ()
        run("mount", "-o", ",".join(("loop", *known)), str(self.image), str(self.point))
        made = not self.limited.exists()
        if self._kind == "btrfs":
            if made:
                run("btrfs", "quota", "enable", str(self.point))
                run("btrfs", "subvolume", "create", str(self.limited))
            run("btrfs", "qgroup", "limit", str(self._quota), str(self.limited))
            return
        if made:
            self.limited.mkdir()
            run("chattr", "-p", PROJECT, str(self.limited))
            run("chattr", "+P", str(self.limited))
        if self._kind == "xfs":
            limit = f"limit -p bhard={self._quota} {PROJECT}"
            run("xfs_quota", "-x", "-c", limit, str(self.point))
        else:
            blocks = str(self._quota // 1024)
            run("setquota", "-P", PROJECT, "0", blocks, "0", "0", str(self.point))


PROJECT: Final = "7"


class Filler:
    """Somebody else's file that takes the room of the disk."""

    def __init__(self, disk: ImageDisk) -> None:
        self._path = disk.point / "somebody"
        self._disk = disk

    def take(self, leave: int) -> None:
        """Grow until so many bytes are left."""
        with self._path.open("ab") as file:
            try:
                while (missing := self._disk.free() - leave) > 0:
                    file.write(bytes(min(missing, 4096)))
                    file.flush()
            except OSError:
                return

    def give_back(self) -> None:
        self._path.unlink()


class QuotaFiller:
    """Somebody else's files, which take what the quota has left."""

    def __init__(self, disk: QuotaDisk) -> None:
        self._folder = disk.limited / "somebody"

    def take(self, leave: int) -> None:
        """Grow to the last byte, then leave so many.

        Room that is left is what a file had that is removed: of a quota nobody can be asked.
        """
        self._folder.mkdir(exist_ok=True)
        spare = self._folder / f"{len(os.listdir(self._folder))}"
        if leave:
            _grow(spare, leave)
        for size in (64 * 1024, 4096, 512):
            # Anew for each: Btrfs refuses a file long before it refuses a smaller one.
            _grow(self._folder / f"{len(os.listdir(self._folder))}", None, size)
        if leave:
            spare.unlink()
            run("sync", "-f", str(self._folder))  # Btrfs frees what it has written down as free

    def give_back(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        run("sync", "-f", str(self._folder))


def _grow(path: Path, size: int | None, step: int = 4096) -> None:
    """Write a file of so many bytes, or of as many as there is room for."""
    try:
        with path.open("ab", buffering=0) as file:
            while size is None or file.tell() < size:
                file.write(bytes(step))
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in (errno.EDQUOT, errno.ENOSPC):
            raise


SEAL: Final = 0x10
"""F_SEAL_FUTURE_WRITE: nothing writes to the memory any more."""


class FailingDisk:
    """An ext4 file system on a block device that can begin to refuse what is written to it, from
    one moment on and for good. The page cache takes it all the same, so only a sync can tell.

    What is below it is memory that is sealed then, rather than memory that runs out: a loop device
    takes a write of which only the first part found room for one that was done.
    """

    def __init__(self, point: Path, size: int) -> None:
        self.point = point
        point.mkdir()
        self._memory = os.memfd_create("disk", os.MFD_ALLOW_SEALING)
        os.truncate(self._memory, size)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", "-m", "0", self._device)
        self._mount()

    @property
    def store(self) -> Path:
        return self.point / "store"

    @property
    def _device(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._memory}"

    def _mount(self) -> None:
        run("mount", "-o", "loop", self._device, str(self.point))

    def fail(self) -> None:
        """From now on nothing that is written gets there."""
        fcntl.fcntl(self._memory, fcntl.F_ADD_SEALS, SEAL)

    def replace(self) -> None:
        """Another disk with all that got there, mounted in its place: the page cache is gone."""
        run("umount", str(self.point))
        memory = os.memfd_create("disk", os.MFD_ALLOW_SEALING)
        size = os.fstat(self._memory).st_size
        os.truncate(memory, size)
        at = 0
        while at < size:
            part = os.pread(self._memory, MIB, at)
            at += os.pwrite(memory, part, at)
        os.close(self._memory)
        self._memory = memory
        self._mount()

    def close(self) -> None:
        with suppress(subprocess.CalledProcessError):  # a rig may have ended between two mounts
            run("umount", str(self.point))
        os.close(self._memory)


@contextmanager
def image_disk(
    folder: Path, kind: str, size: int | None = None, inodes: int = 2048
) -> Iterator[ImageDisk]:
    """A mounted file system, gone after the block.

    :param inodes: how many there are, on ext4
    """
    disk = ImageDisk(folder, kind, size or SMALLEST[kind], inodes)
    disk.mount()
    try:
        yield disk
    finally:
        _remove(disk)


def _remove(disk: ImageDisk) -> None:
    with suppress(subprocess.CalledProcessError):  # a rig may have ended between two mounts
        disk.unmount()
    disk.image.unlink()


@contextmanager
def quota_disk(folder: Path, kind: str, quota: int) -> Iterator[QuotaDisk]:
    """A mounted file system with a quota on a directory of it, gone after the block.

    Skips the test where the kernel has no quotas on file systems of that kind.
    """
    disk = QuotaDisk(folder, kind, SMALLEST[kind], quota)
    try:
        disk.mount()
    except subprocess.CalledProcessError as error:
        with suppress(subprocess.CalledProcessError):
            disk.unmount()
        pytest.skip(f"no quotas on {kind}: {error.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        _remove(disk)
