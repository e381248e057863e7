"""Every cell of the matrix, asked of a real node: routes, messages of the wire, figures.

A route, a message or a family of figures that has no row fails. What each statement is answered by
whom is the like table of `tests/actors/scripts/test_rights.py`.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from actors import sign_in_throttle
from actors.node_info import Listening
from actors.rights import Privileges
from protocol import limits
from protocol.frames import FROM_CLIENT, MessageKind, WireMessage
from protocol.rights import ALL, VERBS, Verb
from protocol.rights import SecurableKind as NounKind
from surfaces.http import console
from surfaces.http.routes import ROUTES
from surfaces.wire import spaces, topics, vaults
from tests.logbook import Logbook
from tests.nodes import OWNER, PASSPHRASE, PASSWORD
from tests.surfaces import matrix
from tests.surfaces.http import sockets
from tests.surfaces.http.raw import Answer, Raw
from tests.surfaces.http.test_errors import check_error
from tests.surfaces.matrix import Row
from tests.surfaces.served import Served, served
from tests.surfaces.wire.peers import Peer
from tests.sweeps import some_of

SETTING: Final = """
DEFINE TABLE t; CREATE t:1 SET n = 1; DEFINE INDEX near ON t FIELDS v VECTOR DIMENSION 1;
MEASURE INDEX near ON t WITH array::map(1..11, |$n| [$n]);
DEFINE SPACE c; SET 'k' IN c VALUE 1; SET 'n' IN c VALUE 1;
DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1m; DEFINE READER r ON q;
DEFINE VAULT s; DEFINE VAULT own PASSPHRASE 'open sesame, please';
DEFINE NAMESPACE bank; DEFINE DATABASE bank.vip;
"""
USERS: Final = {
    "o": ("other", "owner ON NAMESPACE bank"), "m": ("member", "member"),
    "V": ("viewer", "viewer ON DATABASE shop.main"),
    "E": ("editor", "editor ON DATABASE shop.main"),
    "O": ("owner", "owner ON DATABASE shop.main"), "S": (OWNER.user, ""),
}  # fmt: skip
NOUNS: Final = {
    "TABLE t": NounKind.TABLE, "SPACE c": NounKind.SPACE, "TOPIC q": NounKind.TOPIC,
    "VAULT s": NounKind.VAULT, "VAULT own": NounKind.VAULT,
}  # fmt: skip
NO_SESSION: Final = "nwfie"
ON_NODE: Final = ("INFO ON NODE", "UNSEAL ON NODE")
"""What a row needs that is about the node."""

TABLES: Final = (matrix.ROUTES, matrix.MESSAGES, matrix.FIGURES)
NEEDS: Final = sorted({row.needs for table in TABLES for row in matrix.rows(table).values()})


def user(letter: str, row: Row) -> str:
    if letter in USERS:
        return USERS[letter][0]
    held = {"b": "but", "g": "given"}[letter]
    return "_".join([held, *(row.needs or ("READ",))]).replace(" ", "_").lower()


# --- what is asked --------------------------------------------------------------------------------

KV: Final = "/kv/shop/main/c"
VAULT, OWN = "/vault/shop/main/s", "/vault/shop/main/own"
PHRASE: Final = json.dumps({"passphrase": PASSPHRASE})
PHRASES: Final = json.dumps({"old": PASSPHRASE, "new": PASSPHRASE})
REQUESTS: Final[dict[str, tuple[str, str]]] = {
    "GET /console/{hash}/{file}": (f"/console/{console.HASH}/main.js", ""),
    "POST /script": ("/script", "SELECT * FROM t"),
    "GET /watch": ("/watch?ns=shop&db=main&table=t", ""),
    "POST /password": ("/password", json.dumps({"old": PASSWORD, "new": PASSWORD})),
    "GET /kv/{ns}/{db}/{space}": (KV, ""),
    "GET /kv/{ns}/{db}/{space}/key/{key}": (f"{KV}/key/k", ""),
    "PUT /kv/{ns}/{db}/{space}/key/{key}": (f"{KV}/key/k", "1"),
    "DELETE /kv/{ns}/{db}/{space}/key/{key}": (f"{KV}/key/x", ""),
    "POST /kv/{ns}/{db}/{space}/swap/{key}": (f"{KV}/swap/k", '{"expect":1,"value":1}'),
    "POST /kv/{ns}/{db}/{space}/incr/{key}": (f"{KV}/incr/n", ""),
    "POST /kv/{ns}/{db}/{space}/expire/{key}": (f"{KV}/expire/x?expire=1h", ""),
    "POST /kv/{ns}/{db}/{space}/persist/{key}": (f"{KV}/persist/x", ""),
    "POST /kv/{ns}/{db}/{space}/lock/{key}": (f"{KV}/lock/l?holder=h&expire=1h", ""),
    "POST /kv/{ns}/{db}/{space}/unlock/{key}": (f"{KV}/unlock/l?holder=h", ""),
    "POST /vault/unseal": ("/vault/unseal", PHRASE),
    "POST /vault/passphrase": ("/vault/passphrase", PHRASES),
    "GET /vault/{ns}/{db}/{vault}": (VAULT, ""),
    "POST /vault/{ns}/{db}/{vault}/reveal": (f"{VAULT}/reveal", '{"id":"k"}'),
    "POST /vault/{ns}/{db}/{vault}/write": (f"{VAULT}/write", '{"id":"k","value":1}'),
    "POST /vault/{ns}/{db}/{vault}/erase": (f"{VAULT}/erase", '{"id":"x"}'),
    "POST /vault/{ns}/{db}/{vault}/unseal": (f"{OWN}/unseal", PHRASE),
    "POST /vault/{ns}/{db}/{vault}/seal": (f"{OWN}/seal", ""),
    "POST /vault/{ns}/{db}/{vault}/passphrase": (f"{OWN}/passphrase", PHRASES),
}
"""Targets and bodies, where a route's path is not all that is asked."""

