"""Two tenants on one node: nothing of one is ever in what the other hears.

The same requests are sent to two nodes. On one of them there is another tenant beside the one who
asks, with things of every kind, odd numbers of them, rights, sessions and work under way; on the
other there is none, and what is asked for by its name does not exist. All that comes back has to be
the same, byte for byte, but for what differs from one run to the next: so nothing crosses, neither
a value nor a name nor a count, and what exists answers as what does not.

That user names are of the whole store is known, and `docs/access.md` says so: that one is taken is
all that its `DEFINE USER` may tell.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from actors import rights, sign_in_throttle, statements
from actors.rights import Privileges, Rights
from actors.scripts.named_snapshots import NamedSnapshot, NamedSnapshots
from protocol.frames import MessageKind
from protocol.requests import Caller
from protocol.rights import ALL, Verbs
from protocol.values import Tick
from storage.txn.transaction import Transaction
from surfaces.http.routes import ROUTES
from tests.actors.scripts.test_rights import ROWS
from tests.cases import format as cases
from tests.nodes import OWNER, PASSWORD
from tests.surfaces.http import sockets
from tests.surfaces.http.raw import Answer
from tests.surfaces.served import Served, served
from tests.surfaces.test_matrix import BODIES, request_of
from tests.surfaces.wire.peers import Peer, until
from tests.sweeps import some_of

CANARY: Final = "canary3e9c"
ODD: Final = 733
"""How many there are of what the other has."""

WITHIN: Final = f"""
DEFINE TABLE u COMMENT '{CANARY}'; CREATE u:1 SET n = 1, word = '{CANARY}', link = u:2;
DEFINE FIELD n ON u TYPE any COMMENT '{CANARY}'; DEFINE INDEX i ON u FIELDS n COMMENT '{CANARY}';
DEFINE INDEX once ON u FIELDS word UNIQUE;
DEFINE TOPIC q COMMENT '{CANARY}'; DEFINE TOPIC dead; DEFINE GROUP g ON q DEADLINE 1h;
DEFINE READER r ON q; DEFINE GROUP {CANARY}_g ON q DEADLINE 1h; DEFINE READER {CANARY}_r ON q;
PUBLISH INTO q VALUES array::map(0..{ODD}, |$n| '{CANARY}');
TAKE 5 FROM q AS g MEMBER '{CANARY}';
DEFINE VAULT s COMMENT '{CANARY}'; DEFINE VAULT {CANARY};
DEFINE SPACE c COMMENT '{CANARY}'; SET 'k' IN c VALUE '{CANARY}'; SET '{CANARY}' IN c VALUE 1;
LOCK 'l' IN c HOLDER '{CANARY}' EXPIRE 1h; SET 'n' IN c VALUE {ODD};
DEFINE ANALYZER a TOKENIZERS class COMMENT '{CANARY}'; DEFINE ANALYZER {CANARY} TOKENIZERS class;
DEFINE FUNCTION f() {{ '{CANARY}' }}; DEFINE FUNCTION {CANARY}() {{ 1 }};
DEFINE TABLE {CANARY}; DEFINE TOPIC {CANARY}; DEFINE SPACE {CANARY};
INSERT INTO {CANARY} (array::map(0..{ODD}, |$n| {{ n: $n }})) RETURN NONE
"""
"""What stands in both databases of the other. Much has the names that are asked for."""

OTHERS: Final = f"""
DEFINE NAMESPACE acme COMMENT '{CANARY}'; DEFINE DATABASE acme.vip COMMENT '{CANARY}';
DEFINE DATABASE shop.hidden COMMENT '{CANARY}';
USE acme.vip; {WITHIN}; USE shop.hidden; {WITHIN};
DEFINE USER {CANARY}_owner ROLE owner ON NAMESPACE acme PASSWORD '{PASSWORD}' COMMENT '{CANARY}';
DEFINE USER {CANARY}_second ROLE owner ON DATABASE shop.hidden PASSWORD '{PASSWORD}';
DEFINE USER {CANARY}_editor ROLE editor ON NAMESPACE acme PASSWORD '{PASSWORD}';
DEFINE USER {CANARY}_member ROLE member PASSWORD '{PASSWORD}';
GRANT READ ON TABLE acme.vip.u TO {CANARY}_member
"""
"""In a namespace of its own, and in a database beside the one of who asks."""

OWN: Final = """
DEFINE TABLE u; CREATE u:1 SET n = 1, word = 'own'; DEFINE FIELD n ON u TYPE any;
DEFINE INDEX i ON u FIELDS n; DEFINE TOPIC q; DEFINE TOPIC dead;
DEFINE GROUP g ON q DEADLINE 1h; DEFINE READER r ON q; PUBLISH INTO q VALUES ['a', 'b'];
DEFINE SPACE c; SET 'k' IN c VALUE 1; DEFINE FUNCTION f() { 1 }; DEFINE VAULT s;
DEFINE ANALYZER a TOKENIZERS class;
"""
ASKERS: Final = {
    "dan": "owner ON DATABASE shop.main", "ed": "editor ON DATABASE shop.main",
    "vic": "viewer ON DATABASE shop.main", "mem": "member ON DATABASE shop.main",
    "eve": "member", "tess": "owner ON NAMESPACE bank",
}  # fmt: skip
"""Who asks. What is granted: everything there is in shop.main, to `mem`; INFO ON NODE, to `eve`."""
PLACES: Final = (("acme", "vip"), ("shop", "hidden"))

# --- what differs from one run to the next --------------------------------------------------------

VARIES: Final = (
    (r'"took":("[^"]*"|\{[^}]*\})', '"took":""'),
    (r'"request":"[^"]*"', '"request":""'),
    (r'"(seq|sequence|committed|log_begins|start|created)":\d+', r'"\1":0'),
    (r'"store":"[^"]*"', '"store":""'),
    (r"'store': '[^']*'", "'store': ''"),
    (r"\b[0-9a-f]{8}((?:\.\d+){4})", r"STOREID\1"),
    (r"the newest is \d+", "the newest is 0"),
    (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "AT"),
    (r'"token":"[^"]*"', '"token":""'),
    (r'"(uptime|since|left)":("[^"]*"|[0-9.]+)', r'"\1":0'),
    (r'"moment":"[^"]*"', '"moment":""'),
    (r"store-request: [^\r\n]*|date: [^\r\n]*", ""),
    (r"content-length: \d+", ""),
    (r"store-(fence|seq): \d+", ""),
    (r"'fence': \d+", "'fence': 0"),
    (r"'took': datetime.timedelta\([^)]*\)", "'took': 0"),
    (r"'request': '[^']*'", "'request': ''"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"'(seq|sequence|committed)': \d+", r"'\1': 0"),
    (r"datetime.datetime\([^)]*\)", "AT"),
    (r"'moment': '[^']*'", "'moment': ''"),
    (r"-- store [0-9a-f-]{36}", "-- store"),
    (r"-- sequence \d+", "-- sequence"),
    (r'"(hash|in_log_until)":("[0-9a-f]{64}"|\d+)', r'"\1":0'),
    (r"'(hash|in_log_until)': ('[0-9a-f]{64}'|\d+)", r"'\1': 0"),
    (r"-- end (\d+) [0-9a-f]{64}", r"-- end \1"),
)
SCRIPT: Final = re.compile(r'(?<="\$bytes":")LS0gc3RvcmVub2Rl[^"]*')
"""A script backup, as JSON has it."""
FIGURE: Final = re.compile(r"^(?!store_topic)([a-z_]+\S*) \S+$", re.MULTILINE)
"""A sample that is about the node, without its number."""


def steady(text: str) -> str:
    """What was heard, without what differs from run to run."""
    text = SCRIPT.sub(lambda found: b64decode(found[0]).decode(), text)
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text)
    return text


# --- what is asked --------------------------------------------------------------------------------

BY_NAME: Final = f"""
USE acme
USE acme.vip
USE shop.hidden
USE shop; USE DATABASE hidden; SELECT * FROM u
INFO FOR NAMESPACE acme
INFO FOR NAMESPACE shop
INFO FOR DATABASE acme.vip
INFO FOR DATABASE shop.hidden
INFO FOR DATABASE hidden
INFO FOR STORE
INFO FOR NODE
INFO FOR STATE
INFO FOR RUNNING
INFO FOR USERS
INFO FOR GRANTS
INFO FOR DATABASE
INFO FOR TABLE u
INFO FOR TOPIC q
INFO FOR SPACE c
INFO FOR FUNCTION f
INFO FOR ANALYZER a
INFO FOR USER {CANARY}_owner
INFO FOR USER {CANARY}_second
INFO FOR USER {CANARY}_member
INFO FOR GRANTS OF {CANARY}_owner
INFO FOR GRANTS OF {CANARY}_second
ALTER USER {CANARY}_owner SET ROLE member
ALTER USER {CANARY}_second SET PASSWORD 'another horse battery'
DROP USER {CANARY}_owner
DROP USER {CANARY}_second
GRANT READ ON TABLE u TO {CANARY}_second
GRANT READ ON TABLE u TO {CANARY}_member
REVOKE READ ON TABLE u FROM {CANARY}_editor
GRANT READ ON TABLE acme.vip.u TO mem
GRANT READ ON TABLE shop.hidden.u TO mem
GRANT READ ON TABLE hidden.u TO mem
GRANT CONSUME ON TOPIC shop.hidden.q TO mem
GRANT READ ON SPACE acme.vip.c TO mem
GRANT READ ON NAMESPACE acme TO mem
GRANT READ ON NAMESPACE shop TO mem
GRANT READ ON DATABASE shop.hidden TO mem
REVOKE READ ON DATABASE acme.vip FROM mem
DEFINE USER made ROLE member ON NAMESPACE acme PASSWORD '{PASSWORD}'
DEFINE USER made ROLE member ON DATABASE shop.hidden PASSWORD '{PASSWORD}'
DEFINE NAMESPACE acme
DEFINE NAMESPACE IF NOT EXISTS acme
DEFINE DATABASE acme.vip
DEFINE DATABASE IF NOT EXISTS shop.hidden
DEFINE DATABASE OVERWRITE shop.hidden
DROP NAMESPACE acme
DROP DATABASE acme.vip
DROP DATABASE shop.hidden
SELECT * FROM {CANARY}
SELECT * FROM {CANARY}:1
RETURN {CANARY}:1.word
EXPLAIN ANALYZE SELECT * FROM {CANARY}
INFO FOR TABLE {CANARY}
INFO FOR HISTORY OF {CANARY}:1
INFO FOR HISTORY OF {CANARY}
INFO FOR HISTORY OF acme.vip
INFO FOR HISTORY OF u:1
INFO FOR HISTORY OF u:2
INFO FOR TOPIC {CANARY}
INFO FOR SPACE {CANARY}
INFO FOR INDEX once ON u
INFO FOR GROUP {CANARY}_g ON q
INFO FOR FUNCTION {CANARY}
fn::{CANARY}()
INFO FOR ANALYZER {CANARY}
search::matches('a', 'a', '{CANARY}')
READ FROM q AS {CANARY}_r
TAKE FROM q AS {CANARY}_g
ACK q AS g RECEIPTS ['STOREID.1.1.1.1', 'STOREID.1.1.2.1', 'STOREID.1.1.3.1']
GET '{CANARY}' FROM c
GET 'n' FROM c
INFO FOR VAULT {CANARY}
REVEAL 'k' FROM VAULT {CANARY}
LIST FROM VAULT {CANARY}
ERASE '{CANARY}' FROM VAULT s
INFO FOR AUDIT OF VAULT {CANARY}
INFO FOR AUDIT OF ALL VAULTS
INFO FOR AUDIT OF ALL VAULTS NUMBER 1
INFO FOR AUDIT OF VAULT {CANARY} CHECK
INFO FOR AUDIT OF ALL VAULTS NUMBER 1 CHECK
GRANT READ ON VAULT acme.vip.s TO mem
GRANT READ ON ALL VAULTS IN acme TO mem
GRANT READ ON ALL VAULTS IN shop.hidden TO mem
KEYS FROM c
KEYS FROM {CANARY}
READ FROM {CANARY} AFTER 0
CREATE u SET word = '{CANARY}' RETURN word
DEFINE TABLE u
SELECT count() AS c FROM u GROUP ALL
KILL '{CANARY}'
EXPLAIN ANALYZE SELECT * FROM u WHERE word = '{CANARY}'
"""
"""Asked in the askers' own database, and on it, with every name of the other guessed."""

