"""POST /script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
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
from tests.surfaces.http.conftest import LONG, script, until
from tests.surfaces.http.raw import Raw, request
from tests.tables import case

PLACE = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TABLE person;"


async def run(raw: Raw, text: str, bearer: str, **fields: str) -> dict[str, object]:
    """Run a script that is meant to work."""
    await raw.send(script(text, bearer, **fields))
    answer = await raw.answer()
    assert answer.status == 200, answer.body
    found = answer.json
    assert isinstance(found, dict)
    return found


async def test_text_runs_and_answers_every_result(raw: Raw, bearer: str) -> None:
    found = await run(raw, "LET $a = 1; RETURN [$a, 'a'];", bearer)
    assert set(found) == {"results", "seq", "store", "epoch", "ns", "db"}
    results = found["results"]
    assert isinstance(results, list)
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
    assert isinstance(results, list)
    assert results[1]["value"] == [{"id": {"$rec": "person:ana"}, "name": "Ana"}]
    assert found["seq"] == node.status().sequence


async def test_a_place_that_is_no_name_is_refused(raw: Raw, bearer: str) -> None:
    for name in ["a b", "1a", "a" * 65, "a.b", "é"]:
        with case(name):
            await raw.send(script("RETURN 1;", bearer, store_namespace=name))
            answer = await raw.answer()
            assert (answer.status, answer.error["code"]) == (400, "NameRefused")


async def test_what_only_reads_is_kept_when_it_is_asked_for(raw: Raw, bearer: str) -> None:
    await run(raw, "RETURN 'a'", bearer, store_record="true")
    await run(raw, "RETURN 'b'", bearer, store_record="false")
    for record, status in ((True, 200), (None, 200), (False, 200), ("true", 400), (1, 400)):
        body = json.dumps({"script": "RETURN 'c'", "record": record})
        await raw.send(script(body, bearer, content_type="application/json"))
        assert (await raw.answer()).status == status, record
    await raw.send(script("RETURN 1", bearer, store_record="yes"))
    assert (await raw.answer()).error["code"] == "BadRequest"
    kept = await run(raw, "INFO FOR STATEMENTS LIMIT 2", bearer)
    results: Any = kept["results"]
    assert [each["statement"] for each in results[0]["value"]] == ["RETURN 'c'", "RETURN 'a'"]


async def test_a_script_that_comes_after_a_sequence(
    raw: Raw, bearer: str, node: Node, port: int
) -> None:
    await run(raw, PLACE, bearer)
    shown = node.status().sequence
    for given in ("0", str(shown)):
        found: Any = await run(raw, "RETURN 1", bearer, store_after=given)
        assert found["seq"] >= shown
    far = shown + 20  # the sign-in may have its own entry in the log yet
    body = json.dumps({"script": "RETURN 1", "after": far, "timeout": "20ms"})
    fields = {"content_type": "application/json", "store_after": "0"}
    await raw.send(script(body, bearer, **fields))
    late = await raw.answer()
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
    asked: list[bool] = []

    def present() -> int:
        asked.append(True)
        return node.status().sequence

    monkeypatch.setattr(node.cluster, "present", present)
    await run(raw, PLACE, bearer)
    await run(raw, "RETURN 1", bearer, store_current="false")
    assert not asked
    await run(raw, "RETURN 1", bearer, store_current="true")
    body = json.dumps({"script": "RETURN 1", "current": True})
    await raw.send(script(body, bearer, content_type="application/json"))
    assert (await raw.answer()).status == 200
    await run(raw, "USE shop.main; SELECT * FROM person CURRENT", bearer)
    assert len(asked) == 3
    for head in ("1", "yes", ""):
        await raw.send(script("RETURN 1", bearer, store_current=head))
        assert (await raw.answer()).error["code"] == "BadRequest"
    body = json.dumps({"script": "RETURN 1", "current": 1})
    await raw.send(script(body, bearer, content_type="application/json"))
    assert (await raw.answer()).error["code"] == "BadRequest"


async def test_who_waits_for_a_sequence_is_cancelled_with_its_connection(
    bearer: str, node: Node, port: int
) -> None:
    async with await Raw.connect(port) as other:
        await other.send(script("RETURN 1", bearer, store_after=str(node.status().sequence + 999)))
        await until(lambda: len(node.committer.sequence_waiters) == 1)
    await until(lambda: not len(node.committer.sequence_waiters) and not node.registry.unfinished)


async def test_what_is_no_sequence_is_refused(raw: Raw, bearer: str) -> None:
    for head in ("-1", "+1", "", "1.5", "1e3", "0x10", str(2**53), "9" * 400, "one", "\xb2"):
        await raw.send(script("RETURN 1", bearer, store_after=head))
        answer = await raw.answer()
        assert (answer.status, answer.error["code"]) == (400, "BadRequest"), head
        assert "a sequence, 0 to" in answer.error["message"] and len(answer.error["message"]) < 200
    for given in (-1, 1.5, 1.0, True, "1", [1], {"$int": "1"}, 2**53, 2**64, 10**300):
        body = json.dumps({"script": "RETURN 1", "after": given})
        await raw.send(script(body, bearer, content_type="application/json"))
        answer = await raw.answer()
        assert (answer.status, answer.error["code"]) in (
            (400, "BadRequest"), (409, "NumberTooLarge"),
        ), given  # fmt: skip


async def test_requests_that_read_one_moment(raw: Raw, bearer: str) -> None:
    """The wire's are tried with the client."""
    await run(raw, PLACE + "CREATE person:ana", bearer)

    async def asked(text: str, **fields: object) -> dict[str, Any]:
        given = {"script": text, "ns": "shop", "db": "main", **fields}
        return await run(raw, json.dumps(given), bearer, content_type="application/json")

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
        given = json.dumps({"script": "RETURN 1", **fields})
        await raw.send(script(given, bearer, content_type="application/json"))
        answer = await raw.answer()
        assert (answer.status, answer.error["code"]) == (status, code), fields


