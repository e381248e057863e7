"""Rights rig: every right taken away while it is being used; nothing is done behind it.

Simulated: each race gives a user one right, lets it use that in every way there is, on both
surfaces, takes the right away in the midst of it, and looks at what came of each use:

- One that is begun once the answer of the taking away was seen is refused.
- One that was under way may go either way. When it succeeds, what it has read or written is of
  before: its sequence is below that of the commit that took the right away.
- The log has no commit of that user behind that one, whatever its uses were told.

Where it is the credential that ends, and the user goes on with its rights, the first alone holds: a
script that was begun with it runs to its end.

The clients and the node share one loop, so that "once it was seen" is exact. The node is a real
one, with files, sockets and RocksDB.

Not simulated: rights that are only given, and the answer for each kind of caller: the tables of
`tests/surfaces/matrix.py` and `tests/actors/scripts/test_rights.py` have those, cell by cell. Nor
followers, on which a right ends when the commit arrives.

To reproduce: a violation names the race and the use. `raced(path, rounds, [race])` repeats that
race; its choices and pauses are drawn from numbers, but sockets and threads have an order of their
own, so it may need some rounds.

Proof: privileges that are remembered, commits that rest on no right, and sign-outs that end nothing
are planted and have to be found:
`tests/reliability/test_rights_races.py::test_a_planted_fault_is_found`.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from actors import sign_in_throttle
from actors.execution import scheduler
from actors.rights import Privileges, Rights
from actors.sessions import Sessions
from actors.vaults.told import VaultSettings
from protocol import limits
from protocol.frames import MessageKind
from protocol.requests import Caller
from storage.formats import effects, keys
from storage.txn.transaction import Transaction
from tests.nodes import PASSWORD
from tests.nodes import VAULTS as LEAST
from tests.surfaces.http.raw import Raw
from tests.surfaces.served import Served, served
from tests.surfaces.wire.peers import Peer

Figure = Callable[[str, object], None]

OVER: Final = frozenset({"NotAllowed", "Unknown", "NotASpace", "SessionEnded", "SignInRefused"})
"""What a use hears whose right is gone."""
LANES: Final = 4
"""Races at once, each with a namespace and a user of its own."""
SLICE_US: Final = 100
"""Of the loop, so that what is long gives way often without being long."""
ROWS: Final = 150
AT_ONCE: Final = 3
"""Ways of using a right that go on beside each other in one race, where there are many races."""
LATE: Final = "published late"
"""What no wait of before may be handed."""

SETTING: Final = f"""
DEFINE TABLE t; CREATE t:1 SET n = 1; DEFINE TABLE big;
INSERT INTO big (array::map(0..{ROWS}, |$n| {{ id: $n }})) RETURN NONE;
DEFINE SPACE c; SET 'k' IN c VALUE 1; SET 'n' IN c VALUE 1;
DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1h; DEFINE READER r ON q; PUBLISH INTO q VALUE 1;
DEFINE TOPIC idle; DEFINE GROUP g ON idle DEADLINE 1h; DEFINE VAULT v
"""
SECRET: Final = "WRITE 's' IN VAULT v VALUE 'secret'"
VAULTS: Final = VaultSettings(unseal_us=7_200_000_000, stretch=LEAST.stretch)
"""Unsealed for as long as all of it takes."""

# --- how a right is used --------------------------------------------------------------------------

SCRIPTS: Final[dict[str, str]] = {
    "select": "SELECT * FROM t",
    "a long select": "SELECT VALUE array::len(array::distinct([id, 1, 1])) FROM big",
    "create": "CREATE t SET n = 1 RETURN NONE; DELETE t RETURN NONE",
    "a long update": "UPDATE big SET n = array::len(array::distinct([1, 1, 2])) RETURN NONE",
    "a loop of writes": "FOR $n IN 0..8 { UPSERT t:2 CONTENT { n: $n } }",
    "define a field": "DEFINE FIELD OVERWRITE f ON t TYPE any",
    "info of a table": "INFO FOR TABLE t", "GET": "GET 'k' FROM c", "SET": "SET 's' IN c VALUE 1",
    "info of a space": "INFO FOR SPACE c", "READ": "READ FROM q AFTER 0 LIMIT 1",
    "PUBLISH": "PUBLISH INTO q VALUE 1; PUBLISH INTO q VALUE 2", "TAKE": "TAKE FROM q AS g",
    "READ as a reader": "READ FROM q AS r LIMIT 1", "alter a topic": "ALTER TOPIC q SET KEEP 1h",
    "info of a topic": "INFO FOR TOPIC q", "define a space": "DEFINE SPACE OVERWRITE made",
    "define a database": "DEFINE DATABASE OVERWRITE $ns.made",
    "info of a database": "INFO FOR DATABASE", "info of the node": "INFO FOR NODE",
    "REVEAL": "REVEAL 's' FROM VAULT v", "LIST": "LIST FROM VAULT v",
    "write a secret": "WRITE 'w' IN VAULT v VALUE 1", "erase a secret": "ERASE 'none' FROM VAULT v",
    "info of a vault": "INFO FOR VAULT v", "trail of a vault": "INFO FOR AUDIT OF VAULT v LIMIT 1",
}  # fmt: skip
"""By statements, each over HTTP and over the wire."""
WAITS: Final[dict[str, str]] = {
    "a READ that waits": "READ FROM idle AFTER $last WAIT 5m",
    "a TAKE that waits": "TAKE FROM idle AS g WAIT 5m",
}
KV: Final[dict[str, dict[str, Any]]] = {
    "get": {"key": "k"}, "set": {"key": "w", "value": 1}, "incr": {"key": "n"}, "keys": {},
}  # fmt: skip
PATHS: Final[dict[str, tuple[str, str, bytes]]] = {
    "GET a key": ("GET", "/key/k", b""),
    "PUT a key": ("PUT", "/key/w", b"1"),
    "incr a key": ("POST", "/incr/n", b""),
}
TOPIC: Final[dict[str, dict[str, Any]]] = {
    "publish": {"value": 1}, "take": {"group": "g"},
}  # fmt: skip

READS_T = ("select", "a long select", "a moment", "a moment that is kept")
WRITES_T = ("create", "a long update", "a loop of writes")
READS_C, WRITES_C = ("GET", "get", "keys", "GET a key"), ("SET", "set", "incr", "PUT a key")
READS_Q = ("READ", "figures", "a READ that waits")
WRITES_Q, TAKES = ("PUBLISH", "publish"), ("TAKE", "take", "READ as a reader", "a TAKE that waits")
DEFINES = ("define a field", "alter a topic", "define a space")
INFO = ("info of a table", "info of a space", "info of a topic", "info of a database")
ALL: Final = (
    "select", "a long select", "create", "a loop of writes", "GET", "set", "PUT a key", "publish",
    "take", "READ", "a TAKE that waits",
)  # fmt: skip


@dataclass(frozen=True)
class Race:
    """:ivar before: what gives the right; `$u` is the user, `$ns` its namespace
    :ivar after: what takes it away; empty: the user's token is deleted
    :ivar uses: what the right is good for
    """

    before: str
    after: str
    uses: tuple[str, ...]


def granted(verb: str, securable: str, uses: tuple[str, ...]) -> Race:
    return Race(f"GRANT {verb} ON {securable} TO $u", f"REVOKE {verb} ON {securable} FROM $u", uses)


def of_place(securable: str) -> dict[str, Race]:
    """The verbs on a place."""
    more = ("define a database",) if securable.startswith("NAMESPACE") else ()
    return {
        f"{verb} ON {securable}": granted(verb, securable, uses)
        for verb, uses in (
            ("READ", (*READS_T[:2], *READS_C[:2], *READS_Q)),
            ("WRITE", (*WRITES_T, *WRITES_C[:2], *WRITES_Q)),
            ("CONSUME", TAKES),
            ("DEFINE", (*DEFINES, *more)),
            ("INFO", INFO),
        )
    }


def anew(kind: str, name: str, also: str, uses: tuple[str, ...]) -> Race:
    """All that a right was on is dropped, and there is another of that name at once."""
    verbs = {"TABLE": "READ, WRITE, DEFINE, INFO", "SPACE": "READ, WRITE, INFO",
             "TOPIC": "READ, WRITE, CONSUME, DEFINE, INFO"}[kind]  # fmt: skip
    after = f"BEGIN; DROP {kind} {name}; DEFINE {kind} {name}{also}; COMMIT"
    return Race(f"GRANT {verbs} ON {kind} {name} TO $u", after, uses)


T, C, Q = "TABLE $ns.main.t", "SPACE $ns.main.c", "TOPIC $ns.main.q"
V: Final = "VAULT $ns.main.v"
BIG: Final = "TABLE $ns.main.big"
PASS: Final = f"PASSWORD '{PASSWORD}'"
RACES: Final[dict[str, Race]] = {
    "READ ON TABLE t": granted("READ", T, ("select", "a moment", "a moment that is kept")),
    "READ ON TABLE big": granted("READ", BIG, ("a long select",)),
    "WRITE ON TABLE t": granted("WRITE", T, ("create", "a loop of writes")),
    "WRITE ON TABLE big": granted("WRITE", BIG, ("a long update",)),
    "DEFINE ON TABLE": granted("DEFINE", T, ("define a field",)),
    "INFO ON TABLE": granted("INFO", T, ("info of a table",)),
    "READ ON SPACE": granted("READ", C, READS_C),
    "WRITE ON SPACE": granted("WRITE", C, WRITES_C),
    "INFO ON SPACE": granted("INFO", C, ("info of a space",)),
    "READ ON TOPIC": granted("READ", Q, ("READ", "figures")),
    "READ ON TOPIC idle": granted("READ", "TOPIC $ns.main.idle", ("a READ that waits",)),
    "WRITE ON TOPIC": granted("WRITE", Q, WRITES_Q),
    "CONSUME ON TOPIC": granted("CONSUME", Q, ("TAKE", "take", "READ as a reader")),
    "CONSUME ON TOPIC idle": granted(
        "CONSUME", "TOPIC $ns.main.idle", ("a TAKE that waits", "take that waits")
    ),
    "DEFINE ON TOPIC": granted("DEFINE", Q, ("alter a topic",)),
    "INFO ON TOPIC": granted("INFO", Q, ("info of a topic",)),
    **of_place("DATABASE $ns.main"),
    **of_place("NAMESPACE $ns"),
    "READ ON VAULT": granted("READ", V, ("REVEAL", "LIST")),
    "WRITE ON VAULT": granted("WRITE", V, ("write a secret", "erase a secret")),
    "INFO ON VAULT": granted("INFO", V, ("info of a vault", "trail of a vault")),
    "INFO ON NODE": granted("INFO", "NODE", ("info of the node",)),
    "another role": Race("ALTER USER $u SET ROLE editor", "ALTER USER $u SET ROLE member", ALL),
    "DROP USER": Race(f"DROP USER $u; DEFINE USER $u ROLE editor {PASS}", "DROP USER $u", ALL),
    "another password": Race(
        f"DEFINE USER OVERWRITE $u ROLE editor {PASS}",
        "ALTER USER $u SET PASSWORD 'another horse battery'", ALL,
    ),
    "DELETE /session": Race("ALTER USER $u SET ROLE editor", "", ALL),
    "a table anew": anew("TABLE", "t", "", ("select", "create", "a loop of writes")),
    "a space anew": anew("SPACE", "c", "; SET 'k' IN c VALUE 1; SET 'n' IN c VALUE 1",
                         (*READS_C, *WRITES_C)),
    "a topic anew": anew("TOPIC", "q", "; DEFINE GROUP g ON q DEADLINE 1h; DEFINE READER r ON q",
                         ("READ", "PUBLISH", "publish", "TAKE", "take")),
    "a database anew": Race(
        "GRANT READ, WRITE, CONSUME ON DATABASE $ns.main TO $u",
        "BEGIN; DROP DATABASE $ns.main; DEFINE DATABASE $ns.main; USE $ns.main; "
        f"{SETTING}; COMMIT",
        ALL[:-1],
    ),
}  # fmt: skip


CREDENTIALS: Final = frozenset({"another password", "DELETE /session"})
"""What ends a credential, and no right."""
ENDS_SESSIONS: Final = frozenset(
    {"another role", "DROP USER", "another password", "DELETE /session"}
)

# --- a race ---------------------------------------------------------------------------------------


@dataclass
class Taken:
    seen: bool = False
    """Whether the answer that says so was seen."""
    sequence: int | None = None
    """Of the commit that took it away, or the newest when its answer was seen."""
    overlapping: list[tuple[str, int]] = field(default_factory=list)
    """Uses that were under way and have succeeded, with their sequences."""


class Lane:
    """A user, its namespace, and its connections: one for each way of using a right."""

    def __init__(self, node: Served, book: Book, number: int, at_once: int) -> None:
        self.node = node
        self._at_once = at_once
        self._book = book
        self.user, self.namespace = f"u{number}", f"n{number}"
        self.place = {"ns": self.namespace, "db": "main"}
        self.random = Random(number)
        self.token = ""
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._raws: dict[str, tuple[Raw, float]] = {}
        """By use, and when they were used last."""
        self._peers: dict[str, tuple[Peer, str]] = {}
        self._moment = "new"
        self._published = 0
        """How many messages there were in `idle`."""

    async def owner(self, text: str) -> int:
        """Do something as the owner of the store; the sequence of its last commit."""
        text = text.replace("$u", self.user).replace("$ns", self.namespace)
        here = (self.namespace, "main")
        answer = await self.node.here.answer(text, place=here)
        assert answer.refusal is None, (text, answer.refusal)
        return answer.sequence

    async def furnish(self) -> None:
        """The namespace and all in it, and the user."""
        root = self.node.here
        await root.values(f"DEFINE NAMESPACE {self.namespace}")
        await root.values(f"DEFINE DATABASE {self.namespace}.main")
        await self.owner(SETTING)
        await self.owner(SECRET)
        await self.owner(f"DEFINE USER $u ROLE member {PASS}")

    async def run(self, name: str) -> None:
        race = RACES[name]
        await self.owner(race.before)
        self._moment = "new"
        if name in ENDS_SESSIONS or not self.token:
            self.token = await self.node.token(await self._raw("POST"), self.user, PASSWORD)
        taken = Taken()
        ways = self.random.sample(race.uses, min(self._at_once, len(race.uses)))
        starts = [asyncio.Event() for _ in ways]
        uses = [
            asyncio.create_task(self._go_on(name, use, taken, started))
            for use, started in zip(ways, starts, strict=True)
        ]
        for started in starts:
            await started.wait()
        for _ in range(self.random.randrange(40)):
            await asyncio.sleep(0)
        await self._take_away(race, taken)
        if any("waits" in use for use in ways):
            await self.owner(f"PUBLISH INTO idle VALUE '{LATE}'")
            self._published += 1
            await self.owner(f"TRIM TOPIC idle BEFORE {self._published + 1}")
        await asyncio.gather(*uses)
        await self._mend(name)
        self._judge(name, taken)
        self.counts["races"] += 1

    async def _take_away(self, race: Race, taken: Taken) -> None:
        if race.after:
            taken.sequence = await self.owner(race.after)
        else:
            raw = await self._raw("DELETE")
            fields = {"authorization": f"Bearer {self.token}"}
            assert (await raw.ask("DELETE", "/session", **fields)).status == 204
            taken.sequence = self.node.here.node.committer.ledger.state.committed
        taken.seen = True

    async def _mend(self, name: str) -> None:
        """As it was before, for the next race; and so all that was before is released."""
        if name == "DROP USER":
            await self.owner(f"DEFINE USER $u ROLE member {PASS}")
        elif name in ENDS_SESSIONS:
            await self.owner(f"DEFINE USER OVERWRITE $u ROLE member {PASS}")
        else:
            await self.owner("DEFINE TABLE OVERWRITE mark")
        if name in ENDS_SESSIONS:
            self.token = ""
        if name == "a database anew":
            self._published = 0

    def _judge(self, name: str, taken: Taken) -> None:
        assert taken.sequence is not None
        if name in CREDENTIALS:
            return
        for use, sequence in taken.overlapping:
            if sequence > taken.sequence:
                self.violations.append(f"{name}: {use} was done at {sequence}, behind the end")
        newest = self._book.newest(self.user)
        if newest > taken.sequence:
            self.violations.append(f"{name}: commit {newest} is behind {taken.sequence}")

    async def _go_on(self, race: str, use: str, taken: Taken, started: asyncio.Event) -> None:
        """Use the right until that is refused."""
        try:
            if "waits" in use:
                await self._wait(race, use, started)
                return
            while True:
                late = taken.seen
                code, sequence = await self._use(race, use)
                if code in OVER:
                    assert started.is_set(), f"{race}: {use} was refused from the first: {code}"
                    self.counts["refused"] += 1
                    return
                assert code in ("done", "Conflict"), f"{race}: {use}: {code}"
                self.counts["done"] += 1
                if late and code == "done":
                    self.violations.append(f"{race}: {use}, begun behind it, was done")
                    return
                if sequence is not None:
                    taken.overlapping.append((use, sequence))
                    del taken.overlapping[:-20]
                started.set()
        finally:
            started.set()

    async def _wait(self, race: str, use: str, started: asyncio.Event) -> None:
        """Wait for messages; what comes late is not handed out."""
        peer = await self._peer(use)
        if use == "take that waits":
            body = {**self.place, "op": "take", "topic": "idle", "group": "g"}
            peer.say(MessageKind.TOPIC, 8, {**body, "wait": timedelta(minutes=5)})
        else:
            text = WAITS[use].replace("$last", str(self._published))
            peer.say(MessageKind.RUN, 8, {**self.place, "script": text})
        peer.say(MessageKind.PING, 9)
        message = await peer.hear()
        assert message is not None and message.kind is MessageKind.PONG, message
        started.set()
        try:
            message = await peer.hear()
        except TimeoutError:
            self.violations.append(f"{race}: {use} went on behind the end")
            return
        assert message is not None
        if LATE in repr(message.body):
            self.violations.append(f"{race}: {use} was handed what came behind it")
        self.counts["waits ended"] += 1

    # --- uses ---

    async def _use(self, race: str, use: str) -> tuple[str, int | None]:
        """Use the right once: what came of it, and the sequence that it says it was done at."""
        if use in SCRIPTS:
            text = SCRIPTS[use].replace("$ns", self.namespace)
            if self.random.random() < 0.3:
                return await self._script(race, use, text)
            return await self._say(use, MessageKind.RUN, {"script": text})
        if use == "a moment":
            body = {"script": SCRIPTS["select"], "moment": "new", "keep": timedelta(0)}
            return await self._say(use, MessageKind.RUN, body)
        if use == "a moment that is kept":
            return await self._kept(use)
        if use in KV:
            return await self._say(use, MessageKind.KV, {"op": use, "space": "c", **KV[use]})
        if use in TOPIC:
            return await self._say(use, MessageKind.TOPIC, {"op": use, "topic": "q", **TOPIC[use]})
        if use == "figures":
            return await self._figures(race, use)
        method, path, data = PATHS[use]
        target = f"/kv/{self.namespace}/main/c{path}"
        raw = await self._raw(use)
        answer = await raw.ask(method, target, data, **self._credential(race))
        return ("done" if answer.status < 300 else answer.error["code"]), None

    async def _script(self, race: str, use: str, text: str) -> tuple[str, int | None]:
        body = json.dumps({"script": text, **self.place}).encode()
        fields = {"content_type": "application/json", **self._credential(race)}
        answer = await (await self._raw(use)).ask("POST", "/script", body, **fields)
        if answer.status == 200:
            return "done", answer.json["seq"]
        return answer.error["code"], None

    async def _figures(self, race: str, use: str) -> tuple[str, int | None]:
        answer = await (await self._raw(use)).ask("GET", "/metrics", b"", **self._credential(race))
        if answer.status != 200:
            return answer.error["code"], None
        shown = f'namespace="{self.namespace}"'.encode() in answer.body
        return ("done" if shown else "Unknown"), None

    async def _kept(self, use: str) -> tuple[str, int | None]:
        """Read in a moment again and again. It ends also when another's rights change."""
        body = {"script": SCRIPTS["select"], "moment": self._moment}
        peer = await self._peer(use)
        peer.say(MessageKind.RUN, 7, {**self.place, **body})
        message = await peer.hear()
        assert message is not None and message.body is not None
        if message.kind is MessageKind.ANSWER:
            self._moment = message.body.get("moment", "new")
            return "done", message.body["seq"]
        if self._moment != "new":
            self._moment = "new"
            return await self._kept(use)
        return message.body["error"]["code"], None

    async def _say(
        self, use: str, kind: MessageKind, body: dict[str, Any]
    ) -> tuple[str, int | None]:
        peer = await self._peer(use)
        peer.say(kind, 7, {**self.place, **body})
        message = await peer.hear()
        assert message is not None
        if message.kind is MessageKind.ERROR:
            assert message.body is not None
            return message.body["error"]["code"], None
        return "done", (message.body or {}).get("seq")

    # --- connections ---

    def _credential(self, race: str) -> dict[str, str]:
        """The token, or the password, which does not end with the session."""
        if race != "DELETE /session" and self.random.random() < 0.3:
            basic = b64encode(f"{self.user}:{PASSWORD}".encode()).decode()
            return {"authorization": f"Basic {basic}"}
        return {"authorization": f"Bearer {self.token}"}

    async def _raw(self, use: str) -> Raw:
        """The connection of a use; another one where it was not used for long: it may be closed."""
        now = asyncio.get_running_loop().time()
        raw, used = self._raws.get(use, (None, 0.0))
        if raw is None or now - used > limits.IDLE_SECONDS / 3:
            if raw is not None:
                await raw.__aexit__()
            raw = await self.node.raw()
        self._raws[use] = raw, now
        return raw

    async def _peer(self, use: str) -> Peer:
        """The connection of a use, which speaks for the session at hand."""
        if use not in self._peers:
            self._peers[use] = (await self.node.peer(token=self.token), self.token)
        peer, token = self._peers[use]
        if token != self.token:
            peer.say(MessageKind.AUTH, 6, {"token": self.token})
            message = await peer.hear()
            assert message is not None and message.kind in (MessageKind.WELCOME, MessageKind.ERROR)
            self._peers[use] = (peer, self.token)
        return peer