MINUTE: Final = timedelta(minutes=1)
SPACE: Final = {"ns": "shop", "db": "main", "space": "c"}
TOPIC: Final = {"ns": "shop", "db": "main", "topic": "q"}
IN_VAULT: Final = {"ns": "shop", "db": "main", "vault": "own"}
RECEIPTS: Final = {"group": "g", "receipts": ["00000000.1.1.1.1"]}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "RUN": {"script": "SELECT * FROM t", "ns": "shop", "db": "main"},
    "WATCH": {"ns": "shop", "db": "main", "table": "t"},
    "KV get": {"key": "k"},
    "KV set": {"key": "k", "value": 1},
    "KV swap": {"key": "k", "expect": 1, "value": 1},
    "KV incr": {"key": "n"},
    "KV delete": {"key": "x"},
    "KV expire": {"key": "x", "expire": MINUTE},
    "KV persist": {"key": "x"},
    "KV lock": {"key": "l", "holder": "h", "expire": MINUTE},
    "KV unlock": {"key": "l", "holder": "h"},
    "KV keys": {},
    "TOPIC publish": {"value": 1},
    "TOPIC take": {"group": "g"},
    "TOPIC ack": RECEIPTS,
    "TOPIC nack": RECEIPTS,
    "TOPIC extend": {**RECEIPTS, "by": MINUTE},
    "TOPIC give_up": RECEIPTS,
    "VAULT unseal": {"passphrase": PASSPHRASE},
    "VAULT seal": {},
    "VAULT passphrase": {"old": PASSPHRASE, "new": PASSPHRASE},
}


def body_of(name: str) -> dict[str, Any]:
    kind, _, op = name.partition(" ")
    if name == "VAULT show":
        return {"op": op}
    place = {"KV": SPACE, "TOPIC": TOPIC, "VAULT": IN_VAULT}.get(kind)
    return BODIES[name] if place is None else {"op": op, **place, **BODIES[name]}


def request_of(name: str) -> tuple[str, str, bytes, dict[str, str]]:
    method, path = name.split(" ")
    target, body = REQUESTS.get(name, (path, ""))
    fields = {}
    if path == "/script":
        fields = {
            "store_namespace": "shop", "store_database": "main", "content_type": "text/plain"
        }  # fmt: skip
    elif body:
        fields["content_type"] = "application/json"
    return method, target, body.encode(), fields


# --- who asks -------------------------------------------------------------------------------------


