"""The wire surface over real sockets, before a node that does what each test says."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from datetime import timedelta
from typing import Any

import msgpack
import pytest

from protocol import limits
from protocol.errors import CATALOGUE, NotWritable
from protocol.frames import MessageKind, encode
from protocol.requests import Result, RunScript, ScriptAnswer
from protocol.values import RecordId
from surfaces import listener
from surfaces.wire import WireSurface, connection, timeouts
from tests.certificates import Contexts
from tests.logbook import Logbook
from tests.surfaces.wire.peers import (
    OTHER,
    PASSWORD,
    STORE,
    USER,
    FakeNode,
    Peer,
    connected,
    serving,
    until,
)
from tests.tables import case


def assert_error(body: dict[str, Any], code: str) -> dict[str, Any]:
    error: dict[str, Any] = body["error"]
    assert set(error) >= {"code", "message", "status", "retry", "detail", "request"}
    assert (error["code"], error["status"]) == (code, CATALOGUE[code].status), error
    return error


class TestGreeting:
    async def test_welcome_says_who_is_there(self, surface: WireSurface) -> None:
        async with connected(surface) as peer:
            welcome = await peer.sign_in()
        assert welcome == {
            "major": 1,
            "minor": 5,
            "version": "0.1.0-test",
            "node": "node-1",
            "limits": {
                "frame": limits.FRAME_BYTES,
                "depth": limits.DEPTH,
                "elements": limits.ELEMENTS,
                "containers": limits.CONTAINERS,
                "running": limits.RUNNING,
            },
            "user": {"name": USER, "role": "owner", "space": None},
        }

    async def test_without_a_credential_nobody_is_signed_in(self, surface: WireSurface) -> None:
        async with connected(surface) as peer:
            assert (await peer.greet())["user"] is None
            answer = await peer.run(1, "RETURN")
            assert answer.kind is MessageKind.ERROR
            assert_error(answer.body or {}, "SignInRefused")
            peer.say(MessageKind.PING, 2)
            await peer.must_hear(MessageKind.PONG, 2)

    @pytest.mark.parametrize(
        "change, code",
        [
            ({"magic": "STORM"}, "BadRequest"),
            ({"magic": None}, "BadRequest"),
            ({"major": 2}, "VersionNotSupported"),
            ({"major": None}, "VersionNotSupported"),
            ({"minor": [11, 12]}, "VersionNotSupported"),
            ({"minor": [2, 1]}, "VersionNotSupported"),
            ({"minor": 3}, "BadRequest"),
            ({"minor": [0, "5"]}, "BadRequest"),
            ({"client": 5}, "BadRequest"),
            ({"client": "x" * 200}, "BadRequest"),
            ({"user": USER}, "BadRequest"),
            ({"password": PASSWORD}, "BadRequest"),
            ({"user": USER, "password": PASSWORD, "token": "t"}, "BadRequest"),
            ({"user": USER, "password": "wrong"}, "SignInRefused"),
            ({"token": "unknown"}, "SessionEnded"),
            ({"colour": "red"}, "BadRequest"),
        ],
    )
    async def test_refused(self, surface: WireSurface, change: dict[str, Any], code: str) -> None:
        hello = {"magic": "STORE", "major": 1, "minor": [0, 5], "client": "raw/1"}
        async with connected(surface) as peer:
            peer.say(MessageKind.HELLO, 4, {**hello, **change})
            assert_error(await peer.must_hear(MessageKind.REFUSED, 4), code)
            assert await peer.closed()
        await until(lambda: surface.held == 0)

    async def test_no_hello_within_the_deadline(
        self, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "GREETING_SECONDS", 0.05)
        async with serving(node) as surface, connected(surface) as peer, connected(surface) as half:
            half.writer.write(encode(MessageKind.HELLO, 0, {})[:-1])
            for one in (peer, half):
                assert_error(await one.must_hear(MessageKind.REFUSED), "BadRequest")
                assert await one.closed()

    async def test_the_deadline_is_for_the_greeting_only(
        self, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "GREETING_SECONDS", 0.5)
        async with (
            serving(node) as surface,
            connected(surface) as peer,
            connected(surface) as silent,
        ):
            await peer.sign_in()
            assert_error(await silent.must_hear(MessageKind.REFUSED), "BadRequest")
            assert (await peer.run(1, "RETURN")).kind is MessageKind.ANSWER

    async def test_another_protocol_is_told_and_closed(self, surface: WireSurface) -> None:
        async with connected(surface) as peer:
            peer.writer.write(b"GET / HTTP/1.1\r\nHost: store\r\n\r\n")
            assert_error(await peer.must_hear(MessageKind.REFUSED), "TooLarge")
            assert await peer.closed()

    async def test_requests_may_follow_hello_at_once(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        async with connected(surface) as peer:
            hello = {"magic": "STORE", "major": 1, "minor": [0, 0]}
            peer.writer.write(
                encode(MessageKind.HELLO, 0, {**hello, "user": USER, "password": PASSWORD})
                + encode(MessageKind.RUN, 1, {"script": "RETURN", "params": {"v": 1}})
            )
            await peer.must_hear(MessageKind.WELCOME)
            await peer.must_hear(MessageKind.ANSWER, 1)


class TestCounters:
    async def test_what_is_counted_of_each_request(self, surface: WireSurface) -> None:
        counters = surface.counters
        async with connected(surface) as peer:
            await peer.sign_in()
            for id in range(1, 4):
                peer.say(MessageKind.RUN, id, {"script": "RETURN"})
            for id in range(1, 4):
                await peer.must_hear(MessageKind.ANSWER, id)
            peer.say(MessageKind.RUN, 1, {"script": "REFUSE"})
            await peer.must_hear(MessageKind.ERROR, 1)
            peer.say(MessageKind.PING, 1)
            await peer.must_hear(MessageKind.PONG, 1)
            peer.say(MessageKind.RUN, 2, {"script": "HOLD"})
            peer.say(MessageKind.CANCEL, 2)
            await peer.must_hear(MessageKind.ERROR, 2)
            peer.say(MessageKind.WATCH, 3, {"ns": "a", "db": "b", "table": "c"})
            await peer.must_hear(MessageKind.ERROR, 3)
            assert (counters.connections, surface.held) == (1, 1)
        counted = {kind: count for kind, count in counters.requests.items() if count}
        assert counted == {"HELLO": 1, "RUN": 5, "PING": 1, "WATCH": 1}
        timed = {kind: sum(buckets) for kind, buckets in counters.seconds.items() if any(buckets)}
        assert timed == {"HELLO": 1, "RUN": 5, "PING": 1}
        assert "WATCH" not in counters.seconds
        told = {code: count for code, count in counters.refusals.items() if count}
        assert told == {"SignInRefused": 1, "Cancelled": 1, "Unknown": 1}
        assert counters.received > 100 and counters.sent > 100


class TestRun:
    async def test_answer(self, peer: Peer, node: FakeNode) -> None:
        found = await peer.run(
            1,
            "RETURN $v",
            params={"v": 5},
            ns="shop",
            db="main",
            timeout=timedelta(seconds=2),
            stream=False,
            reason="because",
        )
        assert found.kind is MessageKind.ANSWER
        assert found.body == {
            "results": [
                {"value": 5, "kind": "value", "rows": 0, "took": timedelta(microseconds=1500)}
            ],
            "seq": 8123,
            "store": STORE,
            "epoch": 1,
        }
        request = node.requests[0]
        assert (request.namespace, request.database) == ("shop", "main")
        assert (request.timeout_us, request.reason) == (2_000_000, "because")
        assert request.caller.user == USER
        assert request.caller.surface == "wire"

    @pytest.mark.parametrize(
        "body",
        [
            None, {}, {"script": 5}, {"script": "RETURN", "params": []},
            {"script": "RETURN", "ns": 1}, {"script": "RETURN", "timeout": 5},
            {"script": "RETURN", "timeout": timedelta(0)}, {"script": "RETURN", "stream": "yes"},
            {"script": "RETURN", "reason": "x" * 501}, {"script": "RETURN", "paramz": {}},
        ],
    )  # fmt: skip
    async def test_a_wrong_body_is_refused_and_the_connection_goes_on(
        self, peer: Peer, body: dict[str, Any] | None
    ) -> None:
        peer.say(MessageKind.RUN, 1, body)
        assert_error(await peer.must_hear(MessageKind.ERROR, 1), "BadRequest")
        assert (await peer.run(2, "RETURN")).kind is MessageKind.ANSWER

    @pytest.mark.parametrize(
        "value, code", [(float("nan"), "TypeRefused"), (2**63, "NumberTooLarge")]
    )
    async def test_a_parameter_that_is_no_value(self, peer: Peer, value: object, code: str) -> None:
        payload = msgpack.packb([3, 1, {"script": "RETURN", "params": {"v": value}}])
        peer.writer.write(len(payload).to_bytes(4, "big") + payload)
        assert_error(await peer.must_hear(MessageKind.ERROR, 1), code)
        assert (await peer.run(2, "RETURN")).kind is MessageKind.ANSWER

    async def test_a_refusal_carries_what_ran_before_it(self, peer: Peer) -> None:
        found = await peer.run(1, "REFUSE")
        assert found.kind is MessageKind.ERROR
        assert found.body is not None
        error = assert_error(found.body, "SignInRefused")
        assert error["statement"] == 2
        assert [result["value"] for result in found.body["results"]] == [1]

    async def test_how_many_records_were_written_is_told_from_minor_10_on(
        self, surface: WireSurface
    ) -> None:
        for minor in (9, 10):
            async with connected(surface) as peer:
                await peer.greet(user=USER, password=PASSWORD, minor=[0, minor])
                found = await peer.run(1, "REFUSE")
                assert found.body is not None
                assert found.body["results"][0].get("changed") == (3 if minor == 10 else None)

    async def test_a_bug_is_failed_with_its_trace_in_the_log(
        self, peer: Peer, logbook: Logbook
    ) -> None:
        logbook.allow("a request failed")
        found = await peer.run(1, "BREAK")
        error = assert_error(found.body or {}, "Failed")
        assert "bug of the node" not in str(found)
        assert any(event.get("request") == error["request"] for event in logbook.events)
        assert (await peer.run(2, "RETURN")).kind is MessageKind.ANSWER

    async def test_a_value_that_cannot_be_sent_is_failed(
        self, peer: Peer, node: FakeNode, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logbook.allow("a request failed")

        async def run(request: RunScript) -> ScriptAnswer:
            nothing: Any = object()
            return ScriptAnswer((Result(nothing, "value", 0, 1),), 1, STORE, 1, None, None)

        monkeypatch.setattr(node, "_run", run)
        assert_error((await peer.run(1, "RETURN")).body or {}, "Failed")

    async def test_many_in_flight_are_answered_in_any_order(
        self, peer: Peer, node: FakeNode
    ) -> None:
        for id in range(1, 101):
            peer.say(MessageKind.RUN, id, {"script": "HOLD"})
        await until(lambda: len(node.held) == 100)
        for request in reversed(list(node.held)):
            node.release(request)
        heard = [await peer.hear() for _ in range(100)]
        assert {message.id for message in heard if message} == set(range(1, 101))
        assert [message.id for message in heard if message] != list(range(1, 101))

    async def test_a_batch_leaves_in_one_write_and_asks_once_who_the_peer_is(
        self, peer: Peer, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed = []
        flush = connection.WireConnection.flush

        def counting(self: connection.WireConnection) -> None:
            flushed.append(len(self.outgoing.waiting))
            flush(self)

        monkeypatch.setattr(connection.WireConnection, "flush", counting)
        batch = b"".join(encode(MessageKind.RUN, id, {"script": "RETURN"}) for id in range(1, 51))
        peer.writer.write(batch)
        for _ in range(50):
            assert await peer.hear() is not None
        assert sum(flushed) == 50
        assert len(flushed) < 10
        assert node.questions < 10

    async def test_an_ended_session_refuses_the_next_script(
        self, peer: Peer, node: FakeNode
    ) -> None:
        node.sessions.clear()
        assert_error((await peer.run(1, "RETURN")).body or {}, "SessionEnded")

    async def test_an_answer_too_large_names_its_size_and_the_connection_goes_on(
        self, peer: Peer
    ) -> None:
        found = await peer.run(1, "BIG", params={"v": limits.FRAME_BYTES})
        error = assert_error(found.body or {}, "AnswerTooLarge")
        assert error["detail"]["bytes"] > limits.FRAME_BYTES
        assert str(error["detail"]["bytes"]) in error["message"]
        assert (await peer.run(2, "RETURN")).kind is MessageKind.ANSWER


class TestCancel:
    async def test_in_the_same_breath(self, peer: Peer, node: FakeNode) -> None:
        peer.writer.write(
            encode(MessageKind.RUN, 1, {"script": "HOLD"}) + encode(MessageKind.CANCEL, 1)
        )
        assert_error(await peer.must_hear(MessageKind.ERROR, 1), "Cancelled")
        assert not node.requests

    @pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
    async def test_scripts_of_a_client_that_is_gone(
        self, surface: WireSurface, node: FakeNode, reset: bool
    ) -> None:
        async with connected(surface) as peer:
            await peer.sign_in()
            for id in range(1, 4):
                peer.say(MessageKind.RUN, id, {"script": "HOLD"})
            await until(lambda: len(node.held) == 3)
            if reset:
                peer.writer.transport.abort()
        await until(lambda: surface.running == 0)
        assert sorted(node.cancelled) == sorted(node.held)


class TestCurrent:
    """From minor 8 on; how it is found out is tried with scripts."""

    async def test_it_comes_with_the_request(self, surface: WireSurface, node: FakeNode) -> None:
        async with connected(surface) as peer:
            await peer.greet(user=USER, password=PASSWORD, minor=[0, 8])
            for id, current in enumerate((None, False, True), 1):
                assert (await peer.run(id, "RETURN", current=current)).kind is MessageKind.ANSWER
            assert [one.current for one in node.requests] == [False, False, True]
            for id, wrong in enumerate((1, "true", [], {}), 9):
                heard = await peer.run(id, "RETURN", current=wrong)
                assert_error(heard.body or {}, "BadRequest")

    async def test_a_client_of_before(self, peer: Peer, node: FakeNode) -> None:
        assert_error((await peer.run(1, "RETURN", current=True)).body or {}, "BadRequest")
        assert not node.requests


class TestAfter:
    """From minor 7 on; how it is waited for is tried with scripts."""

    async def test_it_comes_with_the_request(self, surface: WireSurface, node: FakeNode) -> None:
        async with connected(surface) as peer:
            welcome = await peer.greet(user=USER, password=PASSWORD, minor=[0, 7])
            assert (welcome["minor"], welcome["writable"], welcome["leader"]) == (7, True, [])
            for id, after in enumerate((None, 0, 8123, limits.SEQUENCE_MAX), 1):
                assert (await peer.run(id, "RETURN", after=after)).kind is MessageKind.ANSWER
            assert [one.after for one in node.requests] == [None, 0, 8123, limits.SEQUENCE_MAX]

    async def test_what_is_no_sequence(self, surface: WireSurface, node: FakeNode) -> None:
        for after in [-1, 2**53, -(2**63), 2**63 - 1, True, 1.0, "1", [1], {}]:
            with case(after):
                node.requests.clear()
                async with connected(surface) as peer:
                    await peer.greet(user=USER, password=PASSWORD, minor=[0, 7])
                    heard = await peer.run(1, "RETURN", after=after)
                    assert_error(heard.body or {}, "BadRequest")
                    assert not node.requests
                    assert (await peer.run(2, "RETURN")).kind is MessageKind.ANSWER

    async def test_a_client_of_before(self, peer: Peer, node: FakeNode) -> None:
        assert_error((await peer.run(1, "RETURN", after=1)).body or {}, "BadRequest")
        assert not node.requests

    async def test_a_node_says_at_once_who_takes_changes(
        self, surface: WireSurface, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = NotWritable("planted", leader=["n2.example:8001", "192.0.2.7:8001"])
        monkeypatch.setattr(node, "not_writable", lambda: told)
        async with connected(surface) as peer:
            welcome = await peer.greet(minor=[0, 7])
            assert welcome["writable"] is False
            assert welcome["leader"] == ["n2.example:8001", "192.0.2.7:8001"]
        async with connected(surface) as peer:
            assert not {"writable", "leader"} & (await peer.greet()).keys()


class TestSession:
    async def test_a_password_opens_a_session_that_ends_with_the_connection(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        async with connected(surface) as peer:
            await peer.sign_in()
            assert len(node.sessions) == 1
        await until(lambda: not node.sessions)

    async def test_a_token_is_left_alone(self, surface: WireSurface, node: FakeNode) -> None:
        session = await node.sign_in(USER, PASSWORD, "elsewhere")
        async with connected(surface) as peer:
            assert (await peer.greet(token=session.token))["user"]["name"] == USER
        await until(lambda: surface.held == 0)
        assert session.token in node.sessions

    async def test_auth_changes_who_what_follows_is_run_by(
        self, surface: WireSurface, node: FakeNode
    ) -> None:
        async with connected(surface) as peer:
            await peer.greet()
            peer.say(MessageKind.AUTH, 1, {"user": USER, "password": PASSWORD})
            peer.say(MessageKind.RUN, 2, {"script": "RETURN"})
            assert (await peer.must_hear(MessageKind.WELCOME, 1))["user"]["name"] == USER
            await peer.must_hear(MessageKind.ANSWER, 2)
            peer.say(MessageKind.AUTH, 3)
            assert (await peer.must_hear(MessageKind.WELCOME, 3))["user"] is None
            await until(lambda: len(node.ended) == 1)
            assert_error((await peer.run(4, "RETURN")).body or {}, "SignInRefused")

    async def test_what_came_before_auth_is_run_by_whom_it_was_then(
        self, peer: Peer, node: FakeNode
    ) -> None:
        peer.writer.write(
            encode(MessageKind.RUN, 1, {"script": "RETURN"})
            + encode(MessageKind.AUTH, 2)
            + encode(MessageKind.RUN, 3, {"script": "RETURN"})
        )
        heard = {
            message.id: message for message in [await peer.hear() for _ in range(3)] if message
        }
        assert heard[1].kind is MessageKind.ANSWER
        assert heard[2].kind is MessageKind.WELCOME
        assert_error(heard[3].body or {}, "SignInRefused")

    async def test_a_refused_auth_keeps_who_was_there(self, peer: Peer) -> None:
        peer.say(MessageKind.AUTH, 1, {"user": USER, "password": "wrong"})
        peer.say(MessageKind.RUN, 2, {"script": "RETURN"})
        assert_error(await peer.must_hear(MessageKind.ERROR, 1), "SignInRefused")
        await peer.must_hear(MessageKind.ANSWER, 2)


HALF = b"\xed\xa0\x80"
"""Half of a surrogate pair, as UTF-8 would have it."""


class TestHalves:
    """msgpack's strings are UTF-8, so half of a surrogate pair comes no further than the frame."""

    @pytest.mark.parametrize(
        "kind, body",
        [
            (MessageKind.RUN, {"script": "RETURN '~~~'"}),
            (MessageKind.RUN, {"script": "RETURN", "params": {"~~~": 1}}),
            (MessageKind.RUN, {"script": "RETURN", "params": {"v": ["~~~"]}}),
            (MessageKind.RUN, {"script": "RETURN", "params": {"v": RecordId("t", "~~~")}}),
            (MessageKind.RUN, {"script": "RETURN", "params": {"v": RecordId("~~~", 1)}}),
            (MessageKind.RUN, {"script": "RETURN", "ns": "~~~"}),
            (MessageKind.RUN, {"script": "RETURN", "db": "~~~"}),
            (MessageKind.RUN, {"script": "RETURN", "reason": "~~~"}),
            (MessageKind.RUN, {"script": "RETURN", "moment": "~~~"}),
            (MessageKind.RUN, {"script": "RETURN", "record": "~~~"}),
            (MessageKind.RUN, {"script": "RETURN", "~~~": "~~~"}),
            (MessageKind.KV, {"op": "get", "ns": "a", "db": "b", "space": "c", "key": "~~~"}),
            (MessageKind.KV, {"op": "~~~", "ns": "a", "db": "b", "space": "c", "key": "k"}),
            (MessageKind.KV, {"op": "unlock", "ns": "a", "db": "b", "space": "c", "key": "k",
                       "holder": "~~~"}),
        ],
    )  # fmt: skip
    async def test_one_is_refused_by_its_id(
        self, peer: Peer, node: FakeNode, kind: MessageKind, body: dict[str, Any]
    ) -> None:
        frame = encode(kind, 7, body)
        assert b"~~~" in frame
        peer.writer.write(frame.replace(b"~~~", HALF))
        heard = await peer.hear()
        assert heard is not None and (heard.kind, heard.id) == (MessageKind.ERROR, 7)
        assert_error(heard.body or {}, "BadRequest")
        assert (await peer.run(8, "RETURN")).kind is MessageKind.ANSWER
        assert len(node.requests) == 1 and not node.asked


