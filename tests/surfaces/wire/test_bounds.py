"""What one peer, one user, and all that nobody signed in for make the wire surface hold."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest

from protocol import limits
from protocol.frames import MessageKind, WireMessage, encode
from surfaces.wire import WireSurface
from surfaces.wire.connection import TURN_FRAMES, WireConnection
from surfaces.wire.link import DECODING
from tests.surfaces.wire.peers import OTHER, PASSWORD, USER, FakeNode, Peer, connected, until
from tests.surfaces.wire.test_surface import assert_error

MIB = limits.MIB
PLACE = {"ns": "n", "db": "d", "space": "s"}


def held(surface: WireSurface) -> WireConnection:
    (connection,) = surface._wire.connections
    assert isinstance(connection, WireConnection)
    return connection


def small_buffers(surface: WireSurface, peer: Peer) -> None:
    for transport, way in (
        (held(surface)._transport, socket.SO_SNDBUF),
        (peer.writer.transport, socket.SO_RCVBUF),
    ):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, way, 16_384)


def get(id: int, key: str, space: str = "s") -> bytes:
    return encode(MessageKind.KV, id, {"op": "get", **PLACE, "space": space, "key": key})


def run(id: int, script: str, size: int) -> bytes:
    return encode(MessageKind.RUN, id, {"script": script, "params": {"v": bytes(size)}})


def asked(node: FakeNode) -> int:
    """Operations on keys that the node has done."""
    return sum(len(operations) for _, _, operations in node.asked)


async def settled(count: Any) -> int:
    """A number that does not grow any more."""
    before, still = -1, 0
    while still < 50:
        await asyncio.sleep(0.001)
        now: int = count()
        before, still = now, still + 1 if now == before else 0
    return before


class TestTurns:
    """However many frames one write brings, others have their turn between some and the next."""

    FLOOD = b"".join(encode(MessageKind.PING, id) for id in range(1, 4 * TURN_FRAMES + 1))

    async def test_a_flood_is_acted_on_in_parts(
        self, surface: WireSurface, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turns, act, loop = [0], WireConnection._act, asyncio.get_running_loop()

        def acts(connection: WireConnection, message: WireMessage) -> None:
            turns[-1] += 1
            act(connection, message)

        def turn() -> None:
            turns.append(0)
            if sum(turns) < 4 * TURN_FRAMES:
                loop.call_soon(turn)

        monkeypatch.setattr(WireConnection, "_act", acts)
        monkeypatch.setattr(surface._wire.budget, "limit_us", 1)
        loop.call_soon(turn)
        peer.writer.write(self.FLOOD)
        for id in range(1, 4 * TURN_FRAMES + 1):
            await peer.must_hear(MessageKind.PONG, id)
        assert max(turns) <= TURN_FRAMES

    async def test_floods_of_many_share_a_turn(
        self, surface: WireSurface, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first connection spends the time of an iteration; all are answered, each in order."""
        monkeypatch.setattr(surface._wire.budget, "limit_us", 1)
        async with connected(surface) as other:
            await other.sign_in(OTHER)
            for each in (peer, other):
                each.writer.write(self.FLOOD)
            for each in (peer, other):
                for id in range(1, 4 * TURN_FRAMES + 1):
                    await each.must_hear(MessageKind.PONG, id)