KEPT: Final = frozenset({keys.STATEMENT, keys.AUDIT, *keys.OF_TRAILS})
"""What is kept of what was refused is committed by itself, and is no use of a right."""


class Book:
    """Whose the newest commits are."""

    def __init__(self, node: Served) -> None:
        committer = node.here.node.committer
        self._follower = committer.tail.follow(committer.commit_index, lambda: None)
        self._newest: dict[str, int] = {}

    def newest(self, user: str) -> int:
        while frames := self._follower.take(1 << 20):
            for frame in frames:
                commit = effects.decode(frame.body)
                if any(effect[1][keys.TAG_AT] not in KEPT for effect in commit.effects):
                    self._newest[commit.attribution.by] = frame.sequence
        return self._newest.get(user, 0)

    def close(self) -> None:
        self._follower.leave()


async def raced(
    folder: Path, rounds: int, names: Iterable[str] = RACES
) -> tuple[list[str], Counter[str]]:
    """The violations of so many races of each kind, and what was done in them."""
    async with served(folder / "store", {"vaults": VAULTS}) as node:
        await node.here.unseal()
        book = Book(node)
        at_once = AT_ONCE if rounds > LANES else len(ALL)
        lanes = [Lane(node, book, number, at_once) for number in range(min(LANES, rounds))]
        for lane in lanes:
            await lane.furnish()
        for name in names:
            numbers = iter(range(rounds))
            await asyncio.gather(*(_some(lane, name, numbers) for lane in lanes))
            if any(lane.violations for lane in lanes):
                break
        book.close()
        counts = sum((lane.counts for lane in lanes), Counter[str]())
        return [one for lane in lanes for one in lane.violations], counts


