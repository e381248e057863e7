"""POST /script."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from actors.node import Node
from protocol import binary
from protocol.values import RecordId
from surfaces.http import scripts
from surfaces.http.results import took
from surfaces.http.surface import HttpSurface
from tests.logbook import Logbook
from tests.surfaces.http.conftest import LONG, until
from tests.surfaces.http.raw import Raw, script
from tests.tables import case

PLACE = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TABLE person;"


async def run(
    raw: Raw, asked: str | Mapping[str, object], bearer: str, **fields: str
) -> dict[str, Any]:
    answer = await raw.run(asked, bearer, **fields)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def test_text_runs_and_answers_every_result(raw: Raw, bearer: str) -> None:
    found = await run(raw, "LET $a = 1; RETURN [$a, 'a'];", bearer)
    assert set(found) == {"results", "seq", "store", "epoch", "ns", "db"}
    results = found["results"]
    assert [result["value"] for result in results] == [{"$none": True}, [1, "a"]]
    assert all(set(result) == {"value", "kind", "rows", "took"} for result in results)


async def test_a_text_takes_its_place_from_the_head(raw: Raw, bearer: str, node: Node) -> None:
    made = await run(raw, PLACE, bearer)
    assert (made["ns"], made["db"]) == ("shop", "main")
    found = await run(
        raw,
        "CREATE person:ana SET name = 'Ana'; SELECT * FROM person;",
        bearer,
        store_namespace="shop",
        store_database="main",
    )
    results = found["results"]
    assert results[1]["value"] == [{"id": {"$rec": "person:ana"}, "name": "Ana"}]
    assert found["seq"] == node.status().sequence


async def test_a_place_that_is_no_name_is_refused(raw: Raw, bearer: str) -> None:
    for name in ["a b", "1a", "a" * 65, "a.b", "é"]:
        with case(name):
            answer = await raw.run("RETURN 1;", bearer, store_namespace=name)
            assert (answer.status, answer.error["code"]) == (400, "NameRefused")


async def test_what_only_reads_is_kept_when_it_is_asked_for(raw: Raw, bearer: str) -> None:
    await run(raw, "RETURN 'a'", bearer, store_record="true")
    await run(raw, "RETURN 'b'", bearer, store_record="false")
    for record, status in ((True, 200), (None, 200), (False, 200), ("true", 400), (1, 400)):
        asked = {"script": "RETURN 'c'", "record": record}
        assert (await raw.run(asked, bearer)).status == status, record
    assert (await raw.run("RETURN 1", bearer, store_record="yes")).error["code"] == "BadRequest"
    kept = await run(raw, "INFO FOR STATEMENTS LIMIT 2", bearer)
    assert [each["statement"] for each in kept["results"][0]["value"]] == [
        "RETURN 'c'",
        "RETURN 'a'",
    ]


async def test_a_script_that_comes_after_a_sequence(
    raw: Raw, bearer: str, node: Node, port: int
) -> None:
    await run(raw, PLACE, bearer)
    shown = node.status().sequence
    for given in ("0", str(shown)):
        found = await run(raw, "RETURN 1", bearer, store_after=given)
        assert found["seq"] >= shown
    far = shown + 20  # the sign-in may have its own entry in the log yet
    asked = {"script": "RETURN 1", "after": far, "timeout": "20ms"}
    late = await raw.run(asked, bearer, store_after="0")
    assert (late.status, late.error["code"]) == (408, "StatementTimeout"), "the body goes first"
    assert late.error["detail"] == {"after": far, "seq": node.status().sequence}
    async with await Raw.connect(port) as other:
        await other.send(script("RETURN 1", bearer, store_after=str(far)))
        await until(lambda: len(node.committer.sequence_waiters) == 1)
        assert node.registry.waiting("http") == 1
        await run(raw, "USE shop.main;" + "CREATE person;" * 20, bearer)
        answer = await other.answer()
        assert answer.status == 200 and answer.json["seq"] >= far


async def test_a_script_that_reads_what_is_current(
    raw: Raw, bearer: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[bool] = []

    def present() -> int:
        came.append(True)
        return node.status().sequence

    monkeypatch.setattr(node.cluster, "present", present)
    await run(raw, PLACE, bearer)
    await run(raw, "RETURN 1", bearer, store_current="false")
    assert not came
    await run(raw, "RETURN 1", bearer, store_current="true")
    asked = {"script": "RETURN 1", "current": True}
    assert (await raw.run(asked, bearer)).status == 200
    await run(raw, "USE shop.main; SELECT * FROM person CURRENT", bearer)
    assert len(came) == 3
    for head in ("1", "yes", ""):
        assert (await raw.run("RETURN 1", bearer, store_current=head)).error["code"] == "BadRequest"
    asked = {"script": "RETURN 1", "current": 1}
    assert (await raw.run(asked, bearer)).error["code"] == "BadRequest"


async def test_who_waits_for_a_sequence_is_cancelled_with_its_connection(
    bearer: str, node: Node, port: int
) -> None:
    async with await Raw.connect(port) as other:
        await other.send(script("RETURN 1", bearer, store_after=str(node.status().sequence + 999)))
        await until(lambda: len(node.committer.sequence_waiters) == 1)
    await until(lambda: not len(node.committer.sequence_waiters) and not node.registry.unfinished)


async def test_what_is_no_sequence_is_refused(raw: Raw, bearer: str) -> None:
    for head in ("-1", "+1", "", "1.5", "1e3", "0x10", str(2**53), "9" * 400, "one", "\xb2"):
        answer = await raw.run("RETURN 1", bearer, store_after=head)
        assert (answer.status, answer.error["code"]) == (400, "BadRequest"), head
        assert "a sequence, 0 to" in answer.error["message"] and len(answer.error["message"]) < 200
    for given in (-1, 1.5, 1.0, True, "1", [1], {"$int": "1"}, 2**53, 2**64, 10**300):
        asked = {"script": "RETURN 1", "after": given}
        answer = await raw.run(asked, bearer)
        assert (answer.status, answer.error["code"]) in (
            (400, "BadRequest"), (409, "NumberTooLarge"),
        ), given  # fmt: skip


async def test_requests_that_read_one_moment(raw: Raw, bearer: str) -> None:
    """The wire's are tried with the client."""
    await run(raw, PLACE + "CREATE person:ana", bearer)

    async def asked(text: str, **fields: object) -> dict[str, Any]:
        given = {"script": text, "ns": "shop", "db": "main", **fields}
        return await run(raw, given, bearer)

    first = await asked("SELECT VALUE id FROM person", moment="new", keep="30s")
    name = first["moment"]
    assert set(first) == {"results", "seq", "store", "epoch", "ns", "db", "moment"}
    await run(raw, "USE shop.main; CREATE person:bob", bearer)
    again = await asked("SELECT VALUE id FROM person", moment=name, keep="0s")
    assert again["results"][0]["value"] == first["results"][0]["value"]
    assert again["seq"] == first["seq"] and "moment" not in again, "it was let go"
    for fields, status, code in (
        ({"moment": name}, 404, "Unknown"), ({"keep": "30s"}, 400, "BadRequest"),
        ({"moment": "new", "keep": "11m"}, 400, "BadRequest"),
        ({"moment": "new", "keep": 30}, 400, "BadRequest"), ({"moment": 1}, 400, "BadRequest"),
        ({"moment": "\ud800"}, 422, "TypeRefused"),
    ):  # fmt: skip
        answer = await raw.run({"script": "RETURN 1", **fields}, bearer)
        assert (answer.status, answer.error["code"]) == (status, code), fields


