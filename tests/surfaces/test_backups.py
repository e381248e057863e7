"""Backups over both surfaces, on real sockets: GET /backup as a file, BACKUP over the wire as an
answer and in parts."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors.backups import taking
from protocol import limits
from protocol.frames import MessageKind
from storage.backups.verify import VerifyReport, verify
from storage.files.disk import Disk
from tests.nodes import PASSWORD
from tests.surfaces.http.raw import Answer, Raw, request
from tests.surfaces.http.test_errors import check_common, check_error
from tests.surfaces.served import Served, served
from tests.surfaces.wire.peers import Peer, until
from tests.tables import case

BASIC = "Basic " + b64encode(f"root:{PASSWORD}".encode()).decode()
FEW = "DEFINE TABLE t; CREATE t; CREATE t"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "backups"
    found.mkdir()
    return found


@pytest.fixture
async def both(tmp_path: Path, folder: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "store", {"backup_dir": str(folder)}) as found:
        await found.here.values(FEW)
        yield found


async def fill(node: Served, mib: int) -> None:
    """Records of a mebibyte that no compression makes smaller."""
    for number in range(mib):
        data = hashlib.shake_256(str(number).encode()).digest(limits.MIB)
        await node.here.value("CREATE t SET data = $data RETURN NONE", {"data": data})


def report(path: Path, data: bytes) -> VerifyReport:
    path.write_bytes(data)
    file = Disk().open_read(str(path))
    try:
        return verify(file)
    finally:
        file.close()


async def get(raw: Raw, query: str = "", **fields: str) -> Answer:
    return await raw.ask("GET", f"/backup{query}", authorization=BASIC, **fields)


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "form", "extension"),
    [
        ("", "snapshot", ".storesnap"),
        ("?as=snapshot", "snapshot", ".storesnap"),
        ("?as=log", "log", ".storelog"),
        ("?as=log&from=3", "log", ".storelog"),
        ("?as=script", "script", ".storeql"),
        ("?from=3&as=log", "log", ".storelog"),
    ],
)
async def test_each_form(
    both: Served, tmp_path: Path, query: str, form: str, extension: str
) -> None:
    raw = await both.raw()
    answer = await get(raw, query)
    check_common(answer)
    assert answer.status == 200
    assert answer.fields["store-backup-form"] == form
    assert answer.fields["content-type"] == "application/octet-stream"
    assert int(answer.fields["content-length"]) == len(answer.body)
    name = answer.fields["content-disposition"]
    assert name.startswith('attachment; filename="store-')
    assert name.endswith(f'{extension}"')
    algorithm, _, digest = answer.fields["digest"].partition("=")
    assert algorithm == "sha-256"
    assert b64decode(digest) == hashlib.sha256(answer.body).digest()
    if form == "script":
        assert answer.body.startswith(b"-- storenode script")
    else:
        found = report(tmp_path / "found", answer.body)
        assert (found.result, found.form.value) == ("whole", form)
    if "from" in query:
        assert found.records == found.sequence - 2
    assert (await raw.ask("GET", "/health")).status == 200, "the connection goes on"


async def test_head_tells_of_it(both: Served) -> None:
    raw = await both.raw()
    answer = await raw.ask("HEAD", "/backup", authorization=BASIC)
    assert answer.status == 200
    assert int(answer.fields["content-length"]) > 0
    assert (await raw.ask("GET", "/health")).status == 200


async def test_refusals(both: Served) -> None:
    for query, code in [
        ("?from=3", "BadRequest"), ("?as=script&from=3", "BadRequest"),
        ("?as=snapshot&from=3", "BadRequest"), ("?as=log&from=x", "BadRequest"),
        ("?as=log&from=0", "BadRequest"), ("?as=log&from=-1", "BadRequest"),
        ("?as=log&from=99999999999999999999", "BadRequest"), ("?as=log&from=99999", "BadRequest"),
        ("?as=everything", "BadRequest"), ("?to=x", "BadRequest"), ("?as=log&as=log", "BadRequest"),
    ]:  # fmt: skip
        with case(query, code):
            raw = await both.raw()
            answer = await get(raw, query)
            check_error(answer, code)
            assert "statement" not in answer.error
            assert "store-backup-form" not in answer.fields
            nobody = await raw.ask("GET", f"/backup{query}")
            check_error(nobody, "SignInRefused")


async def test_what_was_pruned_and_what_has_no_room(
    both: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = await both.raw()
    both.here.node.reads._pins.gone(3)
    answer = await get(raw, "?as=log")
    check_error(answer, "LogPruned")
    assert "3" in answer.error["message"]
    from actors.backups import files
    from protocol.environment import Room

    monkeypatch.setattr(files, "reserve", lambda _: Room(1 << 62, 0))
    check_error(await get(raw), "DiskFull")


async def test_one_at_a_time(both: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = await both.raw()
    monkeypatch.setattr(both.here.node.backups, "taking", True)
    answer = await get(raw)
    check_error(answer, "Busy")
    assert answer.fields["retry-after"] == "1"


async def test_a_large_one_comes_as_it_is_read(both: Served, tmp_path: Path) -> None:
    """More than a connection holds: the file waits for its reader."""
    await fill(both, 40)
    raw = await both.raw()
    await raw.send(request("GET", "/backup", authorization=BASIC))
    other = await both.raw()
    assert (await other.ask("GET", "/health")).status == 200
    answer = await raw.answer()
    assert len(answer.body) > 40 * limits.MIB
    assert report(tmp_path / "found", answer.body).result == "whole"


async def test_a_reader_that_goes_away_leaves_nothing(both: Served, tmp_path: Path) -> None:
    await fill(both, 20)
    async with await Raw.connect(both.http.address[1]) as raw:
        await raw.send(request("GET", "/backup", authorization=BASIC))
        await raw.reader.readexactly(100_000)
    await until(lambda: both.http.running == 0)
    await until(lambda: not any(file.kept for file in both.here.node.backups._kept))
    again = await both.raw()
    assert (await get(again)).status == 200


async def test_a_client_that_goes_away_ends_it(
    both: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    def park(self: Any, turn: Any, parts: Any) -> None:
        reached.set()
        while True:
            turn.park()

    monkeypatch.setattr(taking.Backups, "_write", park)
    async with await Raw.connect(both.http.address[1]) as raw:
        await raw.send(request("GET", "/backup", authorization=BASIC))
        await reached.wait()
    await until(lambda: not both.here.node.backups.taking)
    monkeypatch.undo()
    assert (await get(await both.raw())).status == 200


async def test_others_go_on_meanwhile(both: Served) -> None:
    await fill(both, 10)
    raw, other = await both.raw(), await both.raw()
    done = asyncio.create_task(get(raw))
    answers = 0
    while not done.done():
        answer = await other.ask("POST", "/script", b"CREATE t", authorization=BASIC,
                                 store_namespace="shop", store_database="main")  # fmt: skip
        assert answer.status == 200
        answers += 1
    assert (await done).status == 200
    assert answers > 0


# --- over the wire --------------------------------------------------------------------------------


async def signed_in(both: Served, **more: Any) -> Peer:
    return await both.peer(user="root", password=PASSWORD, **more)


async def parts(peer: Peer, id: int) -> tuple[list[dict[str, Any]], Any]:
    found: list[dict[str, Any]] = []
    while True:
        message = await peer.hear()
        assert message is not None and message.id == id
        if message.kind is not MessageKind.PART:
            return found, message
        assert message.body is not None
        found.append(message.body)


async def test_an_answer_over_the_wire(both: Served, tmp_path: Path) -> None:
    peer = await signed_in(both)
    message = await peer.run(1, "BACKUP")
    assert message.kind is MessageKind.ANSWER and message.body is not None
    assert report(tmp_path / "found", message.body["results"][0]["value"]).result == "whole"


async def test_an_answer_over_a_frame_is_refused_and_the_connection_goes_on(both: Served) -> None:
    await fill(both, 17)
    peer = await signed_in(both)
    message = await peer.run(1, "BACKUP")
    assert message.kind is MessageKind.ERROR and message.body is not None
    error = message.body["error"]
    assert error["code"] == "AnswerTooLarge"
    assert error["detail"]["bytes"] > 17 * limits.MIB
    assert str(error["detail"]["bytes"]) in error["message"]
    assert (await peer.run(2, "RETURN 1")).kind is MessageKind.ANSWER


async def test_a_snapshot_in_parts(both: Served, tmp_path: Path) -> None:
    await fill(both, 5)
    peer = await signed_in(both)
    peer.say(MessageKind.RUN, 3, {"script": "BACKUP", "stream": True})
    found, answer = await parts(peer, 3)
    data = b"".join(part["bytes"] for part in found)
    assert [part["n"] for part in found] == list(range(1, len(found) + 1))
    assert len(found) >= 6
    assert all(0 < len(part["bytes"]) <= limits.MIB for part in found)
    done = 0
    for part in found:
        done += len(part["bytes"])
        assert (part["done"], part["total"]) == (done, len(data))
    whole = report(tmp_path / "found", data)
    assert whole.result == "whole"
    assert answer.kind is MessageKind.ANSWER
    value = answer.body["results"][0]["value"]
    assert value.keys() == {"form", "records", "version"}
    assert (value["form"], value["records"]) == ("snapshot", whole.records)
    assert (await peer.run(4, "RETURN 1")).kind is MessageKind.ANSWER


async def test_of_a_place(both: Served, tmp_path: Path) -> None:
    peer = await signed_in(both)
    peer.say(MessageKind.RUN, 3, {"script": "BACKUP STATE OF shop.main", "stream": True})
    found, answer = await parts(peer, 3)
    assert answer.kind is MessageKind.ANSWER
    facts = report(tmp_path / "found", b"".join(part["bytes"] for part in found)).facts
    assert str(facts.place) == "shop.main"  # type: ignore[union-attr]


async def test_only_one_snapshot_streams(both: Served, folder: Path) -> None:
    for script in [
        "BACKUP LOG", "BACKUP SCRIPT", "BACKUP TO 'x'", "RETURN 1", "BACKUP; RETURN 1",
        "BACKUP;BACKUP",
    ]:  # fmt: skip
        with case(script):
            peer = await signed_in(both)
            peer.say(MessageKind.RUN, 1, {"script": script, "stream": True})
            found, answer = await parts(peer, 1)
            assert found == []
            assert answer.kind is MessageKind.ERROR
            assert answer.body["error"]["code"] == "BadRequest"
            assert list(folder.iterdir()) == []
            assert (await peer.run(2, "RETURN 1")).kind is MessageKind.ANSWER


async def test_below_minor_5_nothing_streams(both: Served) -> None:
    peer = await signed_in(both, minor=[0, 4])
    message = await peer.run(1, "BACKUP", stream=True)
    assert message.kind is MessageKind.ERROR and message.body is not None
    assert "minor 5" in message.body["error"]["message"]
    assert (await peer.run(2, "BACKUP", stream=False)).kind is MessageKind.ANSWER


async def test_a_stream_is_cancelled(both: Served) -> None:
    await fill(both, 30)
    peer = await signed_in(both)
    peer.say(MessageKind.RUN, 3, {"script": "BACKUP", "stream": True})
    first = await peer.hear()
    assert first is not None and first.kind is MessageKind.PART
    peer.say(MessageKind.CANCEL, 3)
    found, answer = await parts(peer, 3)
    assert len(found) < 29
    assert answer.kind is MessageKind.ERROR
    assert answer.body["error"]["code"] == "Cancelled"
    assert (await peer.run(4, "RETURN 1")).kind is MessageKind.ANSWER
    assert not any(file.kept for file in both.here.node.backups._kept)


async def test_a_peer_that_goes_away_during_a_stream(both: Served) -> None:
    await fill(both, 30)
    async with both.stranger() as peer:
        await peer.greet(user="root", password=PASSWORD)
        peer.say(MessageKind.RUN, 3, {"script": "BACKUP", "stream": True})
        first = await peer.hear()
        assert first is not None and first.kind is MessageKind.PART
    await until(lambda: not any(file.kept for file in both.here.node.backups._kept))


@pytest.mark.hard
async def test_a_slow_peer_holds_little_in_the_node(both: Served) -> None:
    """What it has not read is a part or two, and others on its connection are answered."""
    await fill(both, 30)
    peer = await signed_in(both)
    peer.say(MessageKind.RUN, 3, {"script": "BACKUP", "stream": True})
    first = await peer.hear()
    assert first is not None and first.kind is MessageKind.PART
    [connection] = both.wire._wire.connections
    most = 0
    for _ in range(50):
        await asyncio.sleep(0)
        most = max(most, connection.outgoing.unsent)  # type: ignore[attr-defined]
    assert most < 4 * limits.MIB
    found, answer = await parts(peer, 3)
    assert answer.kind is MessageKind.ANSWER
    assert len(found) > 28