class TestBroken:
    @pytest.mark.parametrize(
        "data, code",
        [
            ((limits.FRAME_BYTES + 1).to_bytes(4, "big") + b"x" * 100_000, "TooLarge"),
            (b"\x00\x00\x00\x00", "BadRequest"),
            (b"\x00\x00\x00\x01\xc1", "BadRequest"),
            (encode(MessageKind.WELCOME, 1, {}), "BadRequest"),
            (encode(MessageKind.HELLO, 1, {}), "BadRequest"),
            (encode(MessageKind.RUN, 0, {}), "BadRequest"),
            (encode(MessageKind.RUN, 1, {"script": "HOLD"}) * 2, "BadRequest"),
        ],
    )
    async def test_is_told_and_closed(
        self, peer: Peer, surface: WireSurface, node: FakeNode, data: bytes, code: str
    ) -> None:
        peer.writer.write(data + encode(MessageKind.PING, 9))
        assert_error(await peer.must_hear(MessageKind.ERROR), code)
        assert await peer.closed()
        await peer.close()
        await until(lambda: surface.held == 0 and surface.running == 0)

    async def test_the_last_word_is_read_by_a_peer_that_is_still_sending(
        self, peer: Peer, surface: WireSurface
    ) -> None:
        """Closing at once would reset the connection under a peer that sends 32 MiB."""
        peer.writer.write((2 * limits.FRAME_BYTES).to_bytes(4, "big") + bytes(limits.FRAME_BYTES))
        peer.writer.write(bytes(limits.FRAME_BYTES))
        await peer.writer.drain()
        assert_error(await peer.must_hear(MessageKind.ERROR), "TooLarge")

    async def test_a_peer_that_never_closes_is_cut_off(
        self, peer: Peer, surface: WireSurface, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timeouts, "LINGER_SECONDS", 0.05)
        peer.writer.write(b"\x00\x00\x00\x00")
        await until(lambda: surface.held == 0)


