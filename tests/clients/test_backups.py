"""Snapshots that clients take, of a real node and of nodes that say what no node should."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protocol import limits
from storage.backups.verify import VerifyReport, verify
from storage.files.disk import Disk
from storeclient import backups
from storeclient.backups import Target
from tests.clients.real import RealNode, real_node


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the false nodes here answers a BYE, which a client waits for when it closes."""
    monkeypatch.setattr("storeclient.connection.GRACE_SECONDS", 0.1)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RealNode]:
    async with real_node(tmp_path / "store") as node:
        await node.here.values("DEFINE TABLE t; CREATE t; CREATE t")
        yield node


async def fill(house: RealNode, mib: int) -> None:
    for number in range(mib):
        data = hashlib.shake_256(str(number).encode()).digest(limits.MIB)
        await house.here.value("CREATE t SET data = $data RETURN NONE", {"data": data})


def report(path: Path) -> VerifyReport:
    file = Disk().open_read(str(path))
    try:
        return verify(file)
    finally:
        file.close()


@pytest.mark.parametrize("begun", [0, 5, 100])
async def test_what_was_cut_off_gives_way(house: RealNode, tmp_path: Path, begun: int) -> None:
    async with house.client() as client:
        await client.backup(tmp_path / "x")
        (tmp_path / "y.partial").write_bytes((tmp_path / "x").read_bytes()[:begun])
        await client.backup(tmp_path / "y")
    assert sorted(os.listdir(tmp_path)) == ["store", "x", "y"]


async def test_what_gets_the_name_meanwhile_is_not_replaced(
    house: RealNode, tmp_path: Path
) -> None:
    def come(done: int, total: int) -> None:
        (tmp_path / "x").write_text("somebody's")

    async with house.client() as client:
        with pytest.raises(FileExistsError):
            await client.backup(tmp_path / "x", progress=come)
    assert (tmp_path / "x").read_text() == "somebody's"
    assert sorted(os.listdir(tmp_path)) == ["store", "x"]


async def test_of_two_who_write_one_file_the_second_is_refused(tmp_path: Path) -> None:
    """And never takes what the first has not finished for what was cut off."""
    path = str(tmp_path / "x")
    first = Target(path)
    first.write(b"first")
    with pytest.raises(FileExistsError, match="another process is writing"):
        Target(path)
    first.publish()
    first.abandon()
    assert (tmp_path / "x").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["x"]


async def test_a_slow_disk_holds_little_in_memory(
    house: RealNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has come and is not written is bounded: the connection is not read meanwhile."""
    await fill(house, 20)
    most = 0
    take = backups.PartQueue.take

    def counting(parts: backups.PartQueue, reply: Any) -> None:
        nonlocal most
        take(parts, reply)
        most = max(most, sum(len(part["bytes"]) for part in parts._come))

    monkeypatch.setattr(backups.PartQueue, "take", counting)
    async with house.client() as client:
        taken = await client.backup(tmp_path / "x")
    assert taken.bytes > 20 * limits.MIB
    assert most <= backups.AHEAD_BYTES + 2 * limits.MIB