async def test_json_in_and_out_with_tagged_parameters(raw: Raw, bearer: str) -> None:
    given = {
        "script": "RETURN [$a, $b, $c];",
        "params": {"a": {"$dec": "12.30"}, "b": {"$dt": "2026-01-02T03:04:05Z"}, "c": None},
        "timeout": "5s",
    }
    found = await run(raw, given, bearer)
    results = found["results"]
    assert results[0]["value"] == [{"$dec": "12.30"}, {"$dt": "2026-01-02T03:04:05Z"}, None]


async def test_msgpack_in_and_out_is_exact(raw: Raw, bearer: str) -> None:
    values = [Decimal("12.30"), datetime(2026, 1, 2, tzinfo=UTC), RecordId("person", "ana"), 2**60]
    given = binary.pack({"script": "RETURN $v;", "params": {"v": values}})
    answer = await raw.ask(
        "POST",
        "/script",
        given,
        content_type="application/msgpack",
        accept="application/msgpack",
        authorization=bearer,
    )
    assert (answer.status, answer.fields["content-type"]) == (200, "application/msgpack")
    found = binary.unpack(answer.body)
    assert isinstance(found, dict)
    assert found["results"][0]["value"] == values


async def test_a_refusal_keeps_what_ran_before_it(raw: Raw, bearer: str) -> None:
    answer = await raw.run("LET $a = 1; THROW 'no'; RETURN 3;", bearer)
    assert answer.status == 409
    assert answer.error["code"] == "Thrown"
    assert answer.error["statement"] == 2
    assert answer.error["request"] == answer.fields["store-request"]
    assert len(answer.json["results"]) == 1


async def test_a_body_of_another_form_is_a_bad_request(raw: Raw, bearer: str) -> None:
    for kind, body in [
        ("application/json", b"[]"),
        ("application/json", b'{"script":1}'),
        ("application/json", b"{}"),
        ("application/json", b'{"script":"RETURN 1;","more":1}'),
        ("application/json", b'{"script":"RETURN 1;","params":[]}'),
        ("application/json", b'{"script":"RETURN 1;","timeout":5}'),
        ("application/json", b'{"script":"RETURN 1;","timeout":"0s"}'),
        ("application/json", b'{"script":"RETURN 1;","timeout":"soon"}'),
        ("application/json", b'{"script":"RETURN 1;","db":"main"}'),
        ("application/json", b'{"script":"RETURN 1;","params":{"a":{"$x":1}}}'),
        ("application/json", b'{"script":"RETURN 1;"} x'),
        ("application/json", b'{"script":"RETURN 1;","reason":"' + b"x" * 501 + b'"}'),
        ("application/msgpack", b"\xc1"),
        ("application/msgpack", b"\x01\x02"),
        ("text/plain", b"RETURN '\xff';"),
        ("text/plain; charset=latin-1", b"RETURN 1;"),
        ("text/html", b"RETURN 1;"),
        ("application/x-www-form-urlencoded", b"RETURN 1;"),
    ]:
        with case(kind, body):
            answer = await raw.ask("POST", "/script", body, content_type=kind, authorization=bearer)
            assert (answer.status, answer.error["code"]) == (400, "BadRequest"), answer.body