ROWS_ASKED: Final = [row.text.replace("$me", "mem") for some in ROWS.values() for row in some]
"""A statement of every kind; asked in the places of the other, and in those of who asks."""

LOGINS: Final = (f"{CANARY}_owner", f"{CANARY}_second", f"{CANARY}_member")
WRONG: Final = "a wrong password"


@dataclass
class Heard:
    asked: str
    answer: str


class Listener:
    """Asks a node everything, and keeps all that it hears.

    :param other: whether there is another tenant
    """

    def __init__(self, node: Served, other: bool) -> None:
        self.node = node
        self.heard: list[Heard] = []
        self._other = other
        self._tokens: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._moment = "m" * 12

    async def furnish(self) -> None:
        """The tenant who asks, and the other."""
        here = self.node.here
        await here.values("DEFINE NAMESPACE bank; DEFINE DATABASE bank.main")
        await here.values(OWN)
        for name, role in ASKERS.items():
            await here.values(f"DEFINE USER {name} ROLE {role} PASSWORD '{PASSWORD}'")
        await here.values(
            "GRANT READ, WRITE, CONSUME, DEFINE, INFO ON TOPIC q TO mem;"
            "GRANT READ, WRITE, DEFINE, INFO ON TABLE u TO mem; GRANT READ ON SPACE c TO mem"
        )
        if self._other:
            await here.values(OTHERS)
            await self._work_of_the_other()
        self._raw = await self.node.raw()
        for name in ASKERS:
            self._tokens[name] = await self.node.token(self._raw, name, PASSWORD)
            self._peers[name] = await self.node.peer(user=name, password=PASSWORD)

    async def _work_of_the_other(self) -> None:
        """A session on each surface, a script that waits, a moment that is kept."""
        name = f"{CANARY}_owner"
        peer = await self.node.peer(user=name, password=PASSWORD)
        place = {"ns": "acme", "db": "vip"}
        kept = await peer.run(1, "SELECT * FROM u", moment="new", **place)
        assert kept.body is not None
        self._moment = kept.body["moment"]
        peer.say(MessageKind.RUN, 2, {"script": f"READ FROM {CANARY} AFTER 0 WAIT 5m", **place})
        await until(lambda: self.node.here.node.registry.waiting("wire"))

    # --- one request ---

    def _keep(self, asked: str, heard: str) -> None:
        shown = heard.replace(self._moment, "MOMENT")
        self.heard.append(Heard(asked, steady(shown)))

    async def http(
        self, who: str, method: str, target: str, body: bytes = b"", **fields: str
    ) -> None:
        """A request, as somebody or as nobody."""
        if who in self._tokens:
            fields["authorization"] = f"Bearer {self._tokens[who]}"
        answer = await self._raw.ask(method, target, body, **fields)
        self._keep(f"{who} {method} {target} {body!r}", _text(answer))

    async def script(
        self, who: str, text: str, place: tuple[str, str] | tuple[None, None], **more: Any
    ) -> None:
        body = {
            "script": text.replace("STOREID", self.node.here.node.store.id[:8]),
            "ns": place[0],
            "db": place[1],
            **more,
        }
        data = json.dumps(body).encode()
        fields = {"content_type": "application/json"}
        if who in self._tokens:
            fields["authorization"] = f"Bearer {self._tokens[who]}"
        answer = await self._raw.ask("POST", "/script", data, **fields)
        self._keep(f"{who} {place} {text}", _text(answer))

    async def wire(self, who: str, kind: MessageKind, body: dict[str, Any]) -> None:
        peer = self._peers[who]
        peer.say(kind, 7, body)
        message = await peer.hear()
        assert message is not None
        self._keep(f"{who} {kind.name} {body!r}", repr((message.kind.name, message.body)))

    # --- all of them ---

    async def ask_all(self, every: int, *, requests: bool = True) -> None:
        """:param every: of what is much, each so manieth
        :param requests: whether every route and message is asked for too
        """
        if requests:
            await self._as_strangers()
        for number, name in enumerate(ASKERS):
            if requests:
                await self._routes(name)
                await self._messages(name)
            for text in BY_NAME.strip().splitlines():
                await self.script(name, f"BEGIN; {text}; CANCEL", ("shop", "main"))
            for place in PLACES:
                for text in ROWS_ASKED[number % every :: every]:
                    await self.script(name, text, place)
                for text in ROWS_ASKED[(number + 1) % every :: every]:
                    ns, db = place
                    await self.wire(name, MessageKind.RUN, {"script": text, "ns": ns, "db": db})
                await self.script(name, "SELECT * FROM u", place, moment=self._moment)
            for text in ROWS_ASKED[number % every :: every]:
                await self.script(name, f"BEGIN; {text}; CANCEL", ("shop", "main"))
            await self.script(name, "SELECT * FROM u", ("shop", "main"), moment=self._moment)
            await self.http(name, "GET", "/metrics")
        await self.http("nobody", "GET", "/metrics")

    async def _as_strangers(self) -> None:
        for route in ROUTES:
            for place in PLACES:
                await self._route("nobody", f"{route.method} {route.path}", place)
        for user in (*LOGINS, "dan", "nobody_there"):
            basic = b64encode(f"{user}:{WRONG}".encode()).decode()
            for method, target in (("POST", "/session"), ("GET", "/metrics"), ("POST", "/script")):
                await self.http("nobody", method, target, authorization=f"Basic {basic}")
            async with self.node.stranger() as peer:
                hello = {"magic": "STORE", "major": 1, "minor": [0, 0]}
                peer.say(MessageKind.HELLO, 0, {**hello, "user": user, "password": WRONG})
                message = await peer.hear()
                assert message is not None
                self._keep(f"HELLO {user}", repr((message.kind.name, message.body)))

    async def _routes(self, who: str) -> None:
        for route in ROUTES:
            if route.path != "/session":
                for place in (*PLACES, ("shop", "main")):
                    await self._route(who, f"{route.method} {route.path}", place)

    async def _route(self, who: str, name: str, place: tuple[str, str]) -> None:
        if name == "POST /password":
            body = json.dumps({"old": WRONG, "new": PASSWORD}).encode()
            await self.http(who, "POST", "/password", body, content_type="application/json")
            return
        if name == "GET /watch":
            await self._watch(who, place)
            return
        method, target, data, fields = request_of(name)
        target = target.replace("shop/main", "/".join(place))
        if "store_namespace" in fields:
            fields |= {"store_namespace": place[0], "store_database": place[1]}
        await self.http(who, method, target, data, **fields)

    async def _watch(self, who: str, place: tuple[str, str]) -> None:
        """A feed, from now on, from the beginning, and from positions that are too old or new."""
        credential = {} if who == "nobody" else {"Authorization": f"Bearer {self._tokens[who]}"}
        for more in ("", "&from=0", "&from=1", "&from=99999999", "&where=word = 'x'"):
            query = quote(f"ns={place[0]}&db={place[1]}&table=u{more}", safe="=&")
            raw = await self.node.raw()
            answer = await sockets.asked(raw, f"/watch?{query}", **credential)
            self._keep(f"{who}: watch {place} {more}", _text(answer))

    async def _messages(self, who: str) -> None:
        for name, body in {**BODIES, "VAULT show": {}}.items():
            kind, _, op = name.partition(" ")
            for namespace, database in (*PLACES, ("shop", "main")):
                place: dict[str, Any] = {"ns": namespace, "db": database}
                if kind == "KV":
                    place |= {"op": op, "space": "c"}
                elif kind == "TOPIC":
                    place |= {"op": op, "topic": "q"}
                elif kind == "VAULT":
                    place = {"op": op} if op == "show" else {**place, "op": op, "vault": "s"}
                await self.wire(who, MessageKind[kind], {**body, **place})

    async def ask_cases(self, every: int) -> None:
        """The cases of the language: in a database of `tess`, and where the other's are."""
        number = 0
        for path in sorted(FOLDER.glob("**/*.case")):
            file = cases.read(path)
            for case in file.cases:
                number += 1
                if number % every:
                    continue
                fresh = "DROP DATABASE bank.main; DEFINE DATABASE bank.main"
                await self.script("tess", fresh, (None, None))
                for text in filter(None, (file.setup, case.script)):
                    ours = re.sub(r"\bshop\b", "bank", text)
                    await self.script("tess", ours, ("bank", "main"), params=PARAMETERS)
                for place in PLACES:
                    theirs = re.sub(r"\bmain\b", place[1], re.sub(r"\bshop\b", place[0], text))
                    await self.script("dan", theirs, place, params=PARAMETERS)


