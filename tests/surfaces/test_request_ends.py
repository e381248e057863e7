"""How a request ends: of each kind, in each of its states, by each thing that may end it.

Every cell is one request on a connection and in a session of its own. What its client hears is the
code of a refusal, DONE where there is none, or NOTHING.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from actors.commits.priority_locks import PriorityLockRequest
from protocol import limits
from protocol.frames import MessageKind
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from surfaces.command.stopping import drain
from tests.actors.scripts.test_stalled_disk import Stall
from tests.logbook import Logbook
from tests.surfaces.http.raw import Raw, request
from tests.surfaces.served import Served, served
from tests.surfaces.wire.peers import Peer, until

EVE: Final = "a password of hers"
DECLARED: Final = f"""
    DEFINE TABLE t; DEFINE SPACE c; DEFINE TOPIC q; DEFINE GROUP g ON q DEADLINE 1m;
    DEFINE VAULT v; WRITE 'x' IN VAULT v VALUE 1; DEFINE USER eve ROLE owner PASSWORD '{EVE}'"""
PLACE: Final = {"ns": "shop", "db": "main"}
SOON: Final = timedelta(milliseconds=50)
FAR: Final = 1_000_000
"""A sequence that no test comes to."""

RUNNING, MESSAGES, SEQUENCE = "running", "waits for messages", "waits for a sequence"
LOCK, COMMITTING, AUDIT = "waits for a priority lock", "commits", "waits for the audit trail"
SEEN = "has read another's commit that is not durable"

KINDS: Final = {
    RUNNING: ("script", "http script"),
    MESSAGES: ("script", "http script", "topic"),
    SEQUENCE: ("script", "http script"),
    LOCK: ("script", "http script", "topic", "kv", "http key"),
    COMMITTING: ("script", "http script", "topic", "kv", "http key"),
    SEEN: ("script", "http script", "kv", "http key"),
    AUDIT: ("script", "http script"),
}
SCRIPTS: Final = {
    RUNNING: "FOR $x IN 0..1000000000 { LET $y = $x }",
    MESSAGES: "TAKE FROM q AS g WAIT 1m",
    SEQUENCE: "SELECT * FROM t",
    LOCK: "CREATE t",
    COMMITTING: "CREATE t",
    SEEN: "SELECT * FROM t",
    AUDIT: "REVEAL 'x' FROM VAULT v",
}
OPERATIONS: Final[Mapping[str, tuple[MessageKind, dict[str, Any]]]] = {
    "topic": (MessageKind.TOPIC, {"topic": "q", "op": "publish", "value": 1}),
    "kv": (MessageKind.KV, {"space": "c", "op": "set", "key": "k", "value": 1}),
}
READS: Final[dict[str, Any]] = {"space": "c", "op": "get", "key": "k"}
WAITS: Final[dict[str, Any]] = {
    "topic": "q",
    "op": "take",
    "group": "g",
    "wait": timedelta(minutes=1),
}

KILL, CANCEL, GONE, CUT, DEADLINE = "KILL", "CANCEL", "client gone", "session cut", "own deadline"
EVENTS: Final = (KILL, CANCEL, GONE, CUT, DEADLINE)
DONE, NOTHING = "done", "nothing"
ENDS: Final = {
    KILL: "Cancelled",
    CANCEL: "Cancelled",
    GONE: NOTHING,
    CUT: "SessionEnded",
    DEADLINE: "StatementTimeout",
}
UNKNOWN: Final = dict.fromkeys((KILL, CANCEL, DEADLINE), "UnknownOutcome")
ENDS_OF: Final = {COMMITTING: {**ENDS, CUT: DONE, **UNKNOWN}, SEEN: {**ENDS, CUT: DONE}}
"""A commit that is on its way to the disk can't be called back: who is ended hears that it may have
happened, and who has only lost the session waits for it. Nothing is unknown to who only reads."""
WAITS_FOR_DISK: Final = tuple(ENDS_OF)


@dataclass
class Asked:
    """A request under way.

    :ivar leave: closes its connection
    :ivar cancel: sends CANCEL; None: it has no way to be cancelled
    """

    heard: asyncio.Task[str]
    leave: Callable[[], None]
    cancel: Callable[[], None] | None = None


class Desk:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.node = served.here.node

    async def token(self) -> str:
        return await self.served.token(await self.served.raw(), "eve", EVE)

    async def ask(
        self, kind: str, state: str, token: str, timeout: timedelta | None = None
    ) -> Asked:
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        if state == SEQUENCE:
            more["after"] = FAR
        if kind.startswith("http"):
            raw = await self.served.raw()
            await raw.send(over_http(kind, state, token, more))
            return Asked(asyncio.create_task(heard_over_http(raw)), raw.writer.close)
        peer = await self.served.peer(token=token, minor=[0, 10])
        if kind == "script":
            peer.say(MessageKind.RUN, 1, {"script": SCRIPTS[state], **PLACE, **more})
        else:
            said, body = OPERATIONS[kind]
            body = {MESSAGES: WAITS, SEEN: READS}.get(state, body)
            peer.say(said, 1, {**body, **PLACE, **more})
        heard = asyncio.create_task(heard_over_wire(peer))
        cancels = None if kind == "kv" else lambda: peer.say(MessageKind.CANCEL, 1)
        return Asked(heard, peer.writer.close, cancels)

    async def rows(self) -> list[dict[str, Any]]:
        """Return what INFO FOR RUNNING shows of eve's."""
        found = await self.served.here.value("INFO FOR RUNNING")
        return [row for row in found if row["user"] == "eve"]

    async def reached(self, *wanted: tuple[Asked, str]) -> list[dict[str, Any]]:
        """Wait until requests are in their states; return their rows, longest first."""
        async with asyncio.timeout(20):
            while True:
                for asked, state in wanted:
                    assert not asked.heard.done(), (state, asked.heard.result())
                rows = await self.rows()
                left = list(rows)
                for _, state in wanted:
                    row = next((row for row in left if is_in(row, state)), None)
                    if row is None:
                        break
                    left.remove(row)
                else:
                    return rows
                await asyncio.sleep(0.001)

    async def quiet(self) -> None:
        async with asyncio.timeout(20):
            while await self.rows():
                await asyncio.sleep(0.001)

    @asynccontextmanager
    async def held(self, state: str) -> AsyncIterator[None]:
        """Keep requests in a state, which others would soon leave."""
        if state in (*WAITS_FOR_DISK, AUDIT):
            stall = Stall(self.node)
            committer = self.node.committer
            at, writes = committer.committed, "CREATE t; SET 'k' IN c VALUE 1"
            if state == SEEN:
                other = asyncio.create_task(self.served.here.values(writes))
                await until(lambda: committer.committed == at + 2)
            try:
                yield
            finally:
                stall.end()
            if state == SEEN:
                await other
        elif state == LOCK:
            everything = ReadSet(0, RollBacks())
            everything.add_range(b"", b"\xff" * 16)
            place = PriorityLockRequest(
                self.node.committer.priority_locks, "test", everything, lambda: None
            )
            self.node.committer.priority_locks.join(place)
            await until(lambda: place.holds_lock)
            try:
                yield
            finally:
                place.leave()
        else:
            yield


