"""KV messages: what they ask, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from actors.commits.priority_locks import PriorityLockRequest
from protocol import binary, limits
from protocol.frames import MessageKind, WireMessage, encode
from protocol.spaces import Packed, SwapKey
from protocol.values import NONE
from storage.txn.read_set import ReadSet
from storage.txn.tickets import RollBacks
from surfaces.wire import spaces
from tests.nodes import PASSWORD
from tests.surfaces.wire.halls import Hall, code, hall_of
from tests.surfaces.wire.peers import FakeNode, Peer, connected, serving, until

PLACE = {"ns": "shop", "db": "main", "space": "c"}


class Talker:
    def __init__(self, peer: Peer, hall: Hall) -> None:
        self.peer, self.hall = peer, hall
        self.node, self.surface = hall.here, hall.surface
        self.last = 0

    def frame(self, op: str, **fields: Any) -> bytes:
        self.last += 1
        body = {"op": op, **PLACE, **fields}
        if "if_" in body:
            body["if"] = body.pop("if_")
        return encode(MessageKind.KV, self.last, body)

    async def ask(self, op: str, **fields: Any) -> Any:
        """The fields of its answer; the code of what it was refused with."""
        self.send(self.frame(op, **fields))
        return shown(await self.message())

    def send(self, data: bytes) -> None:
        self.peer.writer.write(data)

    async def message(self) -> WireMessage:
        message = await self.peer.hear()
        assert message is not None, "closed instead"
        return message


def shown(message: WireMessage) -> Any:
    if message.kind is MessageKind.ERROR:
        return code(message)
    assert message.kind is MessageKind.VALUE, message
    return message.body


@asynccontextmanager
async def talking(directory: Path, **greeting: Any) -> AsyncIterator[Talker]:
    declared = "DEFINE SPACE c; DEFINE SPACE d; DEFINE TABLE t"
    async with hall_of(Hall, directory, declared) as hall:
        yield Talker(await hall.peer(**greeting), hall)


def test_the_values_of_a_long_message_are_packed_in_steps() -> None:
    ticks: list[None] = []
    body = {"op": "swap", "key": "k", "expect": [1] * 50_000, "value": [2] * 50_000}
    body |= {"ns": "a", "db": "b", "space": "c"}
    message = spaces.with_values_packed(
        WireMessage(MessageKind.KV, 1, body), lambda: ticks.append(None)
    )
    assert len(ticks) > 500
    _, operation = spaces.read_keys(message.body)
    assert isinstance(operation, SwapKey)
    for found, value in ((operation.expect, 1), (operation.value, 2)):
        assert isinstance(found, Packed) and binary.unpack(found.content) == [value] * 50_000
    for wrong in ([2] * limits.CACHE_VALUE_BYTES, NONE, float("nan")):
        refused = spaces.with_values_packed(
            WireMessage(MessageKind.KV, 1, {**body, "value": wrong}), lambda: None
        )
        assert refused.refusal is not None and refused.body is None


@pytest.fixture
async def talker(tmp_path: Path) -> AsyncIterator[Talker]:
    async with talking(tmp_path / "store") as made:
        yield made


async def test_a_sign_in_behind_reads_that_fill_the_buffer(talker: Talker) -> None:
    """It waits for those that wait for room, and these are answered when the peer has read."""
    await talker.ask("set", key="big", value=bytes(limits.CACHE_VALUE_BYTES - 100))
    reads = [talker.frame("get", key="big") for _ in range(40)]
    auth = encode(MessageKind.AUTH, 100, {"user": "root", "password": PASSWORD})
    talker.last = 100
    talker.send(b"".join([*reads, auth, talker.frame("get", key="none")]))
    heard = [await talker.message() for _ in range(42)]
    assert [message.id for message in heard] == [*range(2, 42), 100, 101]
    assert heard[40].kind is MessageKind.WELCOME and shown(heard[41]) is None


async def test_every_operation_and_its_answer(talker: Talker) -> None:
    hour = timedelta(hours=1)
    assert await talker.ask("get", key="k") is None
    assert await talker.ask("set", key="k", value=1) == {"written": True}
    assert await talker.ask("get", key="k") == {"value": 1, "ttl": None}
    assert await talker.ask("set", key="k", value=2, if_="absent") == {"written": False}
    assert await talker.ask("set", key="k", value=2, if_="present", expire=hour) == {
        "written": True
    }
    assert await talker.ask("set", key="k", value=3, keep=True) == {"written": True}
    assert hour / 2 < (await talker.ask("get", key="k"))["ttl"] <= hour
    assert await talker.ask("swap", key="k", expect=NONE, value=4) == {"written": False}
    assert await talker.ask("swap", key="k", expect=3, value=4) == {"written": True}
    assert await talker.ask("incr", key="k") == {"value": 5}
    assert await talker.ask("incr", key="k", by=-7) == {"value": -2}
    assert await talker.ask("expire", key="k", expire=hour) == {"found": True}
    assert await talker.ask("persist", key="k") == {"found": True}
    assert await talker.ask("keys") == {"keys": ["k"]}
    assert await talker.ask("keys", prefix="x", after="a", limit=5) == {"keys": []}
    assert await talker.ask("delete", key="k") == {"deleted": True}
    ledger = talker.node.node.committer.ledger
    before_us = ledger.log_time()
    held = await talker.ask("lock", key="l", holder="a", expire=hour)
    assert held["held"] and before_us <= held["fence"] <= ledger.log_time()
    lost = {"held": False, "fence": None, "until": held["until"]}
    named = {"key": "l", "holder": "a", "fence": held["fence"] - 1}
    assert await talker.ask("lock", expire=hour, **named) == lost
    assert await talker.ask("unlock", **named) == {"released": False}
    assert (await talker.ask("lock", expire=hour, **named | {"fence": held["fence"]}))["held"]
    held = await talker.ask("lock", key="l", holder="a", expire=hour)
    other = await talker.ask("lock", key="l", holder="b", expire=hour)
    assert other == {"held": False, "fence": None, "until": held["until"]}
    assert await talker.ask("unlock", key="l", holder="b") == {"released": False}
    assert await talker.ask("unlock", key="l", holder="a") == {"released": True}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"op": "fly", "key": "k"}, "BadRequest"), ({"op": None}, "BadRequest"),
    ({"op": "get"}, "TypeRefused"), ({"op": "get", "key": 5}, "TypeRefused"),
    ({"op": "get", "key": ""}, "BadRequest"), ({"op": "get", "key": "x" * 1025}, "BadRequest"),
    ({"op": "get", "key": "a\0"}, "BadRequest"), ({"op": "get", "key": "k", "x": 1}, "BadRequest"),
    ({"op": "get", "key": "k", "space": None}, "BadRequest"),
    ({"op": "get", "key": "k", "ns": 5}, "BadRequest"),
    ({"op": "get", "key": "k", "space": "nothing"}, "NotASpace"),
    ({"op": "get", "key": "k", "space": "t"}, "NotASpace"),
    ({"op": "set", "key": "k"}, "BadRequest"),
    ({"op": "set", "key": "k", "value": NONE}, "TypeRefused"),
    ({"op": "set", "key": "k", "value": 1, "expire": 5}, "BadRequest"),
    ({"op": "set", "key": "k", "value": 1, "expire": timedelta(0)}, "ExpireRefused"),
    ({"op": "set", "key": "k", "value": 1, "expire": timedelta(-1)}, "ExpireRefused"),
    ({"op": "set", "key": "k", "value": 1, "expire": timedelta(1), "keep": True}, "BadRequest"),
    ({"op": "set", "key": "k", "value": 1, "if": "maybe"}, "BadRequest"),
    ({"op": "set", "key": "k", "value": "x" * (1 << 20)}, "TooLarge"),
    ({"op": "swap", "key": "k", "value": 1}, "BadRequest"),
    ({"op": "swap", "key": "k", "expect": 1}, "BadRequest"),
    ({"op": "incr", "key": "k", "by": 1.5}, "BadRequest"),
    ({"op": "incr", "key": "k", "by": True}, "BadRequest"),
    ({"op": "expire", "key": "k"}, "BadRequest"), ({"op": "lock", "key": "k"}, "TypeRefused"),
    ({"op": "lock", "key": "k", "holder": "a"}, "BadRequest"),
    ({"op": "lock", "key": "k", "holder": "", "expire": timedelta(1)}, "BadRequest"),
    ({"op": "lock", "key": "k", "holder": "a", "expire": timedelta(1), "fence": 0}, "BadRequest"),
    ({"op": "unlock", "key": "k", "holder": "a", "fence": "1"}, "BadRequest"),
    ({"op": "unlock", "key": "k"}, "TypeRefused"), ({"op": "keys", "limit": -1}, "BadRequest"),
    ({"op": "keys", "limit": 1001}, "BadRequest"), ({"op": "keys", "prefix": 5}, "BadRequest"),
    ({"op": "keys", "key": "k"}, "BadRequest"),
]  # fmt: skip


async def test_what_is_refused_is_answered_and_the_connection_goes_on(talker: Talker) -> None:
    for number, (fields, wanted) in enumerate(REFUSED, 1000):
        talker.send(encode(MessageKind.KV, number, {**PLACE, **fields}))
        message = await talker.message()
        assert (shown(message), message.id) == (wanted, number), fields
    assert await talker.ask("keys") == {"keys": []}


async def test_pipelined_operations_are_done_in_order_and_synced_together(talker: Talker) -> None:
    committer = talker.node.node.committer
    before = committer.committed
    talker.send(
        b"".join(
            talker.frame("set", key="k", value=n) + talker.frame("get", key="k") for n in range(30)
        )
    )
    for number in range(30):
        assert shown(await talker.message()) == {"written": True}
        assert shown(await talker.message()) == {"value": number, "ttl": None}
    assert committer.committed - before < 30, "those of one read share a commit"
    talker.send(b"".join(talker.frame("incr", key=f"n{n % 3}") for n in range(400)))
    found = [shown(await talker.message())["value"] for _ in range(400)]
    assert found == [n // 3 + 1 for n in range(400)]


async def test_what_found_no_room_goes_on_behind_what_a_barrier_held_back(talker: Talker) -> None:
    """Once the client has taken all that there was: nothing more is sent, behind which it would be
    looked at."""
    for number in range(30):
        await talker.ask("set", key=f"k{number}", value="x" * 200 * limits.KIB)
    everything = ReadSet(0, RollBacks())
    everything.add_range(b"\0", b"\xff" * 40)
    priority_locks = talker.node.node.committer.priority_locks
    place = PriorityLockRequest(priority_locks, "test", everything, lambda: None)
    priority_locks.join(place)
    frames = [talker.frame("set", space="d", key="held", value=1)]
    held = talker.last
    frames += [talker.frame("get", key=f"k{number}") for number in range(30)]
    talker.send(b"".join(frames))
    connection: Any
    (connection,) = talker.surface._wire.connections
    heard = [(await talker.message()).id for _ in range(21)]  # 4 MiB
    await until(lambda: connection._keys._left and not connection._taking.runs)
    assert held not in heard
    place.leave()
    heard += [(await talker.message()).id for _ in range(10)]
    assert sorted(heard) == list(range(held, held + 31))


async def test_a_session_that_ended_is_heard_of(talker: Talker) -> None:
    await talker.ask("set", key="k", value=1)
    await talker.node.values("ALTER USER root SET PASSWORD 'another password'")
    assert await talker.ask("get", key="k") == "SessionEnded"
    assert await talker.ask("get", key="k", space="nothing") == "SessionEnded"


async def test_who_is_not_signed_in_reaches_no_key(talker: Talker) -> None:
    await talker.ask("set", key="k", value=1)
    async with connected(talker.surface) as peer:
        await peer.greet()
        stranger = Talker(peer, talker.hall)
        frames = [
            stranger.frame("get", key="k"),
            stranger.frame("set", key="k", value=2),
            stranger.frame("get", key="k", space="nothing"),
        ]
        stranger.send(b"".join(frames))
        for number in range(1, 4):
            message = await stranger.message()
            assert (shown(message), message.id) == ("SignInRefused", number)
        peer.say(MessageKind.PING, 9)
        await peer.must_hear(MessageKind.PONG, 9)
    assert await talker.ask("get", key="k") == {"value": 1, "ttl": None}


async def test_what_one_read_brought_is_asked_in_parts() -> None:
    node = FakeNode()
    async with serving(node) as surface, connected(surface) as peer:
        await peer.sign_in()
        get, listing = {"op": "get", **PLACE, "key": "k"}, {"op": "keys", **PLACE, "space": "d"}
        frames = [encode(MessageKind.KV, n, get) for n in range(1, 101)]
        frames.append(encode(MessageKind.KV, 101, listing))
        frames += [encode(MessageKind.KV, n, get) for n in range(102, 152)]
        peer.writer.write(b"".join(frames))
        for _ in frames:
            assert await peer.hear() is not None
    parts = [(names[2], len(operations)) for _, names, operations in node.asked]
    assert sorted(parts) == [("c", 22), ("c", 64), ("c", 64), ("d", 1)]


async def test_a_node_that_fails_at_it_says_so_for_each(logbook: Any) -> None:
    logbook.allow("a request failed")

    class Broken(FakeNode):
        def keys(self, *_args: Any) -> Any:
            raise RuntimeError("a bug of the node")

    async with serving(Broken()) as surface, connected(surface) as peer:
        await peer.sign_in()
        body = {"op": "get", **PLACE, "key": "k"}
        peer.say(MessageKind.KV, 1, body)
        peer.say(MessageKind.KV, 2, body)
        for _ in range(2):
            message = await peer.hear()
            assert message is not None and shown(message) == "Failed"
        assert surface.running == 0


# --- sequences ------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", [7, 8])
async def test_what_has_changed_something_says_at_which_commit(tmp_path: Path, minor: int) -> None:
    async with talking(tmp_path / "store", minor=[0, minor]) as talker:
        minute = timedelta(minutes=1)
        for op, fields in (
            ("set", {"key": "a", "value": 1}), ("incr", {"key": "a"}),
            ("swap", {"key": "a", "expect": 2, "value": 3}), ("delete", {"key": "a"}),
            ("lock", {"key": "l", "holder": "h", "expire": minute}),
            ("expire", {"key": "l", "expire": minute}), ("persist", {"key": "l"}),
            ("unlock", {"key": "l", "holder": "h"}),
        ):  # fmt: skip
            before = talker.node.node.committer.commit_index
            told = (await talker.ask(op, **fields)).get("seq")
            after = talker.node.node.committer.commit_index  # expiry commits too
            assert (told is not None) == (minor >= 8), op
            assert told is None or before < told <= after, op
        await talker.ask("set", key="b", value=1)
        for op, fields in (
            ("get", {"key": "b"}), ("keys", {}),
            ("set", {"key": "b", "value": 2, "if": "absent"}), ("delete", {"key": "none"}),
        ):  # fmt: skip
            assert "seq" not in await talker.ask(op, **fields), f"{op} has changed nothing"
        # Those that share a commit, and one between them that has changed nothing.
        frames = [
            talker.frame("set", key="d", value=1),
            talker.frame("set", key="d", value=2, **{"if": "absent"}),
            talker.frame("incr", key="d"),
        ]
        talker.send(b"".join(frames))
        seqs = [shown(await talker.message()).get("seq") for _ in frames]
        assert seqs[-1] == seqs[0] and (seqs[0] is not None) == (minor >= 8)
