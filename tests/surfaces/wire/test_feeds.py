"""Feeds over the wire, before a real node: what is told, how it ends, and at whose pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgpack
import pytest

from protocol import limits
from protocol.errors import CATALOGUE
from protocol.frames import MessageKind, WireMessage
from protocol.values import RecordId
from surfaces.wire import NodeGate
from tests.nodes import PASSWORD
from tests.surfaces.wire.halls import PLACE, Hall, hall_of
from tests.surfaces.wire.peers import Peer, until
from tests.tables import case

PAD = "x" * 60_000


class FeedHall(Hall):
    async def seq(self, script: str, **parameters: Any) -> int:
        """The last commit of a script that must succeed."""
        answer = await self.here.answer(script, {"pad": PAD, **parameters})
        if answer.refusal is not None:
            raise answer.refusal
        return answer.sequence

    @property
    def feeds(self) -> int:
        return len(self.here.node.open_feeds)


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[FeedHall]:
    async with hall_of(FeedHall, tmp_path / "store", "DEFINE TABLE t; DEFINE TABLE u") as hall:
        yield hall
        await hall._stack.aclose()
        await until(lambda: hall.feeds == 0)


def watch(peer: Peer, id: int = 1, **more: Any) -> None:
    peer.say(MessageKind.WATCH, id, {**PLACE, "table": "t", **more})


async def told(peer: Peer, id: int = 1) -> dict[str, Any]:
    """What the next CHANGE says but a beat, of this feed or of another: the second feed of a node
    has one after a second."""
    async with asyncio.timeout(60):
        while (message := await peer.hear()) is not None and is_beat(message):
            pass
    assert message is not None, "closed instead of a CHANGE"
    assert (message.kind, message.id) == (MessageKind.CHANGE, id), message
    return message.body or {}


def is_beat(message: WireMessage) -> bool:
    return message.kind is MessageKind.CHANGE and (message.body or {})["type"] == "beat"


async def opened(peer: Peer, id: int = 1, **more: Any) -> dict[str, Any]:
    watch(peer, id, **more)
    return await told(peer, id)


async def caught_up(peer: Peer, id: int = 1) -> list[dict[str, Any]]:
    """What is told until the feed has caught up; what says so is the last of it."""
    async with asyncio.timeout(60):
        found = [await told(peer, id)]
        while found[-1]["type"] != "caught_up":
            found.append(await told(peer, id))
    return found


async def end_of(peer: Peer) -> WireMessage | None:
    """The next message that is no CHANGE: an open feed is never silent for long, so that each of
    them in time proves nothing."""
    async with asyncio.timeout(20):
        while (message := await peer.hear()) is not None and message.kind is MessageKind.CHANGE:
            pass
    return message


async def refused(peer: Peer, id: int = 1) -> dict[str, Any]:
    """The error that the next message says, whatever was told before it."""
    message = await end_of(peer)
    assert message is not None and (message.kind, message.id) == (MessageKind.ERROR, id), message
    assert message.body is not None
    error: dict[str, Any] = message.body["error"]
    assert error["status"] == CATALOGUE[error["code"]].status
    return error


async def left(peer: Peer, id: int = 1) -> int:
    peer.say(MessageKind.UNWATCH, id)
    message = await end_of(peer)
    assert message is not None and (message.kind, message.id) == (MessageKind.ANSWER, id), message
    assert message.body is not None and list(message.body) == ["seq"]
    return int(message.body["seq"])


def ids(commits: list[dict[str, Any]]) -> list[Any]:
    return [
        change["id"].id for one in commits if one["type"] == "commit" for change in one["changes"]
    ]


class TestTelling:
    async def test_a_commit_is_told_with_values_as_the_wire_has_them(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        before = await hall.seq("CREATE t:0")
        first = await opened(peer)
        assert first["type"] == "open"
        assert (first["seq"], first["start"], first["table"]) == (before, before, "t")
        assert first["store"] == hall.here.node.store.id
        assert first["epoch"] == 1 and first["begins"] >= 1 and first["created"] < before
        assert await told(peer) == {"type": "caught_up", "seq": before}
        script = "CREATE t:1 SET at = d'2026-01-02T03:04:05Z', d = 1.20dec, r = u:7"
        last = await hall.seq(script)
        shown = await hall.here.value("SELECT * FROM t:1")
        commit = await told(peer)
        assert isinstance(commit.pop("at"), datetime)
        assert commit == {
            "type": "commit", "seq": last, "by": "root", "reason": None,
            "changes": [{"action": "create", "id": RecordId("t", 1), "value": shown[0]}],
        }  # fmt: skip
        assert list(commit["changes"][0]["value"]) == list(shown[0])
        last = await hall.seq("DELETE t:1")
        change = {"action": "delete", "id": RecordId("t", 1), "value": None}
        assert (await told(peer))["changes"] == [change]
        assert await left(peer) == last

    async def test_a_transaction_is_told_as_one(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        await hall.seq("BEGIN; CREATE t:1; CREATE u:1; CREATE t:2; COMMIT; CREATE t:3")
        assert ids([await told(peer)]) == [1, 2]
        assert ids([await told(peer)]) == [3]

    async def test_records_as_they_were(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer, before=True)
        await caught_up(peer)
        await hall.seq("CREATE t:1 SET a = 1; UPDATE t:1 SET a = 2; DELETE t:1")
        seen = []
        for _ in range(3):
            (change,) = (await told(peer))["changes"]
            assert "before" in change and "before_pruned" not in change
            seen.append([change[side] and change[side]["a"] for side in ("before", "value")])
        assert seen == [[None, 1], [1, 2], [2, None]]

    async def test_records_of_every_width_keep_their_fields(self, hall: FeedHall) -> None:
        """The head of a map grows with it: 15 fields and one, 65 535 and one."""
        peer = await hall.peer()
        watch(peer, before=True)
        await caught_up(peer)
        for count in (0, 14, 15, 16, 65_534, 65_535, 65_536):
            fields = {f"f{number}": number for number in range(count)}
            await hall.seq("CREATE t:1 CONTENT $fields; DELETE t:1", fields=fields)
            (created,) = (await told(peer))["changes"]
            (deleted,) = (await told(peer))["changes"]
            whole = {"id": RecordId("t", 1), **fields}
            assert created["value"] == whole == deleted["before"], count

    async def test_filters_and_actions(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        asks: list[dict[str, Any]] = [
            {}, {"where": "a > 1"}, {"actions": ["delete"]}, {"where": "a < 2", "before": True},
        ]  # fmt: skip
        for id, asked in enumerate(asks, 1):
            watch(peer, id, **asked)
        found: dict[int, list[str]] = {id: [] for id in range(1, 5)}
        up: set[int] = set()
        while len(up) < 4:
            message = await peer.hear()
            assert message is not None and message.body is not None
            if message.body["type"] == "caught_up":
                up.add(message.id)
        await hall.seq(
            "CREATE t:1 SET a = 1; UPDATE t:1 SET a = 2; DELETE t:1; CREATE t:end SET a = 0"
        )
        while [len(found[id]) for id in found] != [4, 2, 1, 3]:
            message = await peer.hear()
            assert message is not None and message.body is not None, message
            if is_beat(message):
                continue
            for change in message.body["changes"]:
                assert ("before" in change) is (message.id == 4)
                found[message.id].append(f"{change['action']} {change['id'].id}")
        assert found == {
            1: ["create 1", "update 1", "delete 1", "create end"],
            2: ["create 1", "delete 1"],
            3: ["delete 1"],
            4: ["create 1", "delete 1", "create end"],
        }

    async def test_it_goes_on_where_a_reader_has_left(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        heard, start = [], 0
        numbers = iter(range(10_000))
        for rounds in (1, 3, 2, 5):
            for _ in range(rounds):
                last = await hall.seq(f"CREATE t:{next(numbers)}")
            watch(peer, **{"from": start})
            commits = await caught_up(peer)
            last = await hall.seq(f"CREATE t:{next(numbers)}")
            commits.append(await told(peer))
            heard += ids(commits)
            start = await left(peer)
            assert start == last
        assert heard == [*range(15)]

    async def test_the_largest_record_fits_with_or_without_what_it_was(
        self, hall: FeedHall
    ) -> None:
        peer = await hall.peer()
        room = limits.RECORD_BYTES - len(msgpack.packb({"s": ""})) - 4
        watch(peer, before=True)
        await caught_up(peer)
        half = room // 2 - 99
        omitted = "before_omitted"
        steps = ((room, None), (room, omitted), (half, omitted), (half, None))
        for letter, (size, missing) in zip("abcd", steps, strict=True):
            await hall.seq("UPSERT t:1 SET s = $s", s=letter * size)
            (change,) = (await told(peer))["changes"]
            assert len(change["value"]["s"]) == size
            assert {key for key in change if key.startswith("before_")} == {missing} - {None}
        await hall.seq("DELETE t:1")
        (change,) = (await told(peer))["changes"]
        assert len(change["before"]["s"]) == half


class TestLongCommits:
    async def test_parts_join_to_the_commit(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        last = await hall.seq(
            "BEGIN; FOR $i IN 0..200 { CREATE type::record('t', $i) SET pad = $pad }; COMMIT"
        )
        parts = [await told(peer)]
        while parts[-1]["part"] < parts[-1]["of"]:
            parts.append(await told(peer))
        assert {one["seq"] for one in parts} == {last}
        assert [one["part"] for one in parts] == [*range(1, parts[0]["of"] + 1)]
        assert ids(parts) == [*range(200)]
        assert await left(peer) == last

    @pytest.mark.parametrize("asked", [{"before": True}, {"before": True, "where": "pad != 1"}])
    async def test_a_short_commit_that_changes_much_comes_in_parts_too(
        self, hall: FeedHall, asked: dict[str, Any]
    ) -> None:
        """What was there before a DELETE is many times what the commit has."""
        await hall.seq("FOR $i IN 0..400 { CREATE type::record('t', $i) SET pad = $pad }")
        slow, quick = await hall.peer(), await hall.peer()
        watch(slow, **asked)
        watch(quick, **asked)
        await caught_up(slow)
        await caught_up(quick)
        last = await hall.seq("DELETE t")
        for peer in (quick, slow):
            parts = [await told(peer)]
            while parts[-1]["part"] < parts[-1]["of"]:
                parts.append(await told(peer))
            assert len(parts) > 20
            assert {one["seq"] for one in parts} == {last}
            assert sorted(ids(parts)) == [*range(400)]
            assert all(each["before"]["pad"] == PAD for one in parts for each in one["changes"])
        assert await left(slow) == last

    async def test_many_small_changes_with_long_ids_fit(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        script = "BEGIN; FOR $i IN 0..16000 { CREATE type::record('t', [$long, $i]) }; COMMIT"
        await hall.seq(script, long="l" * 230)
        await hall.seq("DELETE t")
        watch(peer, before=True, **{"from": 0})
        commits = await caught_up(peer)
        numbers = [id[1] for id in ids(commits)]
        assert len(numbers) == 32_000 and len(set(numbers)) == 16_000


class TestPace:
    async def test_who_takes_nothing_is_too_slow_and_comes_back_for_the_rest(
        self, hall: FeedHall
    ) -> None:
        slow, quick = await hall.peer(), await hall.peer()
        watch(slow)
        watch(quick)
        await caught_up(slow)
        await caught_up(quick)
        count = 0
        while hall.feeds == 2:
            count += 1
            script = "CREATE type::record('t', $n) SET pad = [$pad, $pad, $pad, $pad]"
            last = await hall.seq(script, n=count)
            assert (await told(quick))["seq"] == last
        heard: list[dict[str, Any]] = []
        while (message := await slow.hear()) is not None and message.kind is MessageKind.CHANGE:
            assert message.body is not None
            heard.append(message.body)
        assert (
            message is not None and message.kind is MessageKind.ERROR and message.body is not None
        )
        assert message.body["error"]["code"] == "TooSlow"
        position = message.body["error"]["detail"]["seq"]
        assert position == heard[-1]["seq"]
        watch(slow, **{"from": position})
        heard += await caught_up(slow)
        assert ids(heard) == [*range(1, count + 1)]

    async def test_who_reads_the_log_goes_at_its_own_pace(self, hall: FeedHall) -> None:
        await hall.seq("FOR $i IN 0..400 { CREATE type::record('t', $i) SET pad = $pad }")
        peer = await hall.peer()
        watch(peer, **{"from": 0})
        connection = hall.only_connection
        # The peer reads nothing: the feed stands still with little on its way, and is not over.
        await until(lambda: connection.choked)
        assert connection.outgoing.unsent < 3 * limits.FEED_PART_BYTES
        for _ in range(100):
            await asyncio.sleep(0.005)
            assert hall.feeds == 1
            assert connection.outgoing.unsent < 3 * limits.FEED_PART_BYTES
        assert ids(await caught_up(peer)) == [*range(400)]

    async def test_what_finds_no_room_is_told_to_who_comes_back(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        held = hall.only_connection.outgoing.account._held
        most, held.most = held.most, 0
        untold = await hall.seq("CREATE t:1 SET pad = [$pad, $pad, $pad, $pad]")
        error = await refused(peer)
        assert error["code"] == "TooSlow"
        assert error["detail"]["seq"] < untold
        held.most = most
        watch(peer, **{"from": error["detail"]["seq"]})
        assert ids(await caught_up(peer)) == [1]

    async def test_a_long_answer_beside_it_does_not_make_a_feed_slow(self, hall: FeedHall) -> None:
        await hall.seq("FOR $i IN 0..200 { CREATE type::record('u', $i) SET pad = $pad }")
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        peer.say(MessageKind.RUN, 2, {"script": "SELECT * FROM u", **PLACE})
        connection = hall.only_connection
        await until(lambda: connection.outgoing.unsent > 5 * limits.MIB)
        last = await hall.seq("CREATE t:1")
        await peer.must_hear(MessageKind.ANSWER, 2)
        assert (await told(peer))["seq"] == last

    async def test_many_feeds_of_a_peer_that_keeps_up_are_all_told(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        count = limits.USER_FILTERS
        for id in range(1, count + 1):
            watch(peer, id, where=f"n != {id}")
        up = 0
        while up < count:
            message = await peer.hear()
            assert message is not None and message.body is not None
            up += message.body["type"] == "caught_up"
        await hall.seq("CREATE t SET n = 0, pad = [$pad, $pad, $pad, $pad, $pad]")  # 19 MB in all
        heard: set[int] = set()
        while len(heard) < count:
            message = await peer.hear()
            assert message is not None and message.kind is MessageKind.CHANGE, message
            if not is_beat(message):
                heard.add(message.id)
        assert hall.feeds == count


class TestTheEnd:
    async def test_nothing_is_told_behind_the_answer_of_an_unwatch(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        writing = True

        async def write() -> None:
            while writing:
                await hall.seq("CREATE t")

        writer = asyncio.create_task(write())
        seqs: list[int] = []
        for id in range(1, 40):
            watch(peer, id, **({"from": seqs[-1]} if seqs else {}))
            for _ in range(id % 4):
                await told(peer, id)
            seqs.append(await left(peer, id))
            peer.say(MessageKind.PING, 1_000)
            await peer.must_hear(MessageKind.PONG, 1_000)  # and nothing before it
        assert seqs == sorted(seqs)
        writing = False
        await writer
        assert hall.feeds == 0

    async def test_unwatch_right_behind_watch(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        last = await hall.seq("CREATE t:1")
        watch(peer)
        assert await left(peer) == last
        watch(peer, table="nothing")
        peer.say(MessageKind.UNWATCH, 1)
        assert (await refused(peer))["code"] == "Unknown"
        peer.say(MessageKind.PING, 2)
        await peer.must_hear(MessageKind.PONG, 2)

    @pytest.mark.parametrize("says", [MessageKind.UNWATCH, MessageKind.BYE])
    async def test_who_asked_for_all_and_was_told_nothing_comes_back_with_0(
        self, hall: FeedHall, says: MessageKind
    ) -> None:
        peer = await hall.peer()
        watch(peer, **{"from": 0})
        peer.say(says, 1 if says is MessageKind.UNWATCH else 0)
        message = await end_of(peer)
        assert message is not None and message.body is not None
        assert (message.kind, message.body["seq"]) == (MessageKind.ANSWER, 0)
        other = await hall.peer()
        assert (await opened(other, **{"from": message.body["seq"]}))["type"] == "open"

    async def test_an_unwatch_that_crosses_the_end_is_ignored(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        last = await hall.seq("CREATE t:1")
        await hall.seq("DROP TABLE t")
        error = await refused(peer)
        assert error["code"] == "Unknown"
        assert error["detail"]["seq"] >= last
        peer.say(MessageKind.UNWATCH, 1)
        peer.say(MessageKind.PING, 2)
        await peer.must_hear(MessageKind.PONG, 2)

    async def test_cancel_is_not_for_feeds(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        peer.say(MessageKind.CANCEL, 1)
        peer.say(MessageKind.PING, 2)
        await peer.must_hear(MessageKind.PONG, 2)
        assert hall.feeds == 1

    async def test_bye_answers_every_feed(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        for id in (1, 2, 3):
            watch(peer, id)
        last = await hall.seq("CREATE u:1")
        peer.say(MessageKind.BYE)
        heard = []
        while (message := await end_of(peer)) is not None:
            heard.append((message.kind, message.id))
        assert sorted(heard) == [(MessageKind.ANSWER, id) for id in (1, 2, 3)]
        assert hall.feeds == 0
        assert last

    @pytest.mark.parametrize("how", ["close", "half", "abort"])
    async def test_a_connection_that_ends_ends_its_feeds(self, hall: FeedHall, how: str) -> None:
        # By a token: the session goes on, and it is not its end that ends them.
        session = await NodeGate(hall.here.node).sign_in("root", PASSWORD, "127.0.0.1:1")
        peer = await hall.stranger()
        await peer.greet(token=session.token)
        for id in range(1, 9):
            watch(peer, id)
        await told(peer, 1)
        if how == "half":
            peer.writer.write_eof()
        elif how == "close":
            peer.writer.close()
        else:
            peer.writer.transport.abort()
        await until(lambda: hall.feeds == 0)

    async def test_what_drains_says_so_to_each_feed(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        last = await hall.seq("CREATE t:1")
        draining = asyncio.create_task(hall.surface.drain())
        heard: list[WireMessage] = []
        while (message := await peer.hear()) is not None:
            heard.append(message)
            if message.kind is MessageKind.BYE:
                watch(peer, 5)
                peer.say(MessageKind.BYE)
        kinds = [(one.kind, one.id) for one in heard]
        assert kinds == [
            (MessageKind.CHANGE, 1),
            (MessageKind.ERROR, 1),
            (MessageKind.BYE, 0),
            (MessageKind.ERROR, 5),
        ]
        assert heard[1].body is not None
        assert heard[1].body["error"]["code"] == "Draining"
        assert heard[1].body["error"]["detail"]["seq"] == last
        await peer.close()
        await draining

    async def test_a_feed_ends_with_the_session_that_opened_it(self, hall: FeedHall) -> None:
        await hall.here.values(f"DEFINE USER bob ROLE owner PASSWORD '{PASSWORD}'")
        peer = await hall.peer("bob")
        watch(peer)
        await caught_up(peer)
        peer.say(MessageKind.AUTH, 2, {"user": "root", "password": PASSWORD})
        heard = [await peer.hear(), await peer.hear()]
        assert {(one.kind, one.id) for one in heard if one} == {
            (MessageKind.WELCOME, 2),
            (MessageKind.ERROR, 1),
        }
        (error,) = [one.body["error"] for one in heard if one and one.body and one.id == 1]
        assert error["code"] == "SessionEnded"
        watch(peer)
        await caught_up(peer)

    async def test_a_token_of_its_own_outlives_an_auth(self, hall: FeedHall) -> None:
        """The session is not the connection's: it and its feeds go on under another user."""
        gate = NodeGate(hall.here.node)
        session = await gate.sign_in("root", PASSWORD, "127.0.0.1:1")
        await hall.here.values(f"DEFINE USER bob ROLE member PASSWORD '{PASSWORD}'")
        peer = await hall.stranger()
        await peer.greet(token=session.token)
        watch(peer)
        await caught_up(peer)
        peer.say(MessageKind.AUTH, 2, {"user": "bob", "password": PASSWORD})
        await peer.must_hear(MessageKind.WELCOME, 2)
        last = await hall.seq("CREATE t:1")
        assert (await told(peer))["seq"] == last
        watch(peer, 3)
        assert (await refused(peer, 3))["code"] == "Unknown"  # bob sees nothing of it
        await gate.sign_out(session.token)
        assert (await refused(peer, 1))["code"] == "SessionEnded"

    async def test_a_right_that_is_taken_ends_it(self, hall: FeedHall) -> None:
        await hall.here.values(
            f"DEFINE USER bob ROLE member PASSWORD '{PASSWORD}';"
            " GRANT READ ON TABLE shop.main.t TO bob"
        )
        peer = await hall.peer("bob")
        watch(peer)
        await caught_up(peer)
        await hall.seq("CREATE t:1; REVOKE READ ON TABLE shop.main.t FROM bob; CREATE t:2")
        assert ids([await told(peer)]) == [1]
        assert (await refused(peer))["code"] == "NotAllowed"

    async def test_it_can_be_killed_by_its_name(self, hall: FeedHall) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        (running,) = [
            one["id"]
            for one in await hall.here.value("INFO FOR RUNNING")
            if one["text"] == "WATCH t"
        ]
        await hall.here.value(f"KILL '{running}'")
        error = await refused(peer)
        assert (error["code"], error["request"]) == ("Cancelled", running)


