"""POST and DELETE /session, POST /password, and credentials on every route."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from datetime import datetime

import pytest

from actors import sign_in_throttle
from actors.node import Node
from actors.passwords import PasswordActor
from surfaces.http.surface import HttpSurface
from tests.surfaces.http.conftest import PASSWORD, Serve, until
from tests.surfaces.http.raw import Raw, request, script
from tests.tables import case

JSON = {"content_type": "application/json"}
SIGN_IN = b'{"user":"root","password":"%s"}' % PASSWORD.encode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


async def test_a_password_becomes_a_token(raw: Raw) -> None:
    in_the_head = await raw.ask("POST", "/session", authorization=basic("root", PASSWORD))
    for answer in (await raw.ask("POST", "/session", SIGN_IN, **JSON), in_the_head):
        assert answer.status == 200
        assert set(answer.json) == {"token", "expires", "idle", "user"}
        assert answer.json["user"] == {"name": "root", "role": "owner", "space": None}
        assert answer.json["idle"] == "1h"
        assert datetime.fromisoformat(answer.json["expires"]).tzinfo is not None
        used = await raw.ask("GET", "/metrics", authorization=f"Bearer {answer.json['token']}")
        assert used.status == 200


async def test_signing_out_ends_the_token(raw: Raw, bearer: str) -> None:
    over = await raw.ask("DELETE", "/session", authorization=bearer)
    assert (over.status, over.body) == (204, b"")
    assert "content-length" not in over.fields
    for method, path in (("DELETE", "/session"), ("GET", "/metrics")):
        again = await raw.ask(method, path, authorization=bearer)
        assert (again.status, again.error["code"]) == (401, "SessionEnded")
        assert again.fields["www-authenticate"] == "Bearer"


async def test_sign_in_of_another_form_is_a_bad_request(raw: Raw) -> None:
    for given in [
        body(user="root"), body(user="root", password=1), body(user="root", password="x", more=1),
        b"[]", b"{", b"\xff", b'{"user":"root","user":"root","password":"x"}',
    ]:  # fmt: skip
        with case(given):
            answer = await raw.post("/session", given)
            assert (answer.status, answer.error["code"]) == (400, "BadRequest")


async def test_basic_and_a_body_are_one_too_many(raw: Raw) -> None:
    answer = await raw.post("/session", SIGN_IN, basic("root", PASSWORD))
    assert (answer.status, answer.error["code"]) == (400, "BadRequest")


async def test_a_wrong_password_is_refused_without_a_prompt(raw: Raw) -> None:
    answer = await raw.ask("POST", "/session", authorization=basic("root", "wrong password"))
    assert (answer.status, answer.error["code"]) == (401, "SignInRefused")
    assert answer.fields["www-authenticate"] == "Bearer"
    assert "wrong password" not in answer.body.decode()


async def test_a_credential_of_no_known_form_is_refused(raw: Raw) -> None:
    for credential in (
        "Bearer", "Bearer ", "Basic !!!", "Basic cm9vdA==", "Digest x", "x", "Basic /////w==",
    ):  # fmt: skip
        for method, path in (("GET", "/metrics"), ("POST", "/script")):
            with case(method, credential):
                answer = await raw.ask(method, path, authorization=credential)
                assert (answer.status, answer.error["code"]) == (401, "SignInRefused")


async def test_a_user_changes_its_password(raw: Raw, bearer: str) -> None:
    other = await raw.ask("POST", "/session", authorization=basic("root", PASSWORD))
    for before, after, status, code in (
        ("wrong password", "another horse", 401, "SignInRefused"),
        (PASSWORD, "short", 400, "BadRequest"),
    ):
        refused = await raw.post("/password", {"old": before, "new": after}, bearer)
        assert (refused.status, refused.error["code"]) == (status, code)
    given = {"old": PASSWORD, "new": "another horse"}
    changed = await raw.post("/password", given, bearer)
    assert (changed.status, changed.body) == (204, b"")
    ended = await raw.ask("GET", "/metrics", authorization=f"Bearer {other.json['token']}")
    assert ended.error["code"] == "SessionEnded"
    assert (await raw.ask("GET", "/metrics", authorization=bearer)).status == 200
    old = await raw.ask("POST", "/session", authorization=basic("root", PASSWORD))
    new = await raw.ask("POST", "/session", authorization=basic("root", "another horse"))
    assert (old.status, new.status) == (401, 200)


async def test_a_page_of_another_site_signs_nobody_in(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PasswordActor, "_matches", _never)
    for origin in (
        "http://evil.example", "https://localhost:80", "http://localhost:8000", "null", "",
        "http://localhost.evil.example", "http://evil@localhost", "http://127.0.0.1",
        "http://localhost, http://localhost", "file://", "localhost",
    ):  # fmt: skip
        for more in (JSON, {"authorization": basic("root", PASSWORD)}):
            answer = await raw.ask(
                "POST", "/session", SIGN_IN if more is JSON else b"", origin=origin, **more
            )
            assert (answer.status, answer.error["code"]) == (403, "ForeignOrigin")
            assert answer.error["detail"] == {"origin": origin}


def _never(*_args: object) -> bool:
    raise AssertionError("a password was hashed")


async def test_the_nodes_own_page_does(raw: Raw) -> None:
    for origin in ("http://localhost", "http://LOCALHOST:80", "https://localhost"):
        # In the last one TLS ends in a proxy.
        assert (await raw.ask("POST", "/session", SIGN_IN, origin=origin, **JSON)).status == 200


async def test_so_does_one_that_comes_through_a_proxy(raw: Raw, bearer: str) -> None:
    page = {"origin": "https://db.example.org", **JSON}
    assert (await raw.ask("POST", "/session", SIGN_IN, **page)).status == 403
    assert (await raw.run("DEFINE NODE ENDPOINTS 'db.example.org'", bearer)).status == 200
    assert (await raw.ask("POST", "/session", SIGN_IN, **page)).status == 200


async def test_a_sign_in_of_no_declared_type_is_none(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page can send any body without a type from a browser that asks nobody whether it may."""
    monkeypatch.setattr(PasswordActor, "_matches", _never)
    for fields in ({}, {"content_type": ""}, {"content_type": "text/plain"}):
        answer = await raw.ask("POST", "/session", SIGN_IN, **fields)
        assert (answer.status, answer.error["code"]) == (400, "BadRequest"), fields