class House:
    """A node, and everybody who asks it."""

    def __init__(self, node: Served) -> None:
        self.node = node
        self._tokens = {"f": "x" * 43}
        self._raws: dict[str, Raw] = {}
        self._peers: dict[str, Peer] = {}
        self._shown: dict[str, set[str]] = {}

    async def furnish(self) -> None:
        """Declare all, sign all in, and let those sessions end that are to be over."""
        here, raw = self.node.here, await self.node.raw()
        await here.values(SETTING)
        await here.unseal()
        await here.values("WRITE 'k' IN VAULT s VALUE 1; BACKUP")
        here.node.facts.listening += (
            Listening("http", "localhost:1", True, datetime(2030, 1, 1, tzinfo=UTC)),
        )
        for name, role in USERS.values():
            if role:
                await here.values(f"DEFINE USER {name} ROLE {role} PASSWORD '{PASSWORD}'")
        for needs in filter(None, NEEDS):
            row = Row("", needs, {})
            for letter in "bg":
                name = user(letter, row)
                await here.values(f"DEFINE USER {name} ROLE member PASSWORD '{PASSWORD}'")
                await here.values("; ".join(grants(name, needs, letter == "g")))
        for letter in "ie":
            token = await self.node.token(raw, OWNER.user, PASSWORD)
            self._tokens[letter] = token
            self._peers[letter] = await self.node.peer(token=token)
        self.node.clock.ahead_us = (limits.SESSION_IDLE_SECONDS + 60) * 1_000_000
        ended = await raw.ask("DELETE", "/session", authorization=f"Bearer {self._tokens['e']}")
        assert ended.status == 401, "it was idle as well"
        self._tokens["e"] = await self.node.token(raw, OWNER.user, PASSWORD)
        self._peers["e"] = await self.node.peer(token=self._tokens["e"])
        bearer = f"Bearer {self._tokens['e']}"
        assert (await raw.ask("DELETE", "/session", authorization=bearer)).status == 204

    async def token(self, letter: str, row: Row) -> str:
        """Of the one in that column."""
        if letter in self._tokens:
            return self._tokens[letter]
        name = user(letter, row)
        if name not in self._tokens:
            self._tokens[name] = await self.node.token(await self.raw(name), name, PASSWORD)
        return self._tokens[name]

    async def raw(self, name: str) -> Raw:
        if name not in self._raws:
            self._raws[name] = await self.node.raw()
        return self._raws[name]

    async def peer(self, letter: str, row: Row) -> Peer:
        name = letter if letter in NO_SESSION else user(letter, row)
        if name not in self._peers:
            if letter in "nwf":
                peer = self._peers[name] = await self.node.peer()
                if letter != "n":
                    peer.say(MessageKind.AUTH, 1, await self.greeting(letter, row))
                    await peer.must_hear(MessageKind.ERROR, 1)
            else:
                self._peers[name] = await self.node.peer(token=await self.token(letter, row))
        return self._peers[name]

    async def greeting(self, letter: str, row: Row) -> dict[str, str]:
        """The credential of HELLO and AUTH."""
        if letter == "n":
            return {}
        if letter == "w":
            name, password = self._password(letter, row)
            return {"user": name, "password": password}
        return {"token": await self.token(letter, row)}

    # --- cells ---

    async def shown(self, letter: str, row: Row) -> set[str]:
        """The families of figures that the one in that column is shown."""
        name = letter if letter in NO_SESSION else user(letter, row)
        if name not in self._shown:
            asked = replace(row, name="GET /metrics")
            self._shown[name] = figures(await self.http(letter, asked))
        return self._shown[name]

    async def figure(self, letter: str, row: Row) -> str:
        """Whether a family is shown; the refusal, where all are refused."""
        if letter not in "wfie":
            return "ok" if row.name in await self.shown(letter, row) else "nothing"
        return told_http(await self.http(letter, replace(row, name="GET /metrics")))

    async def http(self, letter: str, row: Row) -> Answer:
        """What a route answers, with a token and with a password, and when it is asked again."""
        raw = await self.raw(letter if letter in NO_SESSION else user(letter, row))
        method, target, body, fields = request_of(row.name)
        answers = []
        if target.startswith(VAULT) and self.node.here.node.roles.words:
            await self.node.here.unseal()  # somebody may have sealed it
        for way in ways(letter, row):
            credential = {}
            if way == "token":
                credential = {"authorization": f"Bearer {await self.token(letter, row)}"}
            elif way == "password":
                credential = {"authorization": basic(*self._password(letter, row))}
            if row.name == WATCH:
                answers.append(await sockets.asked(await self.node.raw(), target, **credential))
            else:
                answers.append(await raw.ask(method, target, body, **fields, **credential))
        told = {told_http(answer) for answer in answers}
        assert len(told) == 1, (row.name, letter, told)
        return answers[0]

    def _password(self, letter: str, row: Row) -> tuple[str, str]:
        if letter == "w":
            return OWNER.user, "a wrong password"
        return user(letter, row), PASSWORD

    async def wire(self, letter: str, row: Row) -> str:
        if row.name == "HELLO":
            return await self._hello(letter, row)
        peer = await self.peer(letter, row)
        word, _, _ = row.name.partition(" ")
        kind = MessageKind[word]
        if kind is MessageKind.AUTH:
            peer.say(kind, 2, await self.greeting(letter, row))
        elif kind in (MessageKind.PING, MessageKind.CANCEL, MessageKind.UNWATCH, MessageKind.BYE):
            peer.say(kind, 0 if kind is MessageKind.BYE else 3)
        else:
            peer.say(kind, 4, body_of(row.name))
        if kind in (
            MessageKind.CANCEL,
            MessageKind.UNWATCH,
        ):  # it has no answer, so what is heard is that of a PING behind it
            peer.say(MessageKind.PING, 5)
            await peer.must_hear(MessageKind.PONG, 5)
            return "nothing"
        told = told_wire(await peer.hear())
        if kind is MessageKind.WATCH and told == "ok":
            peer.say(MessageKind.UNWATCH, 4)
            while (message := await peer.hear()) is not None and message.kind is MessageKind.CHANGE:
                pass
            assert message is not None and (message.kind, message.id) == (MessageKind.ANSWER, 4)
        return told

    async def _hello(self, letter: str, row: Row) -> str:
        async with self.node.stranger() as peer:
            hello = {"magic": "STORE", "major": 1, "minor": [0, 0]}
            peer.say(MessageKind.HELLO, 0, {**hello, **await self.greeting(letter, row)})
            return told_wire(await peer.hear())