class TestKeys:
    """A thousand short requests ask for a gigabyte: what is read is what the peer takes."""

    COUNT = 400
    READS = b"".join(get(id, "big") for id in range(1, COUNT + 1))

    async def test_a_burst_is_read_as_its_answers_are_taken(
        self, surface: WireSurface, peer: Peer, node: FakeNode
    ) -> None:
        node.values["big"] = bytes(100_000)
        peer.writer.write(self.READS + encode(MessageKind.PING, 5_000))
        done = await settled(lambda: asked(node))
        connection = held(surface)
        in_the_system = done * 100_000 - connection.outgoing.unsent
        assert connection.outgoing.unsent <= limits.CONNECTION_BUFFER_BYTES + 200_000
        assert done < self.COUNT, f"{in_the_system} bytes are in the system's buffers"
        ids = []
        for _ in range(self.COUNT + 1):
            message = await peer.hear()
            assert message is not None
            ids.append(message.id)
        ids.remove(5_000)  # it may overtake them
        assert ids == [*range(1, self.COUNT + 1)]
        assert asked(node) == self.COUNT

    async def test_also_while_the_first_wait_for_a_disk(
        self, surface: WireSurface, peer: Peer, node: FakeNode
    ) -> None:
        node.values["big"] = bytes(100_000)
        node.keys_held = asyncio.get_running_loop().create_future()
        for id in range(1, self.COUNT + 1):
            peer.writer.write(get(id, "big"))
            if not id % 40:
                await settled(lambda: asked(node))
        done = await settled(lambda: asked(node))
        assert done <= limits.CONNECTION_BUFFER_BYTES // 100_000 + 1
        node.keys_held.set_result(None)
        node.keys_held = None
        for id in range(1, done + 1):
            await peer.must_hear(MessageKind.VALUE, id)
        await until(lambda: asked(node) > done)

    async def test_what_is_left_is_asked_for_in_order_and_by_whom_it_came_from(
        self, peer: Peer, node: FakeNode
    ) -> None:
        node.values["big"] = bytes(3 * MIB)
        both = [get(id, "big", "s" if id % 2 else "t") for id in range(1, 21)]
        auth = encode(MessageKind.AUTH, 100, {"user": OTHER, "password": PASSWORD})
        peer.writer.write(b"".join(both) + auth + get(101, "small"))
        heard = []
        for _ in range(22):
            message = await peer.hear()
            assert message is not None
            heard.append(message.id)
        assert [id for id in heard if id % 2 and id < 100] == list(range(1, 21, 2))
        assert [id for id in heard if not id % 2 and id < 100] == list(range(2, 21, 2))
        assert heard[-2:] == [100, 101]
        assert [user for user, _, _ in node.asked] == [USER] * (len(node.asked) - 1) + [OTHER]

    async def test_a_peer_that_goes_leaves_the_rest_undone(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        node.values["big"] = bytes(100_000)
        async with connected(surface) as peer:
            await peer.sign_in()
            peer.writer.write(self.READS)
            done = await settled(lambda: asked(node))
        await until(lambda: not surface.held)
        assert asked(node) == done and not surface.running


class TestRequests:
    """The frames of open requests count until they are answered."""

    async def test_no_more_is_read_than_two_long_ones(
        self, surface: WireSurface, peer: Peer, node: FakeNode
    ) -> None:
        for id in (1, 2, 3):
            peer.writer.write(run(id, "HOLD", 12 * MIB))
        peer.writer.write(encode(MessageKind.PING, 4))
        await until(lambda: len(node.held) == 2)
        connection = held(surface)
        assert await settled(lambda: connection.talk.unread) <= limits.KIB * 512
        assert len(node.held) == 2
        node.release(next(iter(node.held)))
        await peer.must_hear(MessageKind.ANSWER, 1)
        await until(lambda: len(node.held) == 3)
        await peer.must_hear(MessageKind.PONG, 4)
        node.release_all()

    async def test_many_small_ones_in_one_read(
        self, surface: WireSurface, peer: Peer, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "CONNECTION_REQUESTS_BYTES", 10_000)
        peer.writer.write(b"".join(run(id, "HOLD", 900) for id in range(1, 101)))
        await until(lambda: node.held)
        assert await settled(lambda: len(node.held)) <= 12
        for _ in range(100):
            await until(lambda: node.held)
            request = next(iter(node.held))
            node.release(request)
            assert await peer.hear() is not None
            del node.held[request]
        assert len(node.requests) == 100

    async def test_what_it_is_worth_in_memory_counts(self, surface: WireSurface) -> None:
        """A frame of short strings takes twenty times its bytes."""
        async with connected(surface) as peer:
            await peer.sign_in()
            strings = ["ab"] * 100_000
            peer.say(MessageKind.RUN, 1, {"script": "HOLD", "params": {"v": strings}})
            await until(lambda: surface._wire.requests.of(USER) > 4_000_000)
        await until(lambda: not surface._wire.requests.total)

    async def test_what_is_read_for_a_connection_that_is_gone_counts_for_nobody(
        self, surface: WireSurface
    ) -> None:
        async with connected(surface) as peer:
            await peer.sign_in()
            connection = held(surface)
            async with surface._wire.long_work.reading_of(USER):
                peer.say(MessageKind.RUN, 1, {"script": "HOLD", "params": {"v": ["ab"] * 100_000}})
                await until(lambda: connection._waits & DECODING)
                connection._transport.abort()
                await until(lambda: connection.gone)
            await until(lambda: not connection._waits & DECODING)
            assert not surface._wire.requests.total

    async def test_one_user_leaves_room_for_another(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        surface._wire.requests.most = 40 * MIB
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(surface)) for _ in range(3)]
            for peer, user in zip(peers, (USER, USER, OTHER), strict=True):
                await peer.sign_in(user)
            first, second, other = peers
            first.writer.write(run(1, "HOLD", 15 * MIB))
            await until(lambda: len(node.held) == 1)
            second.writer.write(run(1, "HOLD", 15 * MIB))
            assert_error(await second.must_hear(MessageKind.ERROR, 1), "Busy")
            assert (await second.run(2, "RETURN", params={"v": 5})).kind is MessageKind.ANSWER
            other.writer.write(run(1, "HOLD", 12 * MIB))
            await until(lambda: len(node.held) == 2)
            node.release_all()
            assert (await first.must_hear(MessageKind.ANSWER, 1))["seq"]
            second.writer.write(run(3, "RETURN", 15 * MIB))
            assert (await second.must_hear(MessageKind.ANSWER, 3))["seq"]

    async def test_one_refused_by_its_head_is_dropped_as_it_comes(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        surface._wire.requests.most = 4 * MIB
        frame = run(1, "RETURN", 15 * MIB)
        async with connected(surface) as peer:
            await peer.sign_in()
            peer.writer.write(frame[: 8 * MIB])
            assert_error(await peer.must_hear(MessageKind.ERROR, 1), "Busy")
            assert held(surface).talk.unread == 0
            peer.writer.write(frame[8 * MIB :] + encode(MessageKind.PING, 2))
            await peer.must_hear(MessageKind.PONG, 2)
            assert not node.requests

    async def test_nobody_leaves_room_for_those_who_sign_in(self, surface: WireSurface) -> None:
        surface._wire.requests.most = 100_000
        half = encode(MessageKind.HELLO, 0, {"magic": "x" * 15_000})[:10_000]
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(surface)) for _ in range(5)]
            for number, peer in enumerate(peers):
                peer.writer.write(half)
                if number < 4:
                    await until(lambda n=number: surface._wire.requests.total > n * 10_000)
            assert_error(await peers[4].must_hear(MessageKind.REFUSED), "Busy")
            peer = await stack.enter_async_context(connected(surface))
            await peer.sign_in()
            assert (
                await peer.run(1, "RETURN", params={"v": bytes(20_000)})
            ).kind is MessageKind.ANSWER

    async def test_what_is_held_passes_to_who_signs_in(
        self, surface: WireSurface, peer: Peer, node: FakeNode
    ) -> None:
        peer.writer.write(run(1, "HOLD", 100_000))
        await until(lambda: node.held)
        assert surface._wire.requests.of(USER) > 100_000
        peer.say(MessageKind.AUTH, 2, {"user": OTHER, "password": PASSWORD})
        await peer.must_hear(MessageKind.WELCOME, 2)
        assert not surface._wire.requests.of(USER)
        assert surface._wire.requests.of(OTHER) > 100_000
        node.release_all()
        await peer.must_hear(MessageKind.ANSWER, 1)
        await until(lambda: not surface._wire.requests.total)