class TestCeilings:
    async def test_busy_at_as_many_scripts_as_may_run(
        self, peer: Peer, surface: WireSurface, node: FakeNode
    ) -> None:
        async with connected(surface) as other:
            await other.sign_in()
            for id in range(1, limits.RUNNING + 1):
                peer.say(MessageKind.RUN, id, {"script": "HOLD"})
            await until(lambda: len(node.held) == limits.RUNNING)
            found = await other.run(1, "RETURN")
            error = assert_error(found.body or {}, "Busy")
            assert error["message"].startswith("too many running statements: ")
            assert "(400)" in error["message"]
            assert error["retry"] is True
            node.release(next(iter(node.held)))
            await peer.hear()
            assert (await other.run(2, "RETURN")).kind is MessageKind.ANSWER
            node.release_all()

    async def test_who_runs_little_is_let_in_where_another_has_taken_all(
        self, peer: Peer, surface: WireSurface, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "RUNNING_OF_OTHERS", 5)
        surface._wire.admission.most = 20
        async with connected(surface) as other:
            await other.sign_in(OTHER)
            for id in range(1, 22):
                peer.say(MessageKind.RUN, id, {"script": "HOLD"})
            assert_error(await peer.must_hear(MessageKind.ERROR, 21), "Busy")
            for id in range(1, 6):
                other.say(MessageKind.RUN, id, {"script": "HOLD"})
            assert_error(await other.must_hear(MessageKind.ERROR, 5), "Busy")
            assert surface.running == 24, "and a place for somebody who runs nothing"
            assert (await peer.run(22, "RETURN")).kind is MessageKind.ERROR
            node.release_all()
            for id in range(1, 5):
                await other.must_hear(MessageKind.ANSWER, id)
            await until(lambda: not surface.running)
            assert surface._wire.admission._begun_of == {}

    async def test_full_is_told_and_closed_and_ends_with_room(
        self, node: FakeNode, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
    ) -> None:
        logbook.allow("wire surface is full")
        monkeypatch.setattr(limits, "CONNECTIONS", 3)
        async with serving(node) as surface, connected(surface) as one, connected(surface) as two:
            async with connected(surface) as three:
                for peer in (one, two, three):
                    await peer.sign_in()
                assert surface.full
                for _ in range(5):
                    async with connected(surface) as fourth:
                        fourth.say(MessageKind.HELLO, 0, {"magic": "STORE"})
                        assert_error(await fourth.must_hear(MessageKind.REFUSED), "Full")
                        assert await fourth.closed()
                assert surface.held == 3
            await until(lambda: surface.held == 2)
            async with connected(surface) as third:
                await third.sign_in()

    async def test_out_of_descriptors_is_told_and_ends_with_room(
        self, surface: WireSurface, peer: Peer, monkeypatch: pytest.MonkeyPatch, logbook: Logbook
    ) -> None:
        """The accept call fails as it does at the limit, as long as the spare is held."""
        logbook.allow("out of file descriptors")
        monkeypatch.setattr(listener, "REST_SECONDS", 0.01)
        taking = surface._listener
        assert taking is not None
        accept = socket.socket.accept
        out = True

        def exhausted(listening: socket.socket) -> Any:
            if out and taking._reserve is not None:
                raise OSError(errno.EMFILE, "Too many open files")
            return accept(listening)

        monkeypatch.setattr(socket.socket, "accept", exhausted)
        for _ in range(3):
            async with connected(surface) as refused:
                assert_error(await refused.must_hear(MessageKind.REFUSED), "Full")
                assert await refused.closed()
        assert (await peer.run(1, "RETURN")).kind is MessageKind.ANSWER
        out = False
        async with connected(surface) as welcome:
            await welcome.sign_in()


