"""Halves of surrogate pairs, which JSON can write and UTF-8 can't carry: wherever one stands, the
request is refused by name in its own turn, nothing has run, and what follows it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from actors.node import Node
from protocol import binary
from protocol.errors import BadRequest, Refusal
from surfaces.http import scripts
from surfaces.http.exchange import Exchange
from tests.logbook import Logbook
from tests.surfaces.http.conftest import PASSWORD, until
from tests.surfaces.http.raw import Answer, Raw, request, script
from tests.surfaces.http.test_errors import check_error

HALF = "\ud800"
OTHER = "\udfff"
PLACE = "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE SPACE cache;"
VAULTS = f"DEFINE VAULT safe PASSPHRASE '{PASSWORD}'"

SCRIPT: dict[str, Any] = {
    "script": "DEFINE NAMESPACE made; RETURN $a",
    "params": {"a": {"x": ["text"], "d": {"$dur": "5s"}}},
    "ns": "shop",
    "db": "main",
    "timeout": "5s",
    "reason": "because",
}
KEY = "/kv/shop/main/cache/key/k"
VAULT = "/vault/shop/main/safe"
SEEDS: dict[str, tuple[str, str, Any, bool]] = {
    "script": ("POST", "/script", SCRIPT, True),
    "session": ("POST", "/session", {"user": "root", "password": PASSWORD}, False),
    "password": ("POST", "/password", {"old": PASSWORD, "new": PASSWORD + "x"}, True),
    "value": ("PUT", KEY, {"a": [{"$rec": "person:ana"}, {"$dec": "1"}, "text"]}, True),
    "swap": ("POST", "/kv/shop/main/cache/swap/k", {"expect": {"a": "b"}, "value": "c"}, True),
    "moment": ("POST", "/script", {"script": "RETURN 1", "moment": "new", "keep": "5s"}, True),
    "unseal": ("POST", "/vault/unseal", {"passphrase": PASSWORD}, True),
    "passphrase": ("POST", f"{VAULT}/passphrase", {"old": PASSWORD, "new": PASSWORD + "x"}, True),
    "secret": (
        "POST",
        f"{VAULT}/write",
        {"id": "stripe", "value": {"a": ["text"]}, "if": "absent", "reason": "why"},
        True,
    ),
    "reveal": ("POST", f"{VAULT}/reveal", {"id": "stripe", "version": 1, "reason": "why"}, True),
    "erase": ("POST", f"{VAULT}/erase", {"id": "stripe", "reason": "why"}, True),
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every string of a body, names of fields among them: `(…, None)` is the name itself."""
    if isinstance(value, str):
        return [at]
    if not isinstance(value, dict | list):
        return []
    found: list[tuple[Any, ...]] = []
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in parts:
        if isinstance(name, str):
            found.append((*at, name, None))
        found += places(item, (*at, name))
    return found


def planted(value: Any, at: tuple[Any, ...], change: Callable[[str], str]) -> Any:
    """The same body with another string in one place."""
    if not at:
        return change(value)
    step, rest = at[0], at[1:]
    if rest == (None,):
        return {change(name) if name == step else name: item for name, item in value.items()}
    if isinstance(value, dict):
        return {
            name: planted(item, rest, change) if name == step else item
            for name, item in value.items()
        }
    return [planted(item, rest, change) if n == step else item for n, item in enumerate(value)]


def insert(half: str, at: int, text: str) -> str:
    return text[:at] + half + text[at:]


async def sent(raw: Raw, name: str, body: Any, bearer: str) -> Answer:
    """The answer to one body, behind which the connection must be in step."""
    method, path, _, signed_in = SEEDS[name]
    fields = {"authorization": bearer} if signed_in else {}
    text = json.dumps(body).encode()
    asked = request(method, path, text, content_type="application/json", **fields)
    await raw.send(asked + request("GET", "/ready"))
    answer = await raw.answer()
    assert (await raw.answer()).json["ready"] is True, "the next request's answer is another's"
    return answer