class TestAnswers:
    """What is not taken counts; a large one that finds no room is told so."""

    async def test_of_one_connection(
        self, surface: WireSurface, peer: Peer, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "CONNECTION_ANSWERS_BYTES", 10 * MIB)
        for id in range(1, 31):
            peer.say(MessageKind.RUN, id, {"script": "BIG", "params": {"v": 2 * MIB}})
        await until(lambda: len(node.requests) == 30 and not surface.running)
        assert held(surface).outgoing.unsent <= 11 * MIB
        heard = [await peer.hear() for _ in range(30)]
        assert {message.id for message in heard if message} == set(range(1, 31))
        told = [m for m in heard if m is not None and m.kind is MessageKind.ERROR]
        assert len(told) > 10
        assert_error(told[0].body or {}, "AnswerTooLarge")
        assert (await peer.run(40, "BIG", params={"v": 2 * MIB})).kind is MessageKind.ANSWER

    async def test_one_user_leaves_room_for_another(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        surface._wire.answers.most = 20 * MIB
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(surface)) for _ in range(8)]
            for peer in peers:
                await peer.sign_in()
                peer.say(MessageKind.RUN, 1, {"script": "BIG", "params": {"v": 8 * MIB}})
            other = await stack.enter_async_context(connected(surface))
            await until(lambda: len(node.requests) == 8 and not surface.running)
            assert surface._wire.answers.of(USER) <= 10 * MIB
            await other.sign_in(OTHER)
            found = await other.run(1, "BIG", params={"v": 5 * MIB})
            assert found.kind is MessageKind.ANSWER
            heard = [await peer.hear() for peer in peers]
            assert {message.kind for message in heard if message} == {
                MessageKind.ANSWER,
                MessageKind.ERROR,
            }
            await until(lambda: not surface._wire.answers.total)

    async def test_who_takes_nothing_is_cut_off(
        self, surface: WireSurface, peer: Peer, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where it has less to take than makes the node stop reading."""
        monkeypatch.setattr(limits, "WRITE_SECONDS", 0.3)
        connection = held(surface)
        id = most = 0
        async with asyncio.timeout(20):
            while surface.held:
                answered = len(node.requests) == id and not surface.running
                if answered and not connection.outgoing.unsent:
                    id += 1  # all is on its way, which takes what is before the peer's eyes too
                    peer.say(MessageKind.RUN, id, {"script": "BIG", "params": {"v": MIB}})
                most = max(most, connection.outgoing.unsent)
                await asyncio.sleep(0.01)
        assert 0 < most < limits.CONNECTION_BUFFER_BYTES

    async def test_a_stranger_that_takes_none_is_cut_off(self, surface: WireSurface) -> None:
        surface._wire.answers.most = 64 * limits.KIB
        pings = b"".join(encode(MessageKind.PING, id) for id in range(1, 50_001))
        async with connected(surface) as peer:
            await peer.greet()
            small_buffers(surface, peer)
            for _ in range(4):
                peer.writer.write(pings)
            await until(lambda: not surface.held)
            peer.writer.transport.abort()