def is_in(row: Mapping[str, Any], state: str) -> bool:
    if state in (RUNNING, AUDIT):
        return bool(row["slices"]) and not row["waiting"] and SCRIPTS[state][:4] in row["text"]
    return bool(row["waiting"]) and (row["commit"] is not None) == (state in WAITS_FOR_DISK)


def over_http(kind: str, state: str, token: str, more: Mapping[str, Any]) -> bytes:
    fields = {"authorization": f"Bearer {token}", "content_type": "application/json"}
    if kind == "http key" and state == SEEN:
        return request("GET", "/kv/shop/main/c/key/k", **fields)
    if kind == "http key":
        return request("PUT", "/kv/shop/main/c/key/k", b"1", **fields)
    body = {"script": SCRIPTS[state], **PLACE, **more}
    if "timeout" in more:
        body["timeout"] = f"{more['timeout'] // timedelta(milliseconds=1)}ms"
    return request("POST", "/script", json.dumps(body).encode(), **fields)


async def heard_over_wire(peer: Peer) -> str:
    try:
        message = await peer.hear()
        while message is not None and message.kind is MessageKind.BYE:
            message = await peer.hear()
    except OSError:
        return NOTHING
    if message is None:
        return NOTHING
    body = message.body or {}
    return str(body["error"]["code"]) if message.kind is MessageKind.ERROR else DONE


