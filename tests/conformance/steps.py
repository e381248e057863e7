"""Does the steps of a case: calls of the testee, and what nodes, peers and the proxy do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from protocol.errors import CATALOGUE
from tests.clients.members import FakeCluster, FakeMember
from tests.conformance.cases import Case
from tests.conformance.loops import LoopThread
from tests.conformance.peer import (
    Answers,
    Connection,
    GroupAnswers,
    Message,
    Peer,
    delivery,
    error,
    frame,
    result,
)
from tests.conformance.proxy import Fault, FaultProxy
from tests.conformance.testee import PATIENCE_SECONDS, Failed, Testee
from tests.conformance.values import canonical, difference, plain, tagged, unpack
from tests.processes import NodeProcess, request
from tests.reliability.clusters import Cluster, Member

PLACED: Final = ("cache", "topic", "publisher", "reader", "group", "vault")
"""Calls that name a thing of a database: the first part of their names."""
RUNNERS: Final = ("run", "query", "rows", "transaction")
PLACES: Final = {
    "cache": {"space": "s"}, "topic": {"topic": "t"}, "publisher": {"topic": "t"},
    "reader": {"topic": "t", "reader": "r"}, "group": {"topic": "t", "group": "g"},
    "vault": {"vault": "v"}, "watch": {"table": "t"}, "mirror": {"table": "t"},
}  # fmt: skip
"""Names that a call does not give: their first letters."""
ON_HANDLES: Final = ("next", "stop", "lease", "watch.position", "delivery")
VALUE_ARGUMENTS: Final = ("value", "values")
VALUES_OF: Final = {
    "cache.compare_and_set": ("expect",), "cache.incr": ("by",), "cache.get_or_set": ("load",),
}  # fmt: skip
EXPECTS: Final = frozenset(  # what a step has beside its call
    (
        "value",
        "has",
        "error",
        "save",
        "begin",
        "repeat",
        "text_has",
        "text_lacks",
        "may_skip",
        "begin_all",
    )
)
LENGTHS: Final = {
    "kilobytes5": 5 << 10, "megabyte": 1 << 20, "megabytes15": 15 << 20, "megabytes17": 17 << 20
}  # fmt: skip
"""Names of long texts."""
_EMBEDDED: Final = re.compile(r"\$\{(\w+)\}")


@dataclass
class World:
    """The servers of a case, and the client's way to them."""

    addresses: list[str] = field(default_factory=list)
    user: str = "ana"
    password: str = "a long password"
    ns: str = "n"
    db: str = "main"
    peers: list[Peer] = field(default_factory=list)
    node: NodeProcess | None = None
    cluster: Cluster | None = None
    proxy: FaultProxy | None = None
    members: FakeCluster | None = None
    loop: LoopThread | None = None
    folder: Path = Path()
    tls: Mapping[str, str] = field(default_factory=dict)


