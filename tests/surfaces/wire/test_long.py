"""Long frames: decoded and encoded in turns with everybody else's work."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from actors.execution.scheduler import SURFACE
from protocol import limits
from protocol.frames import FrameReader, MessageKind, encode
from surfaces.wire import WireSurface, scripts
from tests.logbook import Logbook
from tests.surfaces.wire.peers import OTHER, USER, FakeNode, Peer, connected, until
from tests.surfaces.wire.test_surface import assert_error

ROWS = [{"n": n, "name": f"row {n}", "tags": ["a"]} for n in range(15_000)]


def long_work(surface: WireSurface) -> Any:
    """How the surface's long work stands: its queue."""
    return surface._wire.long_work._scheduler.waiting_of(SURFACE, USER)


async def test_a_long_question_and_its_long_answer_come_through_whole(peer: Peer) -> None:
    answer = await peer.run(1, "RETURN", params={"v": ROWS})
    assert answer.kind is MessageKind.ANSWER and answer.body is not None
    assert answer.body["results"][0]["value"] == ROWS
    assert (await peer.run(2, "RETURN", params={"v": 5})).kind is MessageKind.ANSWER


async def test_others_are_answered_while_a_long_frame_is_decoded_and_encoded(
    surface: WireSurface, peer: Peer
) -> None:
    frame = encode(MessageKind.RUN, 1, {"script": "RETURN", "params": {"v": ROWS}})
    async with connected(surface) as other:
        await other.sign_in()
        peer.writer.write(frame)
        answered = asyncio.create_task(peer.hear())
        between, id = 0, 0
        while not answered.done():
            id += 1
            await other.run(id, "RETURN", params={"v": 1})
            between += bool(long_work(surface))
    assert answered.result() is not None
    assert between > 2, "no answer came while the long one was under way"


async def test_of_one_user_one_long_frame_is_decoded_at_a_time(
    surface: WireSurface, under_way: list[int]
) -> None:
    """How much it takes counts only once it is decoded."""
    frame = encode(MessageKind.RUN, 1, {"script": "RETURN", "params": {"v": 1, "w": ROWS}})
    for users, most in (([USER] * 4, 1), ([USER, OTHER] * 2, 2)):
        under_way.clear()
        async with AsyncExitStack() as stack:
            peers = []
            for user in users:
                peer = await stack.enter_async_context(connected(surface))
                await peer.sign_in(user)
                peer.writer.write(frame)
                peers.append(peer)
            for peer in peers:
                answer = await peer.hear()
                assert answer is not None and answer.kind is MessageKind.ANSWER
        assert len(under_way) == 4 and max(under_way) == most


async def test_what_comes_behind_a_long_frame_waits_for_it(peer: Peer, node: FakeNode) -> None:
    bad = encode(MessageKind.RUN, 1, {"script": "HOLD", "params": {"v": ROWS}})
    peer.writer.write(bad + encode(MessageKind.PING, 2) + encode(MessageKind.CANCEL, 1))
    assert (await peer.must_hear(MessageKind.PONG, 2)) == {}
    assert_error(await peer.must_hear(MessageKind.ERROR, 1), "Cancelled")
    assert [request.script for request in node.requests] in ([], ["HOLD"])


async def test_a_long_frame_that_breaks_the_protocol_ends_the_connection(peer: Peer) -> None:
    peer.say(MessageKind.WELCOME, 1, {"v": ROWS})
    assert_error(await peer.must_hear(MessageKind.ERROR), "BadRequest")
    assert await peer.closed()


async def test_a_value_that_is_none_in_a_long_frame_is_refused_by_its_id(peer: Peer) -> None:
    found = await peer.run(1, "RETURN", params={"v": ROWS, "w": float("nan")})
    assert found.id == 1
    assert_error(found.body or {}, "TypeRefused")
    assert (await peer.run(2, "RETURN", params={"v": 5})).kind is MessageKind.ANSWER


async def test_a_peer_that_goes_while_its_frame_is_decoded_leaves_nothing(
    surface: WireSurface, node: FakeNode
) -> None:
    async with connected(surface) as peer:
        await peer.sign_in()
        peer.say(MessageKind.RUN, 1, {"script": "RETURN", "params": {"v": ROWS}})
        await until(lambda: long_work(surface))
    await until(lambda: not surface.held and not surface.running and not long_work(surface))
    assert node.requests == [] or node.cancelled == []


async def test_a_surface_that_closes_while_it_encodes_ends(
    surface: WireSurface, peer: Peer, node: FakeNode
) -> None:
    peer.say(MessageKind.RUN, 1, {"script": "RETURN", "params": {"v": ROWS}})
    await until(lambda: node.requests and long_work(surface))
    await surface.close()
    assert not surface.running and not surface.held


async def test_an_answer_too_large_is_found_early(peer: Peer, node: FakeNode) -> None:
    found = await peer.run(1, "BIG", params={"v": limits.FRAME_BYTES - 100_000})
    assert found.kind is MessageKind.ANSWER
    found = await peer.run(2, "BIG", params={"v": limits.FRAME_BYTES + 1})
    assert_error(found.body or {}, "AnswerTooLarge")


def test_a_reader_takes_more_bytes_while_it_decodes() -> None:
    reader, message = (
        FrameReader(),
        encode(MessageKind.RUN, 1, {"script": "x", "params": {"v": ROWS}}),
    )
    half = encode(MessageKind.PING, 2)
    reader.feed(message[:1000])
    assert reader.ahead == 0
    reader.feed(message[1000:] + half[:3])
    assert reader.ahead == len(message) - 4
    rest = iter([half[3:]])

    def tick() -> None:
        for part in rest:
            reader.feed(part)

    first = reader.next(tick)
    second = reader.next()
    assert first is not None and first.body is not None and first.body["params"]["v"] == ROWS
    assert second is not None and second.kind is MessageKind.PING


async def test_what_fails_behind_a_long_answer_leaves_the_next_request_alone(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
) -> None:
    logbook.allow("work for a connection failed")

    def planted(*_args: object) -> None:
        raise RecursionError("planted")

    monkeypatch.setattr(scripts, "let_go", planted)
    assert (await peer.run(1, "RETURN", params={"v": ROWS})).kind is MessageKind.ANSWER
    assert (await peer.run(2, "RETURN", params={"v": 5})).kind is MessageKind.ANSWER
    await until(lambda: any("RecursionError" in line for line in logbook.loud))


async def test_five_hundred_vectors_are_answered_and_let_go(peer: Peer) -> None:
    rows = [[0.5] * 1536] * 500
    assert (await peer.run(1, "RETURN", params={"v": rows})).kind is MessageKind.ANSWER
    assert (await peer.run(2, "RETURN", params={"v": 5})).kind is MessageKind.ANSWER
