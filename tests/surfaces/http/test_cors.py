"""Pages of other origins: only declared ones, only with tokens, and nobody's credentials."""

from __future__ import annotations

import json
import re
from pathlib import Path

import surfaces.http
from actors.node import Node
from surfaces.http.cors import ANSWER_FIELDS, REQUEST_FIELDS
from surfaces.http.routes import ROUTES
from tests.nodes import running
from tests.surfaces.http.conftest import PASSWORD
from tests.surfaces.http.raw import Answer, Raw
from tests.tables import case

APP = "https://app.example"
BASIC = "Basic cm9vdDpjb3JyZWN0IGhvcnNl"


def cors(answer: Answer) -> dict[str, str]:
    return {
        name.lower(): value
        for name, value in answer.fields.items()
        if name.lower().startswith("access-control")
    }


async def declare(raw: Raw, bearer: str, origins: str) -> Answer:
    return await raw.run(f"DEFINE NODE ORIGINS {origins}", bearer)


async def test_nobody_is_let_in_undeclared(raw: Raw, bearer: str) -> None:
    for origin in (APP, "null", "https://app.example.evil", "http://app.example"):
        answer = await raw.run("RETURN 1", bearer, origin=origin)
        assert answer.status == 200 and cors(answer) == {} and answer.fields["vary"] == "Origin"
    assert (await declare(raw, bearer, f"'{APP}', 'HTTP://Localhost:3000'")).status == 200
    for origin in ("null", "https://app.example.evil", "http://app.example", f"{APP}:8443"):
        assert cors(await raw.run("RETURN 1", bearer, origin=origin)) == {}, origin


async def test_a_declared_origin_reads_answers_and_refusals(raw: Raw, bearer: str) -> None:
    await declare(raw, bearer, f"'{APP}:443', 'http://localhost:3000'")
    for origin in (APP, "http://localhost:3000"):
        for text, status in (("RETURN 1", 200), ("THROW 1", 409)):
            for _ in range(3):  # the same head again takes no short way
                answer = await raw.run(text, bearer, origin=origin)
                assert answer.status == status
                assert cors(answer) == {
                    "access-control-allow-origin": origin,
                    "access-control-expose-headers":
                        "Store-Request, Store-Version, Store-Seq, Store-Fence, Store-Backup-Form,"
                        " Digest, Content-Disposition, Retry-After",
                }  # fmt: skip
    page = await raw.ask("GET", "/health", origin=APP)
    assert cors(page)["access-control-allow-origin"] == APP
    await declare(raw, bearer, "NONE")
    assert cors(await raw.run("RETURN 1", bearer, origin=APP)) == {}


async def test_a_browser_asks_first(raw: Raw, bearer: str) -> None:
    await declare(raw, bearer, f"'{APP}'")
    asked = {"access_control_request_method": "POST"}
    answer = await raw.ask("OPTIONS", "/script", origin=APP, **asked)
    assert answer.status == 204
    said = cors(answer)
    assert said["access-control-allow-origin"] == APP
    assert "POST" in said["access-control-allow-methods"]
    assert "Authorization" in said["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in said
    other = await raw.ask("OPTIONS", "/script", origin="https://evil.example", **asked)
    assert other.status == 204 and cors(other) == {}


def listed(fields: bytes) -> set[str]:
    return set(fields.decode().split(", "))


def test_pages_may_send_and_read_every_field_there_is() -> None:
    """What a route reads of a head, what one adds to its answer, and what the page names."""
    code = "".join(path.read_text() for path in Path(surfaces.http.__file__).parent.glob("*.py"))
    read = {name.title() for name in re.findall(r'b"(store-[a-z-]+)"', code)}
    said = set(re.findall(r'(Store-[A-Za-z-]+)(?=: |":)', code))
    documented = (Path(__file__).parents[3] / "docs/http.md").read_text()
    named = set(re.findall(r"`(Store-[A-Za-z-]+)", documented))
    _, _, table = documented.partition("| field of the answer | |\n")
    of_backups = set(re.findall(r"^\| `([A-Za-z-]+)`", table.partition("\n\n")[0], re.MULTILINE))
    assert len(read) == 5 and len(said) == 5 and len(of_backups) == 3, "nothing was found"
    assert read <= listed(REQUEST_FIELDS)
    assert said | of_backups <= listed(ANSWER_FIELDS)
    assert named <= read | said
    described = [one for route in ROUTES if route.operation for one in route.operation.headers]
    assert {one.name for one in described} == read


async def test_only_tokens_from_there(raw: Raw, bearer: str) -> None:
    await declare(raw, bearer, f"'{APP}'")
    assert (await raw.run("RETURN 1", BASIC, origin=APP)).error["code"] == "ForeignOrigin"
    body = json.dumps({"user": "root", "password": PASSWORD}).encode()
    for origin, status in ((APP, 200), ("https://evil.example", 403)):
        answer = await raw.ask(
            "POST", "/session", body, content_type="application/json", origin=origin
        )
        assert answer.status == status and "set-cookie" not in answer.fields


async def test_no_page_of_another_site_uses_a_password_that_the_browser_keeps(
    raw: Raw, bearer: str
) -> None:
    """Text is posted without asking first, and what it does is done even if nobody reads it."""
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", APP):
        answer = await raw.run("DEFINE NAMESPACE theirs", BASIC, origin=origin)
        assert (answer.status, answer.error["code"]) == (403, "ForeignOrigin")
        assert (await raw.run("INFO FOR STORE", bearer)).json["results"][0]["value"][
            "namespaces"
        ] == []
        metrics = await raw.ask("GET", "/metrics", authorization=BASIC, origin=origin)
        assert metrics.error["code"] == "ForeignOrigin"


async def test_the_nodes_own_pages_may(raw: Raw, bearer: str) -> None:
    assert (await raw.run("RETURN 1", BASIC, origin="http://localhost")).status == 200


async def test_what_is_no_origin(node: Node, raw: Raw, bearer: str) -> None:
    for wrong in [
        "*", "null", "https://*.example", "app.example", "https://app.example/", "ftp://a",
        "https://", "https://a b", "https://a:99999999", "https://a, https://b",
    ]:  # fmt: skip
        with case(wrong):
            assert (await declare(raw, bearer, f"'{wrong}'")).error["code"] == "BadRequest"
            assert node.status().origins == ()


async def test_origins_stay_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        async with running(tmp_path / "store") as node:
            if not node.node.status().origins:
                await node.value(f"DEFINE NODE ENDPOINTS 'a.example' ORIGINS '{APP}'")
            assert (await node.value("INFO FOR NODE"))["origins"] == [APP]
            assert node.node.status().endpoints == ("a.example",)