async def test_json_in_and_out_with_tagged_parameters(raw: Raw, bearer: str) -> None:
    given = {
        "script": "RETURN [$a, $b, $c];",
        "params": {"a": {"$dec": "12.30"}, "b": {"$dt": "2026-01-02T03:04:05Z"}, "c": None},
        "timeout": "5s",
    }
    found = await run(raw, json.dumps(given), bearer, content_type="application/json")
    results = found["results"]
    assert isinstance(results, list)
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
    await raw.send(script("LET $a = 1; THROW 'no'; RETURN 3;", bearer))
    answer = await raw.answer()
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


@pytest.mark.parametrize(
    ("path", "kind"), [("/script", "text/plain"), ("/session", "application/json")]
)
async def test_who_uses_curl_is_told_a_type_that_the_route_takes(
    raw: Raw, bearer: str, path: str, kind: str
) -> None:
    answer = await raw.ask(
        "POST", path, b"{}", content_type="application/x-www-form-urlencoded", authorization=bearer
    )
    assert answer.error["message"].endswith(f"; with curl, add -H 'Content-Type: {kind}'")


async def test_a_compressed_body_is_a_bad_request(raw: Raw, bearer: str) -> None:
    await raw.send(script("x", bearer, content_encoding="gzip"))
    assert (await raw.answer()).error["code"] == "BadRequest"


async def test_timeout_of_the_request_ends_the_script(raw: Raw, bearer: str) -> None:
    given = json.dumps({"script": LONG, "timeout": "50ms"}).encode()
    answer = await raw.ask(
        "POST", "/script", given, content_type="application/json", authorization=bearer
    )
    assert (answer.status, answer.error["code"]) == (408, "StatementTimeout")


async def test_a_page_hears_of_a_timeout_in_a_status_that_its_browser_does_not_send_again_for(
    raw: Raw, bearer: str
) -> None:
    given = json.dumps({"script": LONG, "timeout": "50ms"}).encode()
    page = {"content_type": "application/json", "origin": "http://localhost"}
    answer = await raw.ask("POST", "/script", given, authorization=bearer, **page)
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
    found = await run(raw, text, bearer)
    assert len(found["results"]) == 1  # type: ignore[arg-type]


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
    await raw.send(script("RETURN 1;", bearer))
    answer = await raw.answer()
    assert (answer.status, answer.error["code"]) == (500, "Failed")
    assert "planted" not in answer.body.decode()
    assert answer.fields["store-request"] in answer.error["message"]


@pytest.mark.parametrize(
    "microseconds, text", [(0, "0us"), (999, "999us"), (1_449, "1.4ms"), (2_310_000, "2.31s")]
)
def test_took_is_for_people(microseconds: int, text: str) -> None:
    assert took(microseconds) == text


async def test_no_credential_is_refused_before_the_body_is_read(raw: Raw) -> None:
    await raw.send(request("POST", "/script", b"").replace(b"Length: 0", b"Length: 10000000"))
    answer = await raw.answer()
    assert (answer.status, answer.error["code"]) == (401, "SignInRefused")
    assert answer.fields["connection"] == "close"


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