async def test_a_session_that_nobody_heard_of_is_ended(
    raw: Raw, node: Node, surface: HttpSurface, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = threading.Event(), threading.Event()
    real = PasswordActor._matches

    def held(actor: PasswordActor, passhash: str, password: str) -> bool:
        begun.set()
        return real(actor, passhash, password) and go.wait(30)

    monkeypatch.setattr(PasswordActor, "_matches", held)
    await raw.send(request("POST", "/session", SIGN_IN, **JSON))
    await until(begun.is_set)
    raw.writer.transport.abort()
    await until(lambda: not surface.connections)
    go.set()
    await until(lambda: surface.admission.begun == 0)
    assert len(node.spaces.sessions) == 0


async def test_sign_ins_that_wait_take_no_place_of_others(
    serve: Serve, bearer: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the requests that a surface runs at once, wrong sign-ins once took all."""
    monkeypatch.setattr(sign_in_throttle, "DELAY_FIRST_US", sign_in_throttle.DELAY_US)
    surface = await serve(running=4)
    port = surface.address[1]
    async with contextlib.AsyncExitStack() as stack:
        for n in range(20):
            wrong = await stack.enter_async_context(await Raw.connect(port))
            if n % 2:
                await wrong.send(
                    request("POST", "/session", body(user="root", password="wrong"), **JSON)
                )
            else:
                await wrong.send(script("RETURN 1", basic("root", "wrong horse")))
        await until(lambda: surface.admission.begun == 20)
        raw = await stack.enter_async_context(await Raw.connect(port))
        assert (await raw.run("RETURN 1;", bearer)).status == 200
        assert (await raw.ask("POST", "/session", SIGN_IN, **JSON)).status == 200
        assert (await raw.ask("GET", "/ready")).status == 200
        node.not_ready()  # whose answers are held back is let go
    await until(lambda: surface.admission.begun == 0)
    assert node.registry.waiting("http") == 0