def _text(answer: Answer) -> str:
    fields = "\n".join(f"{name}: {value}" for name, value in sorted(answer.fields.items()))
    body = answer.body.decode(errors="replace")  # a snapshot is no text
    if body.startswith("# HELP"):
        body = FIGURE.sub(r"\1", body)
    return f"{answer.status}\n{fields}\n{body}"


FOLDER: Final = Path(__file__).parent.parent / "cases"
PARAMETERS: Final = {"one": 1, "name": "Ana", "list": [1, 2, 3]}


async def listened(
    folder: Path, other: bool, every: int, corpora: int, *, requests: bool = True
) -> list[Heard]:
    """What a node answers to everything."""
    async with served(folder) as node:
        listener = Listener(node, other)
        await listener.furnish()
        await listener.ask_all(every, requests=requests)
        await listener.ask_cases(corpora)
        return listener.heard


def crossed(alone: list[Heard], beside: list[Heard]) -> list[str]:
    """What is heard of the other where there is one."""
    assert [one.asked for one in alone] == [one.asked for one in beside]
    found = []
    for without, with_other in zip(alone, beside, strict=True):
        # The statement log repeats to everybody what they have asked themselves, by that name too.
        if CANARY in with_other.answer and CANARY not in with_other.asked + without.answer:
            found.append(f"{with_other.asked}\n    {with_other.answer}")
        elif without.answer != with_other.answer:
            said, differs = with_other.answer, _first_difference(without, with_other)
            found.append(f"{with_other.asked}\n    …{said[differs : differs + 200]}")
    return found


