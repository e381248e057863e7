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
from tests.surfaces.http.conftest import PASSWORD, Serve, script, until
from tests.surfaces.http.raw import Raw, request
from tests.tables import case


def basic(user: str, password: str) -> str:
    """An Authorization field."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def body(**fields: object) -> bytes:
    """A JSON object."""
    return json.dumps(fields).encode()


async def test_a_password_becomes_a_token(raw: Raw) -> None:
    answer = await raw.ask(
        "POST", "/session", body(user="root", password=PASSWORD), content_type="application/json"
    )
    assert answer.status == 200
    assert set(answer.json) == {"token", "expires", "idle", "user"}
    assert answer.json["user"] == {"name": "root", "role": "owner", "space": None}
    assert answer.json["idle"] == "1h"
    assert datetime.fromisoformat(answer.json["expires"]).tzinfo is not None
    used = await raw.ask("GET", "/metrics", authorization=f"Bearer {answer.json['token']}")
    assert used.status == 200


async def test_basic_becomes_a_token_too(raw: Raw) -> None:
    answer = await raw.ask("POST", "/session", authorization=basic("root", PASSWORD))
    assert answer.status == 200
    assert answer.json["user"]["name"] == "root"


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
            answer = await raw.ask("POST", "/session", given, content_type="application/json")
            assert (answer.status, answer.error["code"]) == (400, "BadRequest")


async def test_nothing_to_sign_in_with_is_no_credential(raw: Raw) -> None:
    answer = await raw.ask("POST", "/session")
    assert (answer.status, answer.error["code"]) == (401, "SignInRefused")


async def test_basic_and_a_body_are_one_too_many(raw: Raw) -> None:
    answer = await raw.ask(
        "POST",
        "/session",
        body(user="root", password=PASSWORD),
        content_type="application/json",
        authorization=basic("root", PASSWORD),
    )
    assert (answer.status, answer.error["code"]) == (400, "BadRequest")


async def test_a_wrong_password_is_refused_without_a_prompt(raw: Raw) -> None:
    answer = await raw.ask("POST", "/session", authorization=basic("root", "wrong password"))
    assert (answer.status, answer.error["code"]) == (401, "SignInRefused")
    assert answer.fields["www-authenticate"] == "Bearer"
    assert "wrong password" not in answer.body.decode()


@pytest.mark.parametrize(
    "credential",
    ["Bearer", "Bearer ", "Basic !!!", "Basic cm9vdA==", "Digest x", "x", "Basic /////w=="],
)
@pytest.mark.parametrize("method, path", [("GET", "/metrics"), ("POST", "/script")])
async def test_a_credential_of_no_known_form_is_refused(
    raw: Raw, credential: str, method: str, path: str
) -> None:
    answer = await raw.ask(method, path, authorization=credential)
    assert (answer.status, answer.error["code"]) == (401, "SignInRefused")


async def test_a_user_changes_its_password(raw: Raw, bearer: str) -> None:
    other = await raw.ask("POST", "/session", authorization=basic("root", PASSWORD))
    changed = await raw.ask(
        "POST",
        "/password",
        body(old=PASSWORD, new="another horse"),
        content_type="application/json",
        authorization=bearer,
    )
    assert (changed.status, changed.body) == (204, b"")
    ended = await raw.ask("GET", "/metrics", authorization=f"Bearer {other.json['token']}")
    assert ended.error["code"] == "SessionEnded"
    assert (await raw.ask("GET", "/metrics", authorization=bearer)).status == 200
    old = await raw.ask("POST", "/session", authorization=basic("root", PASSWORD))
    new = await raw.ask("POST", "/session", authorization=basic("root", "another horse"))
    assert (old.status, new.status) == (401, 200)


async def test_a_wrong_old_password_changes_nothing(raw: Raw, bearer: str) -> None:
    answer = await raw.ask(
        "POST",
        "/password",
        body(old="wrong password", new="another horse"),
        content_type="application/json",
        authorization=bearer,
    )
    assert (answer.status, answer.error["code"]) == (401, "SignInRefused")


async def test_a_short_new_password_is_refused(raw: Raw, bearer: str) -> None:
    answer = await raw.ask(
        "POST",
        "/password",
        body(old=PASSWORD, new="short"),
        content_type="application/json",
        authorization=bearer,
    )
    assert (answer.status, answer.error["code"]) == (400, "BadRequest")


async def test_basic_on_a_script(raw: Raw) -> None:
    await raw.send(script("RETURN 1;", basic("root", PASSWORD)))
    assert (await raw.answer()).status == 200


JSON = {"content_type": "application/json"}
SIGN_IN = b'{"user":"root","password":"%s"}' % PASSWORD.encode()


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "https://localhost:80", "http://localhost:8000", "null", "",
        "http://localhost.evil.example", "http://evil@localhost", "http://127.0.0.1",
        "http://localhost, http://localhost", "file://", "localhost",
    ],
)  # fmt: skip
async def test_a_page_of_another_site_signs_nobody_in(
    raw: Raw, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PasswordActor, "_matches", _never)
    for more in (JSON, {"authorization": basic("root", PASSWORD)}):
        answer = await raw.ask(
            "POST", "/session", SIGN_IN if more is JSON else b"", origin=origin, **more
        )
        assert (answer.status, answer.error["code"]) == (403, "ForeignOrigin")
        assert answer.error["detail"] == {"origin": origin}


def _never(*_args: object) -> bool:
    raise AssertionError("a password was hashed")


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "http://LOCALHOST:80", "https://localhost"],  # TLS ends in a proxy
)
async def test_the_nodes_own_page_does(raw: Raw, origin: str) -> None:
    answer = await raw.ask("POST", "/session", SIGN_IN, origin=origin, **JSON)
    assert answer.status == 200


async def test_so_does_one_that_comes_through_a_proxy(raw: Raw, bearer: str) -> None:
    page = {"origin": "https://db.example.org", **JSON}
    assert (await raw.ask("POST", "/session", SIGN_IN, **page)).status == 403
    await raw.send(script("DEFINE NODE ENDPOINTS 'db.example.org'", bearer))
    assert (await raw.answer()).status == 200
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
        await raw.send(script("RETURN 1;", bearer))
        assert (await raw.answer()).status == 200
        assert (await raw.ask("POST", "/session", SIGN_IN, **JSON)).status == 200
        assert (await raw.ask("GET", "/ready")).status == 200
        node.not_ready()  # whose answers are held back is let go
    await until(lambda: surface.admission.begun == 0)
    assert node.registry.waiting("http") == 0