async def test_who_uses_curl_is_told_a_type_that_the_route_takes(raw: Raw, bearer: str) -> None:
    form = {"content_type": "application/x-www-form-urlencoded", "authorization": bearer}
    for path, kind in (("/script", "text/plain"), ("/session", "application/json")):
        answer = await raw.ask("POST", path, b"{}", **form)
        assert answer.error["message"].endswith(f"; with curl, add -H 'Content-Type: {kind}'")


async def test_a_compressed_body_is_a_bad_request(raw: Raw, bearer: str) -> None:
    assert (await raw.run("x", bearer, content_encoding="gzip")).error["code"] == "BadRequest"


async def test_a_page_hears_of_a_timeout_in_a_status_that_its_browser_does_not_send_again_for(
    raw: Raw, bearer: str
) -> None:
    asked = {"script": LONG, "timeout": "50ms"}
    answer = await raw.run(asked, bearer, origin="http://localhost")
    assert (answer.status, answer.error["code"]) == (503, "StatementTimeout")
    assert answer.error["status"] == 408
    assert "retry-after" not in answer.fields


async def test_a_client_that_goes_away_cancels_its_script(
    surface: HttpSurface, node: Node, bearer: str
) -> None:
    async with await Raw.connect(surface.address[1]) as gone:
        await gone.send(script(LONG, bearer))
        await until(lambda: node.registry.unfinished)
    await until(lambda: not node.registry.unfinished)
    await until(lambda: not surface.running)
    assert surface.counters.requests["POST", "/script", 499] == 1


async def test_a_chunked_script(raw: Raw, bearer: str) -> None:
    head = script("", bearer).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    await raw.send(head + b"4;why=x\r\nRETU\r\n5\r\nRN 1;\r\n0\r\nStore-Namespace: x y\r\n\r\n")
    answer = await raw.answer()
    assert answer.json["results"][0]["value"] == 1  # the trailer is not taken for a field


async def test_a_script_of_the_largest_size_is_read(raw: Raw, bearer: str) -> None:
    text = "RETURN 1; --" + "x" * (16 * 1024 * 1024 - 12)
    assert len((await run(raw, text, bearer))["results"]) == 1


async def test_a_body_over_its_cap_is_refused_while_it_is_read(raw: Raw, bearer: str) -> None:
    head = script("", bearer).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    await raw.send(head)
    part = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    try:
        for _ in range(20):
            await raw.send(part)
    except OSError:
        pass  # refused before all was sent
    answer = await raw.answer()
    assert (answer.status, answer.error["code"]) == (413, "TooLarge")
    assert answer.fields["connection"] == "close"


async def test_more_framing_than_body_is_refused(raw: Raw, bearer: str) -> None:
    head = script("", bearer).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    await raw.send(head)
    try:
        for _ in range(200):
            await raw.send(b"1;x=" + b"y" * 4096 + b"\r\na\r\n")
    except OSError:
        pass
    assert (await raw.answer()).error["code"] == "BadRequest"


async def test_a_bug_answers_its_request_and_logs_the_rest(
    raw: Raw, bearer: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    def planted(*_args: object) -> None:
        raise ValueError("planted, with a secret")

    logbook.allow("request failed")
    monkeypatch.setattr(scripts, "read", planted)
    answer = await raw.run("RETURN 1;", bearer)
    assert (answer.status, answer.error["code"]) == (500, "Failed")
    assert "planted" not in answer.body.decode()
    assert answer.fields["store-request"] in answer.error["message"]


def test_took_is_for_people() -> None:
    assert [took(us) for us in (0, 999, 1_449, 2_310_000)] == ["0us", "999us", "1.4ms", "2.31s"]


async def test_what_waits_for_nothing_is_answered_without_a_task(
    raw: Raw, bearer: str, surface: HttpSurface, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One behind another in the same read has a turn of its own all the same."""
    tasks: list[object] = []
    spawn = surface.background.spawn

    def counted(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(work)
        return spawn(work)

    await run(raw, "RETURN 1", bearer)  # its plan is made, and what was in flight is on the disk
    monkeypatch.setattr(surface.background, "spawn", counted)
    await run(raw, "RETURN 1", bearer)
    assert not tasks
    await run(raw, PLACE, bearer)
    assert len(tasks) == 1, "it waits for the disk"
    one, other = script("RETURN 1", bearer), script("RETURN 2", bearer)
    await raw.send(one + other)
    values = [(await raw.answer()).json["results"][0]["value"] for _ in range(2)]
    assert values == [1, 2]
    assert len(tasks) == 3, "both of two that were read together"