@pytest.mark.parametrize("name", SEEDS)
async def test_one_in_any_place_is_refused_in_its_turn(raw: Raw, bearer: str, name: str) -> None:
    """The same body without one is taken, or waits for nothing but an unseal."""
    _, path, body, _ = SEEDS[name]
    assert (
        await raw.run(PLACE + (VAULTS if path.startswith("/vault") else ""), bearer)
    ).status == 200
    for at in places(body):
        wrong = planted(body, at, lambda text: text + HALF)
        answer = await sent(raw, name, wrong, bearer)
        assert answer.error["code"] in ("BadRequest", "TypeRefused"), (at, answer.body)
        check_error(answer, answer.error["code"])
        if name == "script":
            assert (await raw.run("INFO FOR NAMESPACE made", bearer)).status == 404, (
                "the script has run"
            )
    answer = await sent(raw, name, body, bearer)
    assert answer.status < 300 or answer.error["code"] == "Sealed", "something else was wrong"


@pytest.mark.parametrize("msgpack", [False, True])
async def test_a_refusal_that_shows_what_it_was_sent_is_answered(
    raw: Raw, bearer: str, monkeypatch: pytest.MonkeyPatch, msgpack: bool
) -> None:
    def refuse(*_args: object) -> None:
        raise BadRequest(f"no {HALF}", found={"a": (HALF, {OTHER})}, **{f"é{HALF}": [HALF]})

    monkeypatch.setattr(scripts, "read", refuse)
    fields = {"accept": "application/msgpack"} if msgpack else {}
    await raw.send(script("RETURN 1", bearer, **fields) + request("GET", "/ready"))
    answer = await raw.answer()
    assert answer.status == 400
    found: Any = binary.unpack(answer.body) if msgpack else answer.json
    assert found["error"]["message"] == "no \\ud800"
    assert found["error"]["detail"] == {
        "found": {"a": ["\\ud800", ["\\udfff"]]},
        "é\\ud800": ["\\ud800"],
    }
    assert (await raw.answer()).json["ready"] is True


async def test_an_answer_that_is_lost_shows_as_the_next_ones(
    raw: Raw, bearer: str, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    """Without the two rules above the sweep fails: a refusal that can't be encoded, and an
    exchange that turns to the next request all the same."""
    monkeypatch.setattr("tests.surfaces.http.raw.PATIENCE_SECONDS", 0.5)
    logbook.allow("work for a connection failed")

    def refuse(self: Exchange, refusal: Refusal) -> None:
        self.reply(refusal.status, refusal.message.encode())

    def finished(self: Exchange) -> None:
        if not self.done:
            self.done = True
            self.connection.finished(self)

    monkeypatch.setattr(Exchange, "refuse", refuse)
    monkeypatch.setattr(Exchange, "finished", finished)
    monkeypatch.setattr(scripts, "read", lambda *_: (_ for _ in ()).throw(BadRequest(HALF)))
    with pytest.raises((AssertionError, KeyError, TimeoutError)):
        await sent(raw, "script", SCRIPT, bearer)


async def test_what_fails_behind_a_large_answer_leaves_the_next_request_alone(
    raw: Raw, bearer: str, node: Node, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("work for a connection failed")

    def planted_fault(*_args: object) -> None:
        raise RecursionError("planted")

    monkeypatch.setattr(scripts, "let_go", planted_fault)
    large = script("RETURN [" + "1," * 2000 + "1]", bearer)
    await raw.send(large + script("RETURN 2", bearer))
    assert (await raw.answer()).status == 200
    assert (await raw.answer()).json["results"][0]["value"] == 2
    await until(lambda: any("planted" in line for line in logbook.loud))


async def test_five_hundred_vectors_are_answered_and_let_go(raw: Raw, bearer: str) -> None:
    """495 rows of 1536 numbers were let go by calls inside each other, past the limit."""
    asked = {"script": "RETURN $rows", "params": {"rows": [[0.5] * 1536] * 500}}
    await raw.send(script(asked, bearer) + script("RETURN 2", bearer))
    assert len((await raw.answer()).json["results"][0]["value"]) == 500
    assert (await raw.answer()).json["results"][0]["value"] == 2
