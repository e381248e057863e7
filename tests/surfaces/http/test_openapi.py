"""GET /openapi.json against what the routes answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from surfaces.http.exchange import Route
from surfaces.http.openapi import document
from surfaces.http.operation import SCHEMAS
from surfaces.http.routes import ROUTES
from tests.surfaces.http.conftest import PASSWORD
from tests.surfaces.http.raw import Answer, Raw, request
from tests.surfaces.http.shapes import misfits
from tests.tables import case


async def fetch(raw: Raw) -> dict[str, Any]:
    answer = await raw.ask("GET", "/openapi.json")
    assert answer.status == 200
    found = answer.json
    assert isinstance(found, dict)
    return found


def test_every_reference_leads_somewhere() -> None:
    described = document(ROUTES)

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "$ref" in part:
                assert part["$ref"].rpartition("/")[2] in SCHEMAS
            for item in part.values():
                walk(item)
        elif isinstance(part, list):
            for item in part:
                walk(item)

    walk(described)
    names = [
        op["operationId"] for methods in described["paths"].values() for op in methods.values()
    ]
    assert len(set(names)) == len(ROUTES)


def check(described: dict[str, Any], method: str, path: str, answer: Answer) -> list[str]:
    """Where an answer is not what is described for its status."""
    responses = described["paths"][path][method.lower()]["responses"]
    shown = responses.get(str(answer.status))
    if shown is None:
        return [f"{answer.status} is not described"]
    content = shown.get("content")
    if content is None:
        return [] if not answer.body else ["a body that is not described"]
    kind = answer.fields["content-type"].partition(";")[0]
    if kind not in content:
        return [f"{kind} is not described"]
    if kind != "application/json":
        return []
    return misfits(answer.json, content[kind]["schema"], described["components"]["schemas"])


SIGN_IN = b'{"user":"root","password":"%s"}' % PASSWORD.encode()
JSON = {"content_type": "application/json"}
BAD_SIGN_IN = b'{"user":"root","password":"not the password"}'


async def test_answers_are_as_described(raw: Raw, port: int) -> None:
    described = await fetch(raw)
    for route in ROUTES:
        with case(route.method, route.path):
            token = (await raw.ask("POST", "/session", SIGN_IN, **JSON)).json["token"]
            assert await misfits_of(described, port, route, f"Bearer {token}") == []


async def misfits_of(described: Any, port: int, route: Route, bearer: str) -> list[str]:
    method, path = route.method, route.path
    text = {"content_type": "text/plain", "authorization": bearer}
    requests = [
        request(method, path),
        request(method, path, host="other.example").replace(b"Host: localhost\r\n", b""),
        request(method, path, authorization="Bearer no"),
        request(method, path, authorization="Nothing"),
        request(method, path, b"{", authorization=bearer, **JSON),
        request(method, path, SIGN_IN, **JSON),
        request(method, path, BAD_SIGN_IN, **JSON),
        request(method, path, b"x" * 10, content_type="image/png", authorization=bearer),
        request(method, path, b"LET $a = 1; THROW $a;", **text),
        request(method, path, b"RETURN [1.5, 'a'];", **text),
        request(method, path, b'{"old":"no","new":"no"}', authorization=bearer, **JSON),
        request(method, path, authorization=bearer),
        request(method, path) + b"GET / HTTP/9.9\r\n\r\n",
    ]
    wrong = []
    for data in requests:
        async with await Raw.connect(port) as one:
            await one.send(data)
            answer = await one.answer(method)
            wrong += [f"{data[:60]!r}: {what}" for what in check(described, method, path, answer)]
    return wrong


async def test_an_answer_that_is_not_described_is_seen(raw: Raw) -> None:
    described = await fetch(raw)
    answer = await raw.ask("GET", "/health")
    assert check(described, "GET", "/health", answer) == []
    assert check(described, "GET", "/health", replace(answer, status=418))
    assert check(described, "GET", "/health", replace(answer, body=b'{"status":"ill"}'))
