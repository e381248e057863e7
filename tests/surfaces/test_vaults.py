"""Vaults over both surfaces: routes, messages, what is refused, and that nothing leaks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from protocol import limits
from protocol.frames import MessageKind
from tests.logbook import Logbook
from tests.nodes import OWNER, PASSPHRASE, PASSWORD
from tests.surfaces.http.conftest import ticks as ticks
from tests.surfaces.http.raw import Answer, Raw
from tests.surfaces.served import Served, served
from tests.tables import case

CANARY = "canary-sk-live-51-value"
OTHER = "another passphrase"
VAULT = "/vault/shop/main/v"


class House:
    def __init__(self, node: Served, raw: Raw, token: str) -> None:
        self.node = node
        self._raw = raw
        self.token = token

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        fields = {"authorization": f"Bearer {self.token}"}
        if body is not None:
            fields["content_type"] = "application/json"
        data = b"" if body is None else json.dumps(body).encode()
        return await self._raw.ask(method, path, data, **fields)

    async def well(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.status == 200, answer.body
        return answer.json

    async def code(self, method: str, path: str, body: Any = None) -> str:
        return str((await self.ask(method, path, body)).error["code"])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with served(tmp_path / "store") as node:
        await node.here.values(
            "DEFINE VAULT v VERSIONS 2; DEFINE VAULT own PASSPHRASE $p", {"p": OTHER}
        )
        raw = await node.raw()
        yield House(node, raw, await node.token(raw, OWNER.user, PASSWORD))


async def test_a_life_over_http(house: House) -> None:
    shown = await house.well("GET", "/vault")
    assert shown["store"] == {"set": False, "sealed": True, "until": None}
    assert await house.code("POST", "/vault/unseal", {"passphrase": PASSPHRASE}) == "Sealed"
    assert await house.well("POST", "/vault/passphrase", {"new": PASSPHRASE}) == {
        "changed": True, "rewrapped": 1,
    }  # fmt: skip
    assert await house.code("POST", f"{VAULT}/reveal", {"id": "k"}) == "Sealed"
    found = await house.well("POST", "/vault/unseal", {"passphrase": PASSPHRASE})
    assert found["sealed"] is False and found["until"].endswith("Z")
    value = {"key": CANARY, "n": {"$dec": "1.50"}}
    body: dict[str, Any] = {"id": "stripe/live", "value": value, "reason": "new"}
    assert await house.well("POST", f"{VAULT}/write", body) == {"written": True, "version": 1}
    body |= {"if": "absent"}
    assert await house.well("POST", f"{VAULT}/write", body) == {"written": False, "version": 1}
    body = {"id": "stripe/live", "value": 2, "expect": 1}
    assert await house.well("POST", f"{VAULT}/write", body) == {"written": True, "version": 2}
    asked = {"id": "stripe/live", "version": 1, "reason": "refunds"}
    found = await house.well("POST", f"{VAULT}/reveal", asked)
    assert found["value"] == value and found["version"] == 1
    assert await house.well("GET", f"{VAULT}?prefix=stripe%2F&limit=5") == {"ids": ["stripe/live"]}
    shown = await house.well("GET", "/vault")
    (own, plain) = shown["vaults"]
    assert (plain["vault"], plain["sealed"], plain["records"]) == ("v", False, 1)
    assert (own["own"], own["sealed"], own["until"]) == (True, True, None)
    assert await house.well("POST", f"{VAULT}/erase", {"id": "stripe/live"}) == {"erased": True}
    assert await house.well("POST", "/vault/seal") == {"sealed": True}
    assert await house.code("GET", VAULT) == "Sealed"
    trail = await house.node.here.value("INFO FOR AUDIT OF VAULT v")
    revealed = next(one for one in trail if one["action"] == "reveal" and one["version"])
    assert (revealed["surface"], revealed["reason"], revealed["id"]) == (
        "http", "refunds", "stripe/live",
    )  # fmt: skip
    assert revealed["address"].startswith("127.0.0.1:")


async def test_a_passphrase_of_its_own_over_http(house: House) -> None:
    own = "/vault/shop/main/own"
    assert await house.code("POST", f"{own}/unseal", {"passphrase": PASSPHRASE}) == "WrongKey"
    await house.well("POST", f"{own}/unseal", {"passphrase": OTHER})
    await house.well("POST", f"{own}/write", {"id": "k", "value": 1})
    body = {"old": OTHER, "new": PASSPHRASE, "rekey": True}
    assert (await house.well("POST", f"{own}/passphrase", body))["rewrapped"] == 2
    assert (await house.well("POST", f"{own}/reveal", {"id": "k"}))["value"] == 1
    await house.well("POST", f"{own}/seal")
    assert await house.code("POST", f"{own}/reveal", {"id": "k"}) == "Sealed"
    assert await house.code("POST", f"{VAULT}/unseal", {"passphrase": OTHER}) == "BadRequest"


async def test_bodies_that_are_none(house: House) -> None:
    await house.node.here.unseal()
    for path, body in [
        ("/vault/unseal", {}),
        ("/vault/unseal", {"passphrase": 5}),
        ("/vault/unseal", {"passphrase": "x", "more": 1}),
        ("/vault/unseal", ["x"]),
        ("/vault/passphrase", {"old": "x"}),
        ("/vault/passphrase", {"new": "short"}),
        ("/vault/passphrase", {"new": PASSPHRASE, "rekey": "yes"}),
        (f"{VAULT}/write", {"id": "k"}),
        (f"{VAULT}/write", {"id": "k", "value": 1, "if": "present"}),
        (f"{VAULT}/write", {"id": "k", "value": 1, "if": "absent", "expect": 1}),
        (f"{VAULT}/write", {"id": "k", "value": 1, "reason": "x" * 501}),
        (f"{VAULT}/reveal", {}),
        (f"{VAULT}/erase", {"id": "k", "value": 1}),
    ]:
        with case(path, body):
            assert await house.code("POST", path, body) == "BadRequest"
    deep: Any = []
    for _ in range(limits.DEPTH - 3):
        deep = [deep]
    for value, code in (([{"a": deep}], None), ([{"a": [deep]}], "TooLarge")):
        answer = await house.ask("POST", f"{VAULT}/write", {"id": "deep", "value": value})
        assert (None if answer.status == 200 else answer.error["code"]) == code


async def test_large_values_take_turns_and_count(house: House, ticks: list[int]) -> None:
    await house.well("POST", "/vault/passphrase", {"new": PASSPHRASE})
    await house.well("POST", "/vault/unseal", {"passphrase": PASSPHRASE})
    value = [{"n": n} for n in range(20_000)]
    requests = house.node.http.requests
    requests.most = 64 * len(value)
    assert await house.code("POST", f"{VAULT}/write", {"id": "k", "value": value}) == "Busy"
    requests.most = 1024 * len(value)
    ticks.clear()
    assert await house.well("POST", f"{VAULT}/write", {"id": "k", "value": value}) == {
        "written": True, "version": 1,
    }  # fmt: skip
    read, weighed, bound = ticks
    assert min(read, weighed, bound) > 10
    ticks.clear()
    found = await house.well("POST", f"{VAULT}/reveal", {"id": "k"})
    assert found.pop("at") and found == {"id": "k", "value": value, "version": 1}
    assert len(ticks) == 1 and ticks[0] > 10
    assert not requests.total


async def test_paths_that_are_none(house: House) -> None:
    for path in (
        "/vault/open",
        "/vault/shop/main",
        f"{VAULT}/open",
        f"{VAULT}/reveal/k",
        "/vault/",
    ):
        assert await house.code("POST", path, {}) == "NoSuchRoute", path
    for path in (VAULT, "/vault"):
        assert await house.code("POST", path, {}) == "WrongMethod"
    assert await house.code("GET", f"{VAULT}/reveal") == "WrongMethod"
    assert await house.code("GET", f"{VAULT}?limit=x") == "BadRequest"
    assert await house.code("GET", f"{VAULT}?more=1") == "BadRequest"
    await house.node.here.unseal()
    assert await house.code("GET", f"{VAULT}?limit=1001") == "BadRequest"
    assert await house.code("GET", "/vault/shop/main/nothing") == "Unknown"
    assert await house.code("GET", "/vault/shop/main/a%60b") == "NameRefused"


async def test_a_life_over_the_wire(house: House) -> None:
    peer = await house.node.peer(token=house.token)

    async def ask(op: str, **more: Any) -> dict[str, Any]:
        peer.say(MessageKind.VAULT, 7, {"op": op, **more})
        message = await peer.hear()
        assert message is not None and message.id == 7 and message.body is not None
        return message.body

    async def code(op: str, **more: Any) -> str:
        return str((await ask(op, **more))["error"]["code"])

    assert (await ask("show"))["store"] == {"set": False, "sealed": True, "until": None}
    assert await ask("passphrase", new=PASSPHRASE) == {"changed": True, "rewrapped": 1}
    assert await code("unseal", passphrase=OTHER) == "WrongKey"
    found = await ask("unseal", passphrase=PASSPHRASE)
    assert found["sealed"] is False
    place = {"ns": "shop", "db": "main", "vault": "own"}
    assert (await ask("unseal", passphrase=OTHER, **place))["sealed"] is False
    shown = await ask("show")
    assert [one["sealed"] for one in shown["vaults"]] == [False, False]
    assert abs(shown["store"]["until"] - found["until"]) < timedelta(seconds=1)
    assert await ask("seal", **place) == {"sealed": True}
    assert await ask("seal") == {"sealed": True}
    for op, more in (
        ("open", {}), ("unseal", {}), ("unseal", {"passphrase": 5}), ("seal", {"more": 1}),
        ("seal", {"ns": "shop"}), ("passphrase", {"old": OTHER}), ("show", {"ns": "shop"}),
    ):  # fmt: skip
        assert await code(op, **more) == "BadRequest", (op, more)


async def test_nothing_of_it_leaves_by_another_way(
    house: House, tmp_path: Path, logbook: Logbook
) -> None:
    """Every file of the store, every answer about it and every line of the log, and a planted leak
    in each."""
    await house.node.here.unseal()
    for number in range(5):
        body = {"id": f"k{number}", "value": f"{CANARY}-{number}", "reason": "r"}
        await house.well("POST", f"{VAULT}/write", body)
        await house.well("POST", f"{VAULT}/reveal", {"id": f"k{number}"})
    here = house.node.here
    await here.answer(f"WRITE 'x' IN VAULT v VALUE '{CANARY}'")
    await here.answer(f"WRITE 'x' IN VAULT v VALUE '{CANARY}' OOPS")
    await here.answer(f"BEGIN; LET $x = '{CANARY}'; WRITE 'x' IN VAULT v VALUE $x; COMMIT")
    await here.answer(f"DEFINE VAULT w PASSPHRASE '{CANARY}-phrase'")
    await house.ask("POST", "/vault/unseal", {"passphrase": f"{CANARY}-wrong"})
    await house.ask("POST", "/vault/passphrase", {"old": PASSPHRASE, "new": f"{CANARY}-new"})
    said = []
    for info in (
        "STATEMENTS LIMIT 1000", "AUDIT LIMIT 1000", "RUNNING", "DATABASE", "VAULT v",
        "AUDIT OF VAULT v LIMIT 1000", "AUDIT OF ALL VAULTS LIMIT 1000", "NODE",
    ):  # fmt: skip
        said.append(repr(await here.value(f"INFO FOR {info}")))
    for path in ("/metrics", "/vault", "/openapi.json"):
        said.append((await house.ask("GET", path)).body.decode())
    backup = (await house.ask("GET", "/backup")).body
    log = (await house.ask("GET", "/backup?as=log")).body
    script = (await house.ask("GET", "/backup?as=script")).body
    for text in (*said, *map(repr, (*logbook.events, *logbook.refusals, *logbook.loud))):
        assert CANARY not in text and PASSPHRASE not in text, text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.endswith(".storelog") for path in files)
    held = [path.read_bytes() for path in files] + [backup, log, script]
    for secret in (CANARY, PASSPHRASE):
        assert not any(secret.encode() in data for data in held)
    # What the sweep would find: the same word in a record.
    await here.values(f"DEFINE TABLE t; CREATE t SET word = '{CANARY}'")
    assert any(CANARY.encode() in path.read_bytes() for path in files)
    assert CANARY in repr(await here.value("INFO FOR STATEMENTS LIMIT 1"))