class TestSlowPeers:
    async def test_a_peer_that_takes_nothing_is_read_no_more_and_then_cut_off(
        self, node: FakeNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "WRITE_SECONDS", 0.3)
        async with serving(node) as surface:
            host, port = surface.address
            loop = asyncio.get_running_loop()
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.setblocking(False)
                await loop.sock_connect(slow, (host, port))
                hello = {"magic": "STORE", "major": 1, "minor": [0, 0]}
                await loop.sock_sendall(
                    slow,
                    encode(MessageKind.HELLO, 0, {**hello, "user": USER, "password": PASSWORD}),
                )
                sent = 0

                async def ask_for_ever() -> None:
                    nonlocal sent
                    while True:
                        body = {"script": "BIG", "params": {"v": 1_000_000, "pad": bytes(100_000)}}
                        await loop.sock_sendall(slow, encode(MessageKind.RUN, sent + 1, body))
                        sent += 1

                with pytest.raises(OSError):
                    await ask_for_ever()
                assert len(node.requests) <= sent
                assert len(node.requests) < 100
                await until(lambda: surface.held == 0)


class TestEnding:
    async def test_bye_is_followed_by_what_is_open(self, peer: Peer, node: FakeNode) -> None:
        peer.say(MessageKind.RUN, 1, {"script": "HOLD"})
        peer.say(MessageKind.BYE)
        await until(lambda: node.held)
        node.release_all()
        await peer.must_hear(MessageKind.ANSWER, 1)
        assert await peer.closed()
        assert not node.cancelled

    async def test_stop_accepting_leaves_what_is_there(
        self, peer: Peer, surface: WireSurface
    ) -> None:
        host, port = surface.address
        surface.stop_accepting()
        with pytest.raises(OSError):
            await asyncio.open_connection(host, port)
        assert (await peer.run(1, "RETURN")).kind is MessageKind.ANSWER

    async def test_drain_lets_what_runs_finish_and_begins_nothing(
        self, peer: Peer, surface: WireSurface, node: FakeNode
    ) -> None:
        async with connected(surface) as idle, connected(surface) as stranger:
            await idle.sign_in()
            peer.say(MessageKind.RUN, 1, {"script": "HOLD"})
            await until(lambda: node.held and surface.held == 3)
            draining = asyncio.create_task(surface.drain())
            await idle.must_hear(MessageKind.BYE)
            idle.say(MessageKind.BYE)
            assert await idle.closed()
            assert_error(await stranger.must_hear(MessageKind.REFUSED), "Draining")
            await peer.must_hear(MessageKind.BYE)
            assert_error((await peer.run(2, "RETURN")).body or {}, "Draining")
            assert not draining.done()
            peer.say(MessageKind.BYE)
            node.release_all()
            await peer.must_hear(MessageKind.ANSWER, 1)
            assert await peer.closed()
            await idle.close()
            await stranger.close()
            await peer.close()
            async with asyncio.timeout(20):
                await draining
        assert surface.held == 0
        assert not node.cancelled

    async def test_requests_that_cross_the_goodbye_are_refused_one_by_one(
        self, peer: Peer, surface: WireSurface, node: FakeNode
    ) -> None:
        """None is lost in silence: its sender could not know whether it had been begun."""
        batch = b"".join(encode(MessageKind.RUN, id, {"script": "RETURN"}) for id in range(1, 21))
        draining = asyncio.create_task(surface.drain())
        await asyncio.sleep(0)
        peer.writer.write(batch + encode(MessageKind.BYE, 0))
        await peer.must_hear(MessageKind.BYE)
        for id in range(1, 21):
            assert_error(await peer.must_hear(MessageKind.ERROR, id), "Draining")
        assert await peer.closed()
        await peer.close()
        await draining
        assert not node.requests

    async def test_a_peer_that_never_says_goodbye_has_its_time(
        self, peer: Peer, surface: WireSurface, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "GOODBYE_SECONDS", 0.05)
        draining = asyncio.create_task(surface.drain())
        await peer.must_hear(MessageKind.BYE)
        assert await peer.closed()
        await peer.close()
        await draining

    async def test_close_ends_everything_now(self, node: FakeNode) -> None:
        async with serving(node) as surface, connected(surface) as peer:
            await peer.sign_in()
            peer.say(MessageKind.RUN, 1, {"script": "HOLD"})
            await until(lambda: node.held)
            await surface.close()
            with contextlib.suppress(ConnectionError):  # a reset is as well
                assert await peer.closed()
            assert surface.running == 0
            await surface.close()