def _first_difference(one: Heard, other: Heard) -> int:
    pairs = zip(one.answer, other.answer, strict=False)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), len(one.answer))
    return max(same - 40, 0)


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of wrong passwords; and the statement log keeps all that somebody sends, however much."""
    monkeypatch.setattr(statements, "BURST", 1e9)
    for name in ("DELAY_FIRST_US", "DELAY_US", "DELAY_MOST_US"):
        monkeypatch.setattr(sign_in_throttle, name, 0)


@pytest.mark.parametrize(
    ("every", "corpora"), [(16, 80), pytest.param(1, 1, marks=pytest.mark.hard)]
)
async def test_nothing_crosses(
    tmp_path: Path, figure: Callable[[str, object], None], every: int, corpora: int
) -> None:
    alone = await listened(tmp_path / "alone", False, every, corpora)
    beside = await listened(tmp_path / "beside", True, every, corpora)
    found = crossed(alone, beside)
    assert not found, "\n".join(found)
    figure(f"two tenants, one in {every}", f"{len(beside)} answers, nothing crossed")


# --- the checker ----------------------------------------------------------------------------------

_enter, _topics = NamedSnapshots.enter, Rights.topics


def _of_anybody(self: NamedSnapshots, name: str, user: str) -> NamedSnapshot:
    kept = self._kept.get(name)
    return _enter(self, name, user if kept is None else kept.user)


def _unjudged(self: Rights, tx: Transaction, caller: Caller, verbs: Verbs, tick: Tick) -> Any:
    return _topics(self, tx, OWNER, verbs, tick)


FAULTS: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "everybody sees everything": lambda patch: patch.setattr(Privileges, "sees", lambda *_: True),
    "everybody holds everything": lambda patch: patch.setattr(
        Privileges, "_judge", lambda self, securable: (ALL, True, ())
    ),
    "owners own all users": lambda patch: patch.setattr(
        rights, "_owns", lambda who, user: user is not None
    ),
    "figures of all topics": lambda patch: patch.setattr(Rights, "topics", _unjudged),
    "moments are anybody's": lambda patch: patch.setattr(NamedSnapshots, "enter", _of_anybody),
}


@pytest.mark.parametrize("fault", some_of(FAULTS, 5))
async def test_a_planted_leak_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    FAULTS[fault](monkeypatch)
    alone = await listened(tmp_path / "alone", False, 40, 10_000, requests=False)
    beside = await listened(tmp_path / "beside", True, 40, 10_000, requests=False)
    assert crossed(alone, beside)