async def heard_over_http(raw: Raw) -> str:
    try:
        answer = await raw.answer()
    except (OSError, asyncio.IncompleteReadError):
        return NOTHING
    return DONE if answer.status < 300 else str(answer.error["code"])


@asynccontextmanager
async def desk(path: Path) -> AsyncIterator[Desk]:
    async with served(path) as node:
        await node.here.unseal()
        await node.here.values(DECLARED)
        yield Desk(node)


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is ended waits for its own commit for a moment: here the disk never comes in time."""
    monkeypatch.setattr(limits, "ENDED_SECONDS", 0)


def cells() -> Iterator[tuple[str, str, str]]:
    for state, kinds in KINDS.items():
        for kind in kinds:
            for event in EVENTS:
                if event == CANCEL and kind in ("http script", "http key", "kv"):
                    continue
                if event == DEADLINE and kind in ("kv", "http key"):
                    continue
                yield state, kind, event


async def ended(here: Desk, state: str, kind: str, event: str) -> str:
    """Have one request end; return what its client hears."""
    token = await here.token()
    raw = await here.served.raw()
    async with here.held(state):
        asked = await here.ask(kind, state, token, SOON if event == DEADLINE else None)
        if event == DEADLINE:
            return await asked.heard
        (row,) = await here.reached((asked, state))
        if event == KILL:
            await here.served.here.value(f"KILL '{row['id']}'")
        elif event == CANCEL:
            assert asked.cancel is not None
            asked.cancel()
        elif event == GONE:
            asked.leave()
            if kind not in ("kv", "http key"):  # these are done all the same
                await here.quiet()
        else:
            answer = await raw.ask("DELETE", "/session", authorization=f"Bearer {token}")
            assert answer.status == 204, answer.body
            if state in WAITS_FOR_DISK:
                await here.reached((asked, state))
        if not (state in WAITS_FOR_DISK and event == CUT):
            return await asked.heard
    return await asked.heard


async def test_every_request_ends_as_the_table_says(tmp_path: Path) -> None:
    found, wanted = {}, {}
    async with desk(tmp_path) as here:
        for cell in cells():
            state, _, event = cell
            found[cell] = await ended(here, *cell)
            wanted[cell] = ENDS_OF.get(state, ENDS)[event]
            await here.quiet()
    assert found == wanted


DRAINED: Final = {
    RUNNING: "Draining",
    MESSAGES: DONE,
    SEQUENCE: "Draining",
    LOCK: "Draining",
    COMMITTING: DONE,
    SEEN: DONE,
    AUDIT: DONE,
}
"""What waits for messages is answered with what there is, and what is on its way to the disk is
waited for. All else has the time of the drain, which is over at once here."""


@pytest.mark.parametrize(
    "states", [(RUNNING, MESSAGES, SEQUENCE), (LOCK,), (COMMITTING,), (SEEN,), (AUDIT,)]
)
async def test_a_node_that_stops_answers_every_request(
    tmp_path: Path, states: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    drains = states[0] not in (*WAITS_FOR_DISK, AUDIT)
    if drains:
        logbook.allow("requests in flight are cancelled")
        monkeypatch.setattr(limits, "DRAIN_SECONDS", 0.1)
    async with desk(tmp_path) as here:
        tokens = [await here.token() for state in states for _ in KINDS[state]]
        async with here.held(states[0]):
            asked = {
                (state, kind): await here.ask(kind, state, tokens.pop())
                for state in states
                for kind in KINDS[state]
            }
            await here.reached(*((one, state) for (state, _), one in asked.items()))
            stopping = asyncio.create_task(drain(here.node, [here.served.http, here.served.wire]))
            if drains:
                await stopping
            else:
                await until(lambda: here.node.status().reason == "draining")
        await stopping
        found = {cell: await one.heard for cell, one in asked.items()}
    assert found == {cell: DRAINED[cell[0]] for cell in asked}