class TestTls:
    async def test_the_same_conversation(self, node: FakeNode, contexts: Contexts) -> None:
        async with serving(node, contexts[0]) as surface:
            async with connected(surface, contexts[1]) as peer:
                await peer.sign_in()
                found = await peer.run(1, "BIG", params={"v": 3_000_000})
                assert found.kind is MessageKind.ANSWER
                peer.say(MessageKind.BYE)
                assert await peer.closed()
            await until(lambda: surface.held == 0)

    async def test_plain_bytes_are_no_handshake(self, node: FakeNode, contexts: Contexts) -> None:
        async with serving(node, contexts[0]) as surface:
            host, port = surface.address
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(encode(MessageKind.HELLO, 0, {"magic": "STORE"}))
            while await reader.read(4096):
                pass
            writer.close()
            await writer.wait_closed()
            await until(lambda: surface.held == 0)

    async def test_a_handshake_that_never_comes_is_cut_off_and_counts_meanwhile(
        self,
        node: FakeNode,
        contexts: Contexts,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(limits, "TLS_SECONDS", 0.2)
        async with serving(node, contexts[0]) as surface:
            host, port = surface.address
            reader, writer = await asyncio.open_connection(host, port)
            await until(lambda: surface.held == 1)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            await until(lambda: surface.held == 0)

    async def test_full_is_told_over_tls(
        self,
        node: FakeNode,
        contexts: Contexts,
        monkeypatch: pytest.MonkeyPatch,
        logbook: Logbook,
    ) -> None:
        logbook.allow("wire surface is full")
        monkeypatch.setattr(limits, "CONNECTIONS", 1)
        async with serving(node, contexts[0]) as surface, connected(surface, contexts[1]) as peer:
            await peer.sign_in()
            async with connected(surface, contexts[1]) as second:
                assert_error(await second.must_hear(MessageKind.REFUSED), "Full")