async def _some(lane: Lane, name: str, numbers: Iterator[int]) -> None:
    for _ in numbers:
        await lane.run(name)
        if lane.violations:
            return


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short slices of the loop, and no delay of what is refused."""
    monkeypatch.setattr(limits, "SLICE_US", SLICE_US)
    monkeypatch.setattr(scheduler.FiberScheduler, "slice_us", SLICE_US)
    for name in ("DELAY_FIRST_US", "DELAY_US", "DELAY_MOST_US"):
        monkeypatch.setattr(sign_in_throttle, name, 0)


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.hard)])
async def test_nothing_is_done_behind_the_end_of_a_right(
    tmp_path: Path, figure: Figure, rounds: int
) -> None:
    violations, counts = await raced(tmp_path, rounds)
    assert not violations, "\n".join(violations)
    assert counts["races"] == rounds * len(RACES)
    figure(
        f"rights taken away in use, {rounds} times each of {len(RACES)}",
        dict(sorted(counts.items())),
    )


# --- the checker ----------------------------------------------------------------------------------

_privileges = Rights.privileges


def _as_it_was(self: Rights, tx: Transaction, caller: Caller) -> Privileges:
    """What somebody held when that was first asked."""
    known = self._remembered.get(caller.user)
    return _privileges(self, tx, caller) if known is None else known


_judged: dict[int, tuple[Transaction, Privileges]] = {}


def _judged_once(self: Rights, tx: Transaction, caller: Caller) -> Privileges:
    """As a transaction found it first, which does not rest on it."""
    known = _judged.get(id(tx))
    if known is None or known[0] is not tx:
        with Transaction(tx._state, tx._state.committed, tx.now_us) as aside:
            known = _judged[id(tx)] = tx, _privileges(self, aside, caller)
    return known[1]


def _go_on(self: Sessions, token: str) -> Caller:
    """Signing out ends nothing."""
    return self.use(token).caller


Planted = tuple[tuple[Any, str, Any], ...]
FAULTS: Final[dict[str, tuple[Planted, str]]] = {
    "privileges are remembered": (((Rights, "privileges", _as_it_was),), "READ ON SPACE"),
    "commits rest on no right": (
        ((Rights, "privileges", _judged_once), (Transaction, "rest_on", lambda *_: None)),
        "WRITE ON TABLE big",
    ),
    "sign-outs end nothing": (((Sessions, "end", _go_on),), "DELETE /session"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    planted, race = FAULTS[fault]
    for one in planted:
        monkeypatch.setattr(*one)
    violations, _ = await raced(tmp_path, 100, [race])
    assert violations