class Run:
    """Run of a case."""

    def __init__(self, case: Case, testee: Testee, world: World) -> None:
        self._case = case
        self._testee = testee
        self.world = world
        self._begun: dict[str, tuple[int, str]] = {}
        self._connections: dict[str, Connection] = {}
        self._last: Connection | None = None
        self._group = GroupAnswers()
        self._messages: dict[str, tuple[Connection, Message]] = {}
        self.names: dict[str, Any] = {**case.names, "ns": world.ns, "tmp": str(world.folder)}
        self.names |= {
            name: "x" * length for name, length in LENGTHS.items()
        }  # fmt: skip
        self.names |= {f"p{number}": one.address for number, one in enumerate(world.peers, 1)}
        self.names |= dict(world.tls)
        if world.addresses:
            self.names["node"] = world.addresses[0]
        if world.cluster is not None:
            for number, one in enumerate(world.cluster.followers(), 1):
                self.names[f"follower{number}"] = wire_address(one)
        if world.members is not None:
            self.names |= {one.name: one.address for one in world.members.members}

    def all(self) -> None:
        """Do all steps. :raises Failed: with the step that did not come out"""
        if self._case.opens:
            self._step({"open": "c"})
        for number, step in enumerate(self._case.steps, 1):
            try:
                self._step(step)
            except Failed as why:
                shown = self._testee.shown()
                raise Failed(f"step {number}, {step}: {why}\n{shown}") from None

    def _step(self, given: Mapping[str, Any]) -> None:
        step = {name: self._filled(value) for name, value in given.items()}
        words = [name for name in step if name not in EXPECTS]
        if "together" in step:
            self._together(step)
        elif words == ["end"]:
            self._end(step)
        elif not words and "begin" in step:
            raise Failed("a step has one call")
        else:
            (word,) = words
            work: Callable[[Any, Mapping[str, Any]], None] | None = getattr(
                self, "do_" + word.replace(".", "_"), None
            )
            if work is not None:
                work(step[word], step)
            else:
                self._call(word, step[word], step)

    # --- names

    def _filled(self, value: Any) -> Any:
        """Return a part of a step with its names replaced."""
        if isinstance(value, str):
            if value.startswith("$") and value[1:] in self.names:
                return self.names[value[1:]]
            return _EMBEDDED.sub(lambda found: str(self.names[found[1]]), value)
        if isinstance(value, list):
            return [self._filled(one) for one in value]
        if isinstance(value, dict):
            return {name: self._filled(one) for name, one in value.items()}
        return value

    def _save(self, found: Any, names: Mapping[str, str]) -> None:
        for name, path in names.items():
            at = found
            for part in path.split(".") if path else ():
                at = at[int(part)] if isinstance(at, list) else at[part]
            self.names[name] = plain(at)

    # --- calls of the testee

    def _arguments(self, word: str, given: Any) -> dict[str, Any]:
        first = word.partition(".")[0]
        if word == "open":
            return {"call": word, **self._open(given)}
        call = dict(given or {})
        if word not in ("hello", "reset", "cancel", "let") and first != "delivery":
            call.setdefault("on", "c")
        if first in PLACED or word in (*RUNNERS, "moment.open", "watch", "mirror.open"):
            defaults = PLACES.get(first, {})
            if word not in RUNNERS or call["on"] == "c":
                defaults = {"ns": self.world.ns, "db": self.world.db, **defaults}
            call = {**defaults, **call}
        elif first == "seal" and "vault" in call:
            call = {"ns": self.world.ns, "db": self.world.db, **call}
        if word in ("watch", "moment.open", "mirror.open"):
            call.setdefault("as", word[0])
        for name in (*VALUE_ARGUMENTS, *VALUES_OF.get(word, ())):
            if name in call:
                call[name] = _loaded(call[name]) if name == "load" else tagged(call[name])
        if "statements" in call:
            call["statements"] = [
                {**one, "params": _tagged_each(one.get("params", {}))} for one in call["statements"]
            ]
        if "params" in call:
            call["params"] = _tagged_each(call["params"])
        return {"call": word, **call}

    def _open(self, given: Any) -> dict[str, Any]:
        call: dict[str, Any] = {"as": given} if isinstance(given, str) else {"as": "c", **given}
        call.setdefault("addresses", self.world.addresses)
        if "token" not in call and "user" not in call:
            call |= {"user": self.world.user, "password": self.world.password}
        return {name: value for name, value in call.items() if value != "absent"}

    def _call(self, word: str, given: Any, step: Mapping[str, Any]) -> None:
        calls = [self._arguments(word, given) for _ in range(step.get("repeat", 1))]
        ids = self._testee.begin(*calls)
        if step.get("begin_all"):
            return
        if "begin" in step:
            assert len(ids) == 1, "a begun call is one"
            self._begun[step["begin"]] = (ids[0], word)
            return
        for id in ids:
            self._judge(self._testee.end(id), step)

    def _together(self, step: Mapping[str, Any]) -> None:
        calls = [
            self._arguments(word, given) for one in step["together"] for word, given in one.items()
        ]
        ids = self._testee.begin(*calls)
        if "begin" in step:
            for name, id in zip(step["begin"], ids, strict=True):
                self._begun[name] = (id, "")
            return
        answers = [self._testee.end(id) for id in ids]
        for number, answer in enumerate(answers):
            expected = {name: step[name][number] for name in ("value", "has") if name in step}
            if "error" in step:
                expected["error"] = step["error"]
            if "may_skip" in step:
                expected["may_skip"] = step["may_skip"]
            self._judge(answer, expected)

    def _end(self, step: Mapping[str, Any]) -> None:
        names = step["end"] if isinstance(step["end"], list) else [step["end"]]
        for name in names:
            id, _ = self._begun.pop(name)
            self._judge(self._testee.end(id), step)

    def _judge(self, answer: dict[str, Any], step: Mapping[str, Any]) -> None:
        if "skip" in answer:
            if not step.get("may_skip"):
                raise Failed(f"skipped: {answer['skip']}")
            self._testee.skipped.append(f"{self._case.id}: {answer['skip']}")
            return
        found = answer.get("error")
        if found is not None:
            if "error" not in step:
                raise Failed(f"an error: {found}")
            self._judge_error(found, step)
            self._save(found, step.get("save") or {})
            return
        if "error" in step:
            raise Failed(f"no error but {answer['value']}")
        value = answer["value"]
        canonical(value)  # refuses a number without a tag
        for name, partial in (("value", False), ("has", True)):
            if name in step and (why := difference(step[name], value, partial)) is not None:
                raise Failed(why)
        self._judge_text(str(value), step)
        self._save(value, step.get("save") or {})

    def _judge_error(self, found: dict[str, Any], step: Mapping[str, Any]) -> None:
        for name, expected in step["error"].items():
            if name not in found:
                raise Failed(f"the error has no {name}: {found}")
            if name in ("detail", "results"):
                why = difference(expected, found[name], partial=True, at=name)
                if why is not None:
                    raise Failed(f"the error: {why}")
            elif expected != "*" and found[name] != expected:
                raise Failed(f"the error has {name} {found[name]!r}, not {expected!r}: {found}")
        self._judge_text(found["text"], step)

    @staticmethod
    def _judge_text(text: str, step: Mapping[str, Any]) -> None:
        for part in _listed(step.get("text_has")):
            if part not in text:
                raise Failed(f"{part!r} is not in {text!r}")
        for part in _listed(step.get("text_lacks")):
            if part in text:
                raise Failed(f"{part!r} is in {text!r}")

    def do_call(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """A call whose name the case has from its `each`."""
        self._call(given["name"], given.get("arguments"), step)

    def do_testee_sockets(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """The socket to an address has the kernel's keep-alive timer, due within that time."""
        port = int(given["to"].rpartition(":")[2])
        self._wait(lambda: _keepalive(port, given["at_most_ms"]))

    def do_pending(self, name: str, step: Mapping[str, Any]) -> None:
        """A begun call has not ended."""
        if self._testee.has_answered(self._begun[name][0]):
            raise Failed(f"{name} has ended: {self._testee.end(self._begun[name][0])}")

    def do_cancel(self, name: str, step: Mapping[str, Any]) -> None:
        """The caller cancels a begun call."""
        self._judge(self._testee.call(call="cancel", of=self._begun[name][0]), {})

    def do_until(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """A call is made until its value is the expected one."""
        ((word, arguments),) = given.items()
        self._wait(lambda: self._is_met(word, arguments, step))

    def _is_met(self, word: str, arguments: Any, step: Mapping[str, Any]) -> str | None:
        try:
            self._step({word: arguments, **{k: v for k, v in step.items() if k != "until"}})
        except Failed as why:
            return str(why)
        return None

    def _wait(self, look: Callable[[], str | None]) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while (why := look()) is not None:
            if time.monotonic() > ends:
                raise Failed(why)
            time.sleep(0.005)

    # --- peers

    def _peer(self, given: Mapping[str, Any]) -> Peer:
        return self.world.peers[int(given.get("peer", "p1")[1:]) - 1]

    def _accepted(self, given: Mapping[str, Any]) -> Connection:
        found = self._peer(given).accept()
        self._connections[given.get("as", f"#{len(self._connections)}")] = found
        self._last = found
        return found

    def _connection(self, given: Any) -> Connection:
        name = given.get("on") if isinstance(given, dict) else given
        found = self._last if name is None else self._connections[name]
        assert found is not None, "no connection was accepted"
        return found

    def _message(self, given: Mapping[str, Any] | None) -> tuple[Connection, Message]:
        return self._messages[(given or {}).get("to", "")]

    def do_peer_accept(self, given: Any, step: Mapping[str, Any]) -> None:
        """Accept a connection."""
        self._accepted(given or {})

    def do_peer_greet(self, given: Any, step: Mapping[str, Any]) -> None:
        """Accept a connection, and welcome the client."""
        given = given or {}
        connection = self._accepted(given)
        hello = self._expected(connection, {"kind": "HELLO", **given.get("expect", {})})
        self._messages["hello"] = (connection, hello)
        body = self._welcome(given, hello.body)
        connection.send(frame("WELCOME", hello.id, tagged(body | given.get("with", {}))))

    @staticmethod
    def _welcome(given: Mapping[str, Any], hello: Mapping[str, Any]) -> dict[str, Any]:
        minor = given.get("minor", 10)
        user = {"name": hello.get("user", "ana"), "role": "owner", "space": None}
        body = {
            "major": 1, "minor": minor, "version": "0.9", "node": given.get("peer", "p1"),
            "limits": {"frame": 16777216},
            "user": user if "user" in hello or "token" in hello else None,
        }  # fmt: skip
        if minor >= 7:
            body["writable"] = given.get("writable", True)
            body["leader"] = given.get("leader", [])
        return body

    def do_peer_meet(self, given: Any, step: Mapping[str, Any]) -> None:
        """The client `c` connects, and is welcomed."""
        (id,) = self._testee.begin(self._arguments("connect", None))
        self.do_peer_greet(given, {})
        self._judge(self._testee.end(id), {})

    def _expected(self, connection: Connection, given: Mapping[str, Any]) -> Message:
        found = connection.next()
        if found is None:
            raise Failed(f"the client has closed, not sent {given['kind']}")
        if found.kind != given["kind"]:
            raise Failed(f"the client sent {found.kind} {found.body}, not {given['kind']}")
        if "id" in given and found.id != given["id"]:
            raise Failed(f"the id is {found.id}, not {given['id']}")
        body = found.body or {}
        if "body" in given and (why := difference(given["body"], body, partial=True)) is not None:
            raise Failed(f"the body: {why}")
        if more := [name for name in _listed(given.get("lacks")) if name in body]:
            raise Failed(f"{more} are in the body: {body}")
        return found

    def do_peer_expect(self, given: Any, step: Mapping[str, Any]) -> None:
        """The next message of the client."""
        given = {"kind": given} if isinstance(given, str) else given
        connection = self._connection(given)
        for _ in range(given.get("times", 1)):
            found = self._expected(connection, given)
            self._came(connection, found, given.get("as", ""))
            self._save({"id": found.id, "body": found.body}, step.get("save") or {})

    def _came(self, connection: Connection, found: Message, name: str = "") -> None:
        for one in ("", name, found.kind):
            self._messages[one] = (connection, found)

    def do_peer_expect_with(self, given: Any, step: Mapping[str, Any]) -> None:
        """A message of the client; scripts that come before it are answered."""
        connection = self._connection(given)
        while True:
            found = connection.next()
            if found is None:
                raise Failed(f"the client has closed, not sent {given['kind']}")
            body = found.body or {}
            if found.kind == given["kind"] and not difference(given["body"], body, partial=True):
                self._came(connection, found)
                return
            if found.kind != "RUN":
                raise Failed(f"the client sent {found.kind} {body}, not {given}")
            connection.send(frame("ANSWER", found.id, Answers([]).body()))

    def do_peer_table(self, given: Any, step: Mapping[str, Any]) -> None:
        """Answer the reading of a whole table: a moment, and one page."""
        connection = self._connection({})
        place = {"seq": given["seq"], "store": "s", "epoch": 1}
        if not given.get("begun"):
            self._came(connection, self._expected(connection, {"kind": "RUN"}))
        self.do_peer_answer({"moment": given["moment"], "results": [], **place}, {})
        self._came(connection, self._expected(connection, {"kind": "RUN"}))
        self.do_peer_answer({"value": given["rows"], **place}, {})

    def do_peer_change(self, given: Any, step: Mapping[str, Any]) -> None:
        """Send a CHANGE of the last WATCH: of one record, if it is a commit."""
        connection, asked = self._messages["WATCH"]
        given = dict(given)
        if "type" not in given:
            record = given.pop("record", given["seq"])
            value = {"id": {"$rec": ["t", record]}, "v": given.pop("value", 1)}
            change = {"action": "create", "id": {"$rec": ["t", record]}, "value": value}
            at = {"$dt": "2026-01-02T03:04:05Z"}
            usual = {"type": "commit", "at": at, "by": "ana", "reason": None, "changes": [change]}
            given = usual | given
        elif given["type"] == "open":
            given = {"store": "s", "table": "t", "begins": 0, "created": 1, **given}
        connection.send(frame("CHANGE", asked.id, tagged(given)))

    def do_peer_answer(self, given: Any, step: Mapping[str, Any]) -> None:
        """Answer a RUN."""
        connection, asked = self._message(given)
        given = {name: value for name, value in (given or {}).items() if name != "to"}
        wire = given.pop("wire", None)
        results = given.pop("results", None)
        single = [{"value": given.pop("value", None)}]
        body = tagged({"seq": 7, "store": Answers.store, "epoch": 1, **given})
        body["results"] = [result(one) for one in (single if results is None else results)]
        if wire is None:
            connection.send(frame("ANSWER", asked.id, body))
            return
        mark = "the value of the answer"
        body["results"] = [result({"value": mark})]
        whole = frame("ANSWER", asked.id, body)[4:]
        packed = whole.replace(bytes([0xA0 | len(mark)]) + mark.encode(), bytes.fromhex(wire))
        connection.send(len(packed).to_bytes(4, "big") + packed)

    def do_peer_value(self, given: Any, step: Mapping[str, Any]) -> None:
        """Answer a KV, TOPIC or VAULT."""
        connection, asked = self._message(given)
        connection.send(frame("VALUE", asked.id, tagged((given or {}).get("body"))))

    def do_peer_refuse(self, given: Any, step: Mapping[str, Any]) -> None:
        """Refuse a request, or end the connection with an error of id 0."""
        given = dict(given)
        kind = given.pop("kind", "ERROR")
        if "id" in given:
            connection, id = self._connection(given), given.pop("id")
            given.pop("on", None)
        else:
            connection, asked = self._message(given)
            id = asked.id
            given.pop("to", None)
        raw = given.pop("raw", {})
        body = error(given.pop("code"), **given)
        body["error"] |= tagged(raw)
        connection.send(frame(kind, id, body))

    def do_peer_send(self, given: Any, step: Mapping[str, Any]) -> None:
        """Send any message. `id` is that of a message that has come, if none is given."""
        if "id" in given:
            connection, id = self._connection(given), given["id"]
        else:
            connection, asked = self._message(given)
            id = asked.id
        wire = None if given.get("wire") is None else bytes.fromhex(given["wire"])
        connection.send(frame(given["kind"], id, tagged(given.get("body")), wire))

    def do_peer_send_all(self, given: Any, step: Mapping[str, Any]) -> None:
        """Send messages for the last request; `$whole` is the body of an ANSWER to a backup."""
        summary = {"form": "snapshot", "records": 1, "version": "0.9"}
        whole = {"results": [result({"value": summary})], "seq": {"$int": "1"}}
        connection, asked = self._message(None)
        for one in given["messages"]:
            body = whole if one["body"] == "$whole" else tagged(one["body"])
            connection.send(frame(one["kind"], asked.id, body))

    def do_peer_bytes(self, given: Any, step: Mapping[str, Any]) -> None:
        """Send bytes: `hex`, `zeros` of them behind it."""
        data = bytes.fromhex(given["hex"]) + bytes(given.get("zeros", 0))
        self._connection(given).send(data)

    def do_peer_close(self, given: Any, step: Mapping[str, Any]) -> None:
        """End a connection."""
        self._connection(given or {}).close((given or {}).get("how", "fin"))

    def do_peer_arriving(self, given: Any, step: Mapping[str, Any]) -> None:
        """Wait until bytes of the client have come."""
        connection = self._connection(given or {})
        self._wait(lambda: None if connection.is_ready else "the client sends nothing")

    def do_peer_some(self, given: Any, step: Mapping[str, Any]) -> None:
        """Some bytes of the client have come; they are dropped."""
        self._connection(given or {}).sock.recv(1 << 12)

    def do_peer_ended(self, given: Any, step: Mapping[str, Any]) -> None:
        """The client has ended a connection, and sent nothing more."""
        found = self._connection(given or {}).next()
        if found is not None:
            raise Failed(f"the client sent {found.kind} {found.body}, not the end")

    def do_peer_serve(self, given: Any, step: Mapping[str, Any]) -> None:
        """Answer all that still comes."""
        given = dict(given or {})
        connection = self._connection(given)
        given.pop("on", None)
        connection.serve(Answers(**given))

    def do_peer_deliver(self, given: Any, step: Mapping[str, Any]) -> None:
        """Answer a TAKE with messages whose receipts are r1, r2 …"""
        connection, asked = self._message({"to": given.get("to_message", "")})
        messages = [delivery(one) for one in range(given["from"], given["to"] + 1)]
        connection.send(frame("VALUE", asked.id, tagged({"messages": messages})))

    def do_peer_serve_group(self, given: Any, step: Mapping[str, Any]) -> None:
        """Answer as a node with one group does: `deliver` messages, once."""
        self._group = GroupAnswers(**(given or {}))
        self._connection({}).serve(self._group)

    def do_peer_extended(self, given: Any, step: Mapping[str, Any]) -> None:
        """Wait until these receipts were extended together, so many times."""
        wanted = (sorted(given["receipts"]), given["by"])
        self._wait(
            lambda: (
                None
                if self._group.extended.count(wanted) >= given["times"]
                else f"extended: {self._group.extended[-5:]}"
            )
        )

    def do_matches(self, given: Any, step: Mapping[str, Any]) -> None:
        """A text has a form."""
        if re.fullmatch(given["pattern"], given["text"]) is None:
            raise Failed(f"{given['text']!r} does not match {given['pattern']!r}")

    def do_peer_segments(self, given: Any, step: Mapping[str, Any]) -> None:
        """The client made few writes for what it has sent."""
        found = self._connection(given).segments
        if found > given["at_most"]:
            raise Failed(f"{found} segments, not {given['at_most']} at most")

    def do_peer_stop(self, name: str, step: Mapping[str, Any]) -> None:
        """A peer listens no more."""
        self._peer({"peer": name}).stop()

    def do_peer_start(self, name: str, step: Mapping[str, Any]) -> None:
        """A peer listens again."""
        self._peer({"peer": name}).start()

    def do_peer_turn_away(self, name: str, step: Mapping[str, Any]) -> None:
        """A peer welcomes each connection, says BYE and ends it."""
        self._peer({"peer": name}).turn_away(tagged(self._welcome({}, {})))

    def do_peer_no_tls(self, given: Any, step: Mapping[str, Any]) -> None:
        """The next connection does not come to TLS."""
        try:
            self._peer(given or {}).accept()
        except Failed as why:
            if "no TLS" not in str(why):
                raise
        else:
            raise Failed("the client accepts the certificate")

    def do_peer_raw(self, given: Any, step: Mapping[str, Any]) -> None:
        """Accept a connection and end it; its first bytes lack a text."""
        connection = self._accepted(given)
        data = connection.sock.recv(1 << 16)
        connection.close()
        if not data or given["lacks"].encode() in data:
            raise Failed(f"the client sent {data!r}")

    def do_peer_perhaps(self, given: Any, step: Mapping[str, Any]) -> None:
        """Until the call `q` ends, refuse what comes."""
        connection = self._connection(given)
        while not self._testee.has_answered(self._begun["q"][0]):
            if connection.is_ready:
                self._came(connection, self._expected(connection, given))
                self.do_peer_refuse({"code": given["code"], "detail": given["detail"]}, {})

    def do_peer_answer_any(self, given: Any, step: Mapping[str, Any]) -> None:
        """Refuse what comes on some connections, and then answer."""
        connections = [self._connections[name] for name in given["on"]]
        for left in range(given["after"], -1, -1):
            ready: list[Connection] = []
            self._wait(lambda ready=ready: ready.extend(o for o in connections if o.is_ready)  # type: ignore[misc]
                       or (None if ready else "the client asks no node"))  # fmt: skip
            self._came(ready[0], self._expected(ready[0], given))
            if left:
                self.do_peer_refuse({"code": given["code"], "detail": given["detail"]}, {})
            else:
                self.do_peer_answer({"value": given["value"]}, {})

    def do_peer_reads(self, given: Any, step: Mapping[str, Any]) -> None:
        """Reads go to both peers, to the one that does not lead with `after`."""
        home = Answers("home", seq=given["after"])
        other = Answers("other", seq=given["after"])
        self._connections[given["home"]].serve(home)
        welcome = self._welcome({"writable": False, "peer": given["other"]}, {"user": "ana"})
        self._peer({"peer": given["other"]}).follow(tagged(welcome), other)
        self._wait(lambda: None if self._read() == "other" else "no read at the other node")
        run = next(one for one in other.asked if one.kind == "RUN")
        if (found := run.body.get("after")) != {"$int": str(given["after"])}:
            raise Failed(f"the read is after {found}, not {given['after']}: {run.body}")

    def _read(self, script: str = "SELECT 1") -> Any:
        call = self._arguments("query", {"script": script})
        answer = self._testee.end(self._testee.begin(call)[0])
        if "error" in answer:
            raise Failed(f"a read: {answer['error']}")
        return answer["value"]

    def do_peer_alone(self, name: str, step: Mapping[str, Any]) -> None:
        """Nobody has connected to a peer."""
        if self._peer({"peer": name}).has_visitor():
            raise Failed(f"the client has connected to {name}")

    # --- the real node, and the proxy before it

    @property
    def _node(self) -> NodeProcess:
        assert self.world.node is not None, "this case has no real node"
        return self.world.node

    def _at_node(self, text: str) -> Any:
        """Run a script at the node, and return its answer as a tagged value."""
        body = {"script": text, "ns": self.world.ns, "db": self.world.db}
        headers = {"Accept": "application/msgpack"}
        if self.world.cluster is None:
            address = self._node.address("http")
        else:
            address = "127.0.0.1", self.world.cluster.led().at.http
        answer = unpack(request(address, "POST", "/script", body, headers).body)
        if "error" in answer:
            raise Failed(f"the node refuses it: {answer}")
        return answer

    def do_node_run(self, text: str, step: Mapping[str, Any]) -> None:
        """The driver runs a script at the node."""
        self._save(self._at_node(text), step.get("save") or {})

    def do_node_query(self, text: str, step: Mapping[str, Any]) -> None:
        """The driver looks at the node."""
        found = self._at_node(text)["results"][-1]["value"]
        for name, partial in (("value", False), ("has", True)):
            if name in step and (why := difference(step[name], found, partial)) is not None:
                raise Failed(f"at the node: {why}")
        self._save(found, step.get("save") or {})

    def do_node_kill(self, given: Any, step: Mapping[str, Any]) -> None:
        """SIGKILL to the node."""
        self._node.kill()

    def do_node_stop(self, given: Any, step: Mapping[str, Any]) -> None:
        """SIGTERM to the node, and wait for its end."""
        self._node.stop()

    def do_node_start(self, given: Any, step: Mapping[str, Any]) -> None:
        """Start the node again."""
        self._node.lines.clear()
        self._node.start()

    @property
    def _proxy(self) -> FaultProxy:
        assert self.world.proxy is not None, "this case has no proxy"
        return self.world.proxy

    def _in_loop(self, work: Callable[[], Any]) -> Any:
        assert self.world.loop is not None
        return self.world.loop.call(work)

    def do_fault(self, given: Any, step: Mapping[str, Any]) -> None:
        """Something happens to a frame from now on."""
        self._in_loop(lambda: self._proxy.faults.append(Fault(**given)))

    def do_proxy_count(self, given: Any, step: Mapping[str, Any]) -> None:
        """So many frames of a kind, or of an operation, have come of the client."""
        found = self._in_loop(lambda: self._proxy.frames[given["frames"]])
        if found != given.get("equals", found) or found > given.get("at_most", found):
            raise Failed(f"{found} frames {given['frames']}, not as in {given}")

    def do_proxy_values(self, given: Any, step: Mapping[str, Any]) -> None:
        """No TOPIC of the client had more values."""
        found = self._in_loop(lambda: self._proxy.values)
        if found > given["at_most"]:
            raise Failed(f"{found} values in one TOPIC")

    def do_proxy_connections(self, equals: int, step: Mapping[str, Any]) -> None:
        """So many connections were made."""
        found = self._in_loop(lambda: self._proxy.connections)
        if found != equals:
            raise Failed(f"{found} connections, not {equals}")

    def do_proxy_cut(self, how: str, step: Mapping[str, Any]) -> None:
        """All connections end."""
        self._in_loop(lambda: self._proxy.cut(how))

    def do_proxy_let(self, given: Any, step: Mapping[str, Any]) -> None:
        """Let go what is held."""
        self._in_loop(self._proxy.let_go)

    def do_proxy_held(self, count: int, step: Mapping[str, Any]) -> None:
        """Wait until so many frames are held."""
        self._wait(lambda: None if self._proxy.held == count else f"{self._proxy.held} held")

    def do_proxy_happened(self, count: int, step: Mapping[str, Any]) -> None:
        """Wait until so many faults have happened."""
        self._wait(
            lambda: None if self._proxy.happened == count else f"{self._proxy.happened} happened"
        )

    def do_proxy_stop(self, given: Any, step: Mapping[str, Any]) -> None:
        """The proxy listens no more."""
        assert self.world.loop is not None
        self.world.loop.run(self._proxy.stop())

    def do_proxy_start(self, given: Any, step: Mapping[str, Any]) -> None:
        """The proxy listens again."""
        assert self.world.loop is not None
        self.world.loop.run(self._proxy.start())

    # --- a real cluster

    @property
    def _three(self) -> Cluster:
        assert self.world.cluster is not None, "this case has no cluster"
        return self.world.cluster

    def do_cluster_kill_leader(self, given: Any, step: Mapping[str, Any]) -> None:
        """SIGKILL to the leader; then wait until the next one takes writes."""
        self._three.led().kill()
        if (given or {}).get("waits", True):
            self._three.write_until_taken(0)

    def do_cluster_stop_leader(self, given: Any, step: Mapping[str, Any]) -> None:
        """SIGTERM to the leader; wait for its end, and until the next one takes writes."""
        self._three.led().stop()
        self._three.write_until_taken(0)

    def do_differs(self, given: Any, step: Mapping[str, Any]) -> None:
        """Two values are not the same."""
        if given[0] == given[1]:
            raise Failed(f"both are {given[0]}")

    # --- members of a cluster that a case directs

    @property
    def _cluster(self) -> FakeCluster:
        assert self.world.members is not None, "this case has no members"
        return self.world.members

    def _member(self, given: Mapping[str, Any]) -> FakeMember:
        return next(one for one in self._cluster.members if one.name == given["member"])

    def _set(self, thing: object, fields: Mapping[str, Any]) -> None:
        def work() -> None:
            for name, value in fields.items():
                setattr(thing, name, value)

        self._in_loop(work)

    def do_members_lead(self, name: str | None, step: Mapping[str, Any]) -> None:
        """Another member leads, or none."""
        leader = None if name is None else self._member({"member": name})
        self._set(self._cluster, {"leader": leader})

    def do_members_name(self, name: str | None, step: Mapping[str, Any]) -> None:
        """The others take this member for the leader."""
        named = None if name is None else self._member({"member": name})
        self._set(self._cluster, {"named": named})

    def do_members_catch_up(self, given: Any, step: Mapping[str, Any]) -> None:
        """All members show what is committed."""
        self._in_loop(self._cluster.catch_up)

    def do_members_set(self, given: Any, step: Mapping[str, Any]) -> None:
        """Set fields of the cluster."""
        self._set(self._cluster, given)

    def do_member_set(self, given: Any, step: Mapping[str, Any]) -> None:
        """Set fields of a member."""
        member = self._member(given)
        rest = {name: one for name, one in given.items() if name != "member"}
        for name in ("refuses", "loses"):
            if name in rest:
                fields = dict(rest[name])
                rest[name] = CATALOGUE[fields.pop("code")]("refused", **fields)
        self._set(member, rest)

    def do_members_done(self, count: int, step: Mapping[str, Any]) -> None:
        """So many changes were done, by all of them."""
        found = self._in_loop(lambda: list(self._cluster.done))
        if len(found) != count:
            raise Failed(f"done: {found}, not {count}")

    def do_members_asked(self, count: int, step: Mapping[str, Any]) -> None:
        """Wait until the members were asked for so many scripts."""
        self._wait(lambda: None if self._asked() >= count else f"{self._asked()} were asked for")

    def _asked(self) -> int:
        return sum(len(one.requests) for one in self._cluster.members)

    def do_members_forget(self, given: Any, step: Mapping[str, Any]) -> None:
        """Forget the scripts that they were asked for so far."""
        for one in self._cluster.members:
            self._in_loop(one.requests.clear)

    def do_members_spread(self, given: Any, step: Mapping[str, Any]) -> None:
        """Read until all members have answered."""
        left = {one.name for one in self._cluster.members}

        def look() -> str | None:
            left.discard(self._read())
            return f"{left} are not read" if left else None

        self._wait(look)
        self.do_members_forget(None, {})

    def do_reads(self, given: Any, step: Mapping[str, Any]) -> None:
        """These members answer so many reads, all of them at least once."""
        found = {self._read(given.get("script", "SELECT 1")) for _ in range(given["count"])}
        if "spread" in given:
            wanted = {one.name for one in self._cluster.members} if given["spread"] else {"n0"}
        else:
            wanted = found if given["names"] == "*" else set(given["names"])
        if found != wanted:
            raise Failed(f"{sorted(found)} have answered, not {sorted(wanted)}")

    def do_member_after(self, given: Any, step: Mapping[str, Any]) -> None:
        """The scripts of a member came with `after` one of these."""
        found = self._in_loop(lambda: {one.after for one in self._member(given).requests})
        if found != set(given["equals"]):
            raise Failed(f"{given['member']} was asked after {found}, not {given['equals']}")

    def do_member_refused(self, name: str, step: Mapping[str, Any]) -> None:
        """A member has refused what it was to refuse."""
        if self._in_loop(lambda: self._member({"member": name}).refuses) is not None:
            raise Failed(f"{name} was not asked")

    def do_member_done(self, given: Any, step: Mapping[str, Any]) -> None:
        """Return the changes that a member has made."""
        found = self._in_loop(lambda: list(self._member(given).done))
        if found != given["equals"]:
            raise Failed(f"{given['member']} has done {found}, not {given['equals']}")

    def do_member_requests(self, given: Any, step: Mapping[str, Any]) -> None:
        """The scripts that a member was asked for."""
        found = self._in_loop(lambda: [one.script for one in self._member(given).requests])
        if found != given["equals"]:
            raise Failed(f"{given['member']} was asked for {found}, not {given['equals']}")

    def do_member_stop(self, name: str, step: Mapping[str, Any]) -> None:
        """A member is gone."""
        assert self.world.loop is not None
        self.world.loop.run(self._member({"member": name}).surface.close())

    # --- files

    def do_file_exists(self, path: str, step: Mapping[str, Any]) -> None:
        """There is such a file."""
        if not Path(path).is_file():
            raise Failed(f"there is no file {path}")

    def do_file_make(self, path: str, step: Mapping[str, Any]) -> None:
        """Make a file."""
        Path(path).write_text("kept")

    def do_file_size(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """A file has a size."""
        found = Path(given["path"]).stat().st_size
        if found != given["equals"]:
            raise Failed(f"{given['path']} has {found} bytes, not {given['equals']}")

    def do_folder_until(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """Wait until a folder has these files and no others."""
        self._wait(
            lambda: (
                None
                if sorted(one.name for one in Path(given["path"]).iterdir()) == given["equals"]
                else f"{given['path']} has other files"
            )
        )

    def do_folder_has(self, given: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        """A folder has these files and no others."""
        found = sorted(one.name for one in Path(given["path"]).iterdir())
        if found != given["equals"]:
            raise Failed(f"{given['path']} has {found}, not {given['equals']}")


def wire_address(member: Member) -> str:
    """Return the address of a member for clients."""
    return f"127.0.0.1:{member.at.wire}"


def _listed(given: Any) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def _keepalive(port: int, at_most_ms: int) -> str | None:
    """Return why no socket to a port has a keep-alive timer: proc(5), /proc/net/tcp."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, state, _, timer, *_ = line.split()
        if int(remote.rpartition(":")[2], 16) == port and state == "01":
            kind, left = (int(part, 16) for part in timer.split(":"))
            if kind == 2 and left * 10 <= at_most_ms:
                return None
            return f"its timer is of kind {kind} and due in {left * 10} ms"
    return f"no socket is connected to port {port}"


def _tagged_each(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tagged(value) for name, value in params.items()}


def _loaded(load: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loader of a call, with its value tagged."""
    return {**load, "value": tagged(load["value"])} if "value" in load else dict(load)
