"""Snapshots that clients take, of a real node and of nodes that say what no node should."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from protocol import limits
from protocol.frames import FrameReader, MessageKind, encode
from storage.backups.verify import VerifyReport, verify
from storage.files.disk import Disk
from storeclient import AsyncClient, ProtocolBroken, backups, errors
from storeclient.backups import Target
from surfaces.wire import NodeGate
from tests.nodes import PASSWORD, Running, running
from tests.surfaces.wire.peers import serving


class BackupServer:
    def __init__(self, here: Running, address: str) -> None:
        self.here = here
        self.address = address

    def client(self, user: str = "root", **more: Any) -> AsyncClient:
        return AsyncClient(self.address, user=user, password=PASSWORD, **more)


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the false nodes here answers a BYE, which a client waits for when it closes."""
    monkeypatch.setattr("storeclient.connection.GRACE_SECONDS", 0.1)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[BackupServer]:
    async with running(tmp_path / "store") as here, serving(NodeGate(here.node)) as surface:
        await here.values("DEFINE TABLE t; CREATE t; CREATE t")
        host, port = surface.address
        yield BackupServer(here, f"{host}:{port}")


async def fill(house: BackupServer, mib: int) -> None:
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
async def test_what_was_cut_off_gives_way(house: BackupServer, tmp_path: Path, begun: int) -> None:
    async with house.client() as client:
        await client.backup(tmp_path / "x")
        (tmp_path / "y.partial").write_bytes((tmp_path / "x").read_bytes()[:begun])
        await client.backup(tmp_path / "y")
    assert sorted(os.listdir(tmp_path)) == ["store", "x", "y"]


async def test_what_gets_the_name_meanwhile_is_not_replaced(
    house: BackupServer, tmp_path: Path
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
    house: BackupServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


# --- nodes that are none --------------------------------------------------------------------------

WELCOME = {
    "major": 1, "minor": 5, "version": "0", "node": "n", "limits": {},
    "user": {"name": "root", "role": "owner", "space": None},
}  # fmt: skip
SUMMARY = {"form": "snapshot", "records": 1, "version": "0"}
ANSWER = {"results": [{"value": SUMMARY, "kind": "value", "rows": 0, "took": None}], "seq": 1}


def part(n: int, data: bytes, done: int, total: int) -> tuple[MessageKind, dict[str, Any]]:
    return MessageKind.PART, {"n": n, "bytes": data, "done": done, "total": total}


WRONG: dict[str, list[tuple[MessageKind, dict[str, Any]]]] = {
    "no part": [(MessageKind.ANSWER, ANSWER)],
    "a part is missing": [part(1, b"ab", 2, 6), part(3, b"ef", 6, 6), (MessageKind.ANSWER, ANSWER)],
    "the last is missing": [part(1, b"ab", 2, 6), (MessageKind.ANSWER, ANSWER)],
    "more than all": [part(1, b"abc", 3, 2), (MessageKind.ANSWER, ANSWER)],
    "no bytes": [(MessageKind.PART, {"n": 1, "done": 0, "total": 6}), (MessageKind.ANSWER, ANSWER)],
    "no total": [
        (MessageKind.PART, {"n": 1, "bytes": b"ab", "done": 2}),
        (MessageKind.ANSWER, ANSWER),
    ],
    "text": [(MessageKind.PART, {"n": 1, "bytes": "ab", "done": 2, "total": 2})],
    "another end": [part(1, b"ab", 2, 2), (MessageKind.VALUE, {})],
    "no summary": [part(1, b"ab", 2, 2), (MessageKind.ANSWER, {"results": [], "seq": 1})],
}


async def fake(says: Callable[[int], list[bytes]]) -> tuple[asyncio.Server, str]:
    """A node that welcomes, and then says this to the first request; an empty one: it hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        try:
            while data := await reader.read(65_536):
                frames.feed(data)
                while (message := frames.next()) is not None:
                    if message.kind is MessageKind.HELLO:
                        writer.write(encode(MessageKind.WELCOME, 0, WELCOME))
                    elif message.kind is MessageKind.RUN:
                        for said in says(message.id):
                            writer.write(said)
                            if not said:
                                return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("what", WRONG)
async def test_a_node_that_says_something_else(what: str, tmp_path: Path) -> None:
    server, address = await fake(lambda id: [encode(kind, id, body) for kind, body in WRONG[what]])
    async with server, AsyncClient(address, user="root", password=PASSWORD) as client:
        with pytest.raises(ProtocolBroken):
            await client.backup(tmp_path / "x")
    assert os.listdir(tmp_path) == []


async def test_parts_that_nobody_asked_for(tmp_path: Path) -> None:
    server, address = await fake(lambda id: [encode(*_of(part(1, b"ab", 2, 6), id))])
    async with server, AsyncClient(address, user="root", password=PASSWORD) as client:
        with pytest.raises(errors.OutcomeUnknown):
            await client.query("RETURN 1")


def _of(
    said: tuple[MessageKind, dict[str, Any]], id: int
) -> tuple[MessageKind, int, dict[str, Any]]:
    return said[0], id, said[1]