WATCH: Final = "GET /watch"
ONCE: Final = frozenset({"POST /password", "DELETE /session"})
"""Routes that mean something else when they are asked again, or with a password."""


def ways(letter: str, row: Row) -> list[str]:
    """The credentials that a route is asked with, one after the other."""
    if letter == "n":
        return ["nothing"] * 2
    if letter == "w":
        return ["password"]
    if letter in NO_SESSION:
        return ["token"] * 2
    if row.name == "POST /session":
        return ["password"]
    return ["token"] if row.name in ONCE else ["token", "password"] * 2


def basic(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


def grants(name: str, needs: tuple[str, ...], given: bool) -> Iterator[str]:
    """What a member holds: what is needed, or all else. Of a topic READ is shown in figures, so
    who has something else has that on the others too."""
    if needs[0] in ON_NODE:
        yield f"GRANT {needs[0] if given else 'INFO ON TABLE t'} TO {name}"
        return
    for securable, kind in NOUNS.items():
        needed = {word for word in needs if Verb(word) in VERBS[kind]}
        others = {verb.value for verb in VERBS[kind]} - set(needs)
        words = sorted(needed if given else others)
        if words:
            yield f"GRANT {', '.join(words)} ON {securable} TO {name}"


def told_http(answer: Answer) -> str:
    """As in the matrix. A refusal has the status and the fields of its code."""
    if answer.status < 300:
        return "ok"
    if "ready" in answer.json:
        return "not ready"
    code = str(answer.error["code"])
    if answer.fields:  # else it was told on a socket that was opened
        check_error(answer, code)
        assert answer.fields.get("www-authenticate") == ("Bearer" if answer.status == 401 else None)
    return code


def told_wire(message: WireMessage | None) -> str:
    if message is None or message.kind is MessageKind.BYE:
        return "nothing"
    if message.kind in (MessageKind.ERROR, MessageKind.REFUSED):
        assert message.body is not None
        return str(message.body["error"]["code"])
    return "ok"


def figures(answer: Answer) -> set[str]:
    """The families that an answer has samples of."""
    text = answer.body.decode()
    families = re.findall(r"^# TYPE ([a-z_]+) ", text, re.MULTILINE)
    samples = re.findall(r"^([a-z_]+)[ {]", text, re.MULTILINE)
    return {name for name in families if {name, f"{name}_bucket"} & set(samples)}


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    for name in ("DELAY_FIRST_US", "DELAY_US", "DELAY_MOST_US"):  # wrong passwords are slowed down
        monkeypatch.setattr(sign_in_throttle, name, 0)
    async with served(tmp_path / "store") as node:
        house = House(node)
        await house.furnish()
        yield house


# --- the matrix -----------------------------------------------------------------------------------


async def differing(house: House, enough: int = sys.maxsize) -> tuple[list[str], int]:
    """The cells that are not what is written down, and how many were asked.

    :param enough: rows with one of these are enough
    """
    found: list[str] = []
    count = 0

    def cell(row: Row, letter: str, told: str) -> None:
        nonlocal count
        count += 1
        if told != row.cells[letter]:
            found.append(f"{row.name} [{letter}]: {told}, not {row.cells[letter]}")

    async def route(letter: str, row: Row) -> str:
        return told_http(await house.http(letter, row))

    for table, ask in (
        (matrix.FIGURES, house.figure), (matrix.MESSAGES, house.wire), (matrix.ROUTES, route),
    ):  # fmt: skip
        for row in matrix.rows(table).values():
            if len(found) >= enough:
                return found, count
            for letter in matrix.COLUMNS:
                cell(row, letter, await ask(letter, row))
    return found, count


def messages() -> set[str]:
    """All that a client may say."""
    found = {
        kind.name for kind in FROM_CLIENT - {MessageKind.KV, MessageKind.TOPIC, MessageKind.VAULT}
    }
    found |= {f"KV {word}" for word in spaces._OPERATIONS}
    found |= {f"VAULT {word}" for word in vaults._OPERATIONS}
    return found | {f"TOPIC {word}" for word in topics._OPERATIONS}


def without_a_row() -> set[str]:
    """Routes and messages that no row is about, and rows that are about none."""
    routes = {f"{route.method} {route.path}" for route in ROUTES}
    return (routes ^ matrix.rows(matrix.ROUTES).keys()) | (
        messages() ^ matrix.rows(matrix.MESSAGES).keys()
    )


def test_every_route_and_message_has_a_row() -> None:
    assert without_a_row() == set()


async def test_every_cell(house: House, figure: Callable[[str, object], None]) -> None:
    shown = await house.shown("S", Row("", ("READ",), {}))
    assert shown == matrix.rows(matrix.FIGURES).keys(), "a family of figures has no row"
    found, count = await differing(house)
    assert not found, "\n".join(found)
    figure("S7 authorisation matrix: routes, messages, figures", f"{count} cells")


# --- a drained node -------------------------------------------------------------------------------

ALSO_DRAINED: Final = {
    "GET /", "GET /console/{hash}/{file}", "GET /openapi.json", "GET /health", "GET /metrics",
    "POST /session", "DELETE /session",
    "POST /vault/seal", "POST /vault/{ns}/{db}/{vault}/seal", "VAULT seal",
    "HELLO", "AUTH", "PING", "CANCEL", "UNWATCH", "BYE",
}  # fmt: skip
"""What an owner of the store is answered without a role too: what shows nothing of the store, that
somebody comes and goes, and what closes a vault."""


async def answered_without_a_role(house: House, logbook: Logbook) -> set[str]:
    """The rows that a drained node answers otherwise than by saying that it is drained."""
    logbook.allow("sealed without an audit entry")
    await house.node.here.values("DEFINE NODE ROLES NONE")
    found = set()
    for row in matrix.rows(matrix.MESSAGES).values():
        if await house.wire("S", row) != "Draining":
            found.add(row.name)
    for row in matrix.rows(matrix.ROUTES).values():
        if told_http(await house.http("S", row)) not in ("Draining", "not ready"):
            found.add(row.name)
    return found


async def test_a_drained_node_shows_and_changes_nothing(house: House, logbook: Logbook) -> None:
    assert await answered_without_a_role(house, logbook) == ALSO_DRAINED
    shown = await house.shown("V", Row("", ("READ",), {}))
    assert "store_ready" in shown and not {name for name in shown if "topic" in name}


# --- planted faults -------------------------------------------------------------------------------

FAULTS: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "everybody holds everything": lambda patch: patch.setattr(
        Privileges, "_judge", lambda self, securable: (ALL, True, ())
    ),
    "everybody sees everything": lambda patch: patch.setattr(Privileges, "sees", lambda *_: True),
}


@pytest.mark.parametrize("fault", some_of(FAULTS, 2))
async def test_a_planted_fault_is_found(
    house: House, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    FAULTS[fault](monkeypatch)
    found, _ = await differing(house, enough=1)
    assert found