class TestRefusals:
    async def test_what_is_asked_wrongly(self, hall: FeedHall) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"table": None}, "BadRequest"),
            ({"ns": 1}, "BadRequest"),
            ({"from": -1}, "BadRequest"),
            ({"from": "1"}, "BadRequest"),
            ({"from": True}, "BadRequest"),
            ({"from": 2**60}, "Diverged"),
            ({"from": 1, "store": "x"}, "Diverged"),
            ({"epoch": "1"}, "BadRequest"),
            ({"actions": []}, "BadRequest"),
            ({"actions": "create"}, "BadRequest"),
            ({"actions": ["create", 1]}, "BadRequest"),
            ({"actions": ["rename"]}, "BadRequest"),
            ({"before": 1}, "BadRequest"),
            ({"where": "a >"}, "UnexpectedToken"),
            ({"where": "x" * (limits.FILTER_BYTES + 1)}, "TooLarge"),
            ({"table": "nothing"}, "Unknown"),
            ({"then": 1}, "BadRequest"),
            ({"after": -1}, "BadRequest"),
            ({"after": 2**53}, "BadRequest"),
            ({"after": "1"}, "BadRequest"),
        ]
        for asked, code in cases:
            with case(asked, code):
                peer = await hall.peer()
                watch(peer, **asked)
                assert (await refused(peer))["code"] == code
                assert hall.feeds == 0

    async def test_nobody(self, hall: FeedHall) -> None:
        peer = await hall.stranger()
        await peer.greet()
        watch(peer)
        assert (await refused(peer))["code"] == "SignInRefused"

    async def test_a_peer_of_an_older_minor_is_told_nothing_that_it_does_not_know(
        self, hall: FeedHall
    ) -> None:
        peer = await hall.peer(minor=[0, 0])
        watch(peer)
        error = await refused(peer)
        assert error["code"] == "VersionNotSupported"
        assert (await peer.run(2, "RETURN 1", **PLACE)).kind is MessageKind.ANSWER

    async def test_of_which_epoch_each_commit_is_is_told_from_minor_9_on(
        self, hall: FeedHall
    ) -> None:
        """To feeds of both kinds of one table at once."""
        old, new = await hall.peer(minor=[0, 8]), await hall.peer(minor=[0, 9])
        for peer in (old, new):
            watch(peer)
            said = [await told(peer), await told(peer)]
            assert "epoch" in said[0] and ("start_epoch" in said[0]) == (peer is new)
            assert ("epoch" in said[1]) == (peer is new), said
        await hall.seq("BEGIN; FOR $i IN 0..40 { CREATE t SET pad = $pad }; COMMIT")
        for _ in range(3):
            assert "epoch" not in await told(old)
            assert (await told(new))["epoch"] == 1
        for peer in (old, new):
            peer.say(MessageKind.UNWATCH, 1)
            message = await end_of(peer)
            assert message is not None and message.body is not None
            assert ("epoch" in message.body) == (peer is new)

    async def test_so_many_are_open_on_a_connection_and_no_more(
        self, hall: FeedHall, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "CONNECTION_FEEDS", 3)
        peer = await hall.peer()
        for id in (1, 2, 3):
            watch(peer, id)
            await caught_up(peer, id)
        watch(peer, 4)
        assert (await refused(peer, 4))["code"] == "Busy"
        await left(peer, 2)
        watch(peer, 4)
        await caught_up(peer, 4)

    async def test_they_are_none_of_those_that_run(
        self, hall: FeedHall, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        peer = await hall.peer()
        watch(peer)
        await caught_up(peer)
        assert hall.surface.running == 0
        assert hall.here.node.registry.waiting("wire") == 0
