"""Change feeds: each commit once, whole and in order, from wherever a reader begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from actors.execution.fiber import Fiber
from actors.feeds.feed import Feed, FeedState
from actors.feeds.hub import Feeds
from actors.feeds.request import (
    CommitHead,
    CommitPart,
    FeedChange,
    FeedCursor,
    FeedEncoding,
    FeedOpened,
    OpenFeed,
)
from actors.node import Node
from actors.runtime import ask
from language.filters import Filter
from protocol import limits
from protocol.binary import unpack_object
from protocol.errors import (
    BadRequest,
    Busy,
    Cancelled,
    Diverged,
    NotAllowed,
    Refusal,
    SessionEnded,
    TooLarge,
    TooSlow,
    TypeRefused,
    UnexpectedToken,
    Unknown,
)
from protocol.jsonvalues import to_json
from protocol.requests import AuthenticatePassword, Caller, SignIn, SignOut
from protocol.text import format_record
from protocol.values import RecordId
from storage.engine.memory import MemoryEngine
from storage.formats.frames import Frame
from tests.actors import nodes
from tests.actors.scripts.test_stalled_disk import Stall
from tests.simulation.disk import SimulatedDisk


class PlainForm(FeedEncoding):
    """What is told, as JSON that a test can read."""

    def change(self, change: FeedChange) -> bytes:
        said = {
            "action": change.action,
            "id": format_record(change.id),
            "value": plain(change.id, change.fields),
        }
        if change.shows_before:
            said["before"] = plain(change.id, change.before)
            said["missing"] = change.missing
        return json.dumps(said).encode()

    def commit(self, head: CommitHead, changes: Sequence[bytes], part: CommitPart | None) -> bytes:
        said = {"type": "commit", **at(head.place), "by": head.by, "reason": head.reason}
        if part is not None:
            said |= {"part": part.number, "of": part.of}
        return json.dumps(said | {"changes": list(map(json.loads, changes))}).encode()

    def caught_up(self, place: FeedCursor) -> bytes:
        return json.dumps({"type": "caught_up", **at(place)}).encode()

    def beat(self, place: FeedCursor) -> bytes:
        return json.dumps({"type": "beat", **at(place)}).encode()


def at(place: FeedCursor) -> dict[str, Any]:
    return {"seq": place.sequence, "epoch": place.epoch}


def plain(id: RecordId, fields: bytes | None) -> Any:
    return None if fields is None else to_json({"id": id, **unpack_object(fields)})


FORM = PlainForm()
PAD = "x" * 60_000
BOB = Caller("bob", "member", None, None, "wire", "192.0.2.2:5000")


class Reader:
    """The reader of a feed, who takes what comes, or does not."""

    form: FeedEncoding = FORM

    def __init__(self, *, takes: bool = True) -> None:
        self.opening: FeedOpened | None = None
        self.said: list[dict[str, Any]] = []
        self.why: Refusal | None = None
        self.last = -1
        self.waiting = 0
        self.most_waiting = 0
        self.told: Callable[[], None] = lambda: None
        """Called when something was sent."""
        self.has_room = True
        self.left: Callable[[], None] = lambda: None
        """Called when it is over."""
        self._takes = takes
        self._taken: list[Callable[[], None]] = []
        self._news = asyncio.Event()

    def opened(self, opened: FeedOpened) -> None:
        assert self.opening is None
        self.opening = opened

    @property
    def ready(self) -> bool:
        return self.waiting == 0

    def send(self, data: bytes) -> None:
        assert self.opening is not None
        assert self.why is None
        if not self.has_room:
            raise TooSlow("there is no room")
        self.said.append(json.loads(data))
        if not self._takes:
            self.waiting += len(data)
            self.most_waiting = max(self.most_waiting, self.waiting)
        self._news.set()
        self.told()

    def when_ready(self, call: Callable[[], None]) -> None:
        if self._takes:
            asyncio.get_running_loop().call_soon(call)
        else:
            self._taken.append(call)

    def ended(self, why: Refusal, place: FeedCursor) -> None:
        assert self.why is None
        self.why, self.last = why, place.sequence
        self._news.set()
        self.left()

    def take(self) -> None:
        """Take all that waits."""
        self.waiting = 0
        taken, self._taken = self._taken, []
        for call in taken:
            asyncio.get_running_loop().call_soon(call)

    async def until(self, met: Callable[[Reader], bool]) -> None:
        while not met(self):
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 20)

    async def caught_up(self) -> None:
        await self.until(lambda it: any(one["type"] == "caught_up" for one in it.said))

    async def reached(self, sequence: int) -> None:
        await self.until(lambda it: bool(it.said) and it.said[-1]["seq"] >= sequence)

    async def over(self) -> Refusal:
        await self.until(lambda it: it.why is not None)
        assert self.why is not None
        return self.why

    @property
    def commits(self) -> list[dict[str, Any]]:
        return [one for one in self.said if one["type"] == "commit"]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Actions and ids, in order."""
        return [(each["action"], each["id"]) for one in self.commits for each in one["changes"]]


@asynccontextmanager
async def node_with_tables(disk: SimulatedDisk | None = None) -> AsyncIterator[Node]:
    environment = nodes.simulated_environment("real", disk or SimulatedDisk(), MemoryEngine())
    async with nodes.running(environment) as node:
        await nodes.prepare(node)
        yield node


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with node_with_tables() as found:
        yield found


async def follow(node: Node, reader: Reader, caller: Caller = nodes.ANA, **asked: Any) -> Feed:
    """Open a feed of table t. A refusal is raised."""
    table = asked.pop("table", "t")
    found = await ask(node.feeds, OpenFeed(caller, next(_names), "a", "b", table, reader, **asked))
    assert isinstance(found, Feed)
    return found


_names = (f"w-{number}" for number in range(1, 1 << 30))


async def seq(node: Node, script: str, reason: str | None = None) -> int:
    """The commit of a script that must succeed."""
    answer = await nodes.run(node, script, {"pad": PAD, "large": [PAD] * 20}, reason=reason)
    if answer.refusal is not None:
        raise answer.refusal
    return answer.sequence


async def test_changes_are_told_as_they_come_with_who_made_them(node: Node) -> None:
    reader = Reader()
    await follow(node, reader)
    await reader.caught_up()
    await seq(node, "CREATE t:1 SET a = 1; UPDATE t:1 SET a = 2; DELETE t:1", "because")
    await reader.until(lambda it: len(it.commits) == 3)
    created, updated, deleted = reader.commits
    assert created["changes"] == [
        {"action": "create", "id": "t:1", "value": {"id": {"$rec": "t:1"}, "a": 1}}
    ]
    assert updated["changes"][0]["value"]["a"] == 2
    assert deleted["changes"] == [{"action": "delete", "id": "t:1", "value": None}]
    assert (updated["by"], created["reason"]) == ("ana", "because")
    assert created["seq"] < updated["seq"] < deleted["seq"]


async def test_a_transaction_is_one_commit_and_of_the_table_alone(node: Node) -> None:
    reader = Reader()
    await follow(node, reader)
    await seq(node, "BEGIN; CREATE t:1; CREATE u:1; CREATE t:2; DELETE t:1; CREATE t:3; COMMIT")
    await reader.until(lambda it: bool(it.commits))
    assert reader.changes == [("create", "t:2"), ("create", "t:3")]


async def test_what_was_before_is_read_from_the_log_and_joined_to_what_comes(node: Node) -> None:
    for number in range(50):
        await seq(node, f"CREATE t:{number}")
    reader = Reader()
    await follow(node, reader, start=0)
    for number in range(50, 60):
        await seq(node, f"CREATE t:{number}")
    await reader.until(lambda it: len(it.commits) >= 60)
    assert reader.changes == [("create", f"t:{number}") for number in range(60)]
    assert [one["type"] for one in reader.said].count("caught_up") == 1


async def test_a_reader_that_comes_back_with_its_last_commit_misses_nothing(node: Node) -> None:
    numbers = iter(range(10_000))
    writing = True

    async def write() -> None:
        while writing:
            await seq(node, f"CREATE t:{next(numbers)}")

    writer = asyncio.create_task(write())
    heard: list[tuple[str, str]] = []
    start = 0
    for stops_after in (1, 7, 30, 2, 50, 11, 5):
        reader = Reader()
        feed = await follow(node, reader, start=start)
        await reader.until(lambda it, n=stops_after: len(it.commits) >= n)  # type: ignore[misc]
        feed.close()
        heard += reader.changes
        start = reader.commits[-1]["seq"]
    writing = False
    await writer
    assert heard == [("create", f"t:{number}") for number in range(len(heard))]
    assert len(node.open_feeds) == 0


async def test_a_filter_tells_what_enters_and_what_leaves(node: Node) -> None:
    reader = Reader()
    await follow(node, reader, where="price > 10")
    for script in (
        "CREATE t:1 SET price = 5",
        "UPDATE t:1 SET price = 11",
        "UPDATE t:1 SET price = 12",
        "UPDATE t:1 SET price = 1",
        "UPDATE t:1 SET price = 2",
        "UPDATE t:1 SET price = 99",
        "DELETE t:1",
        "CREATE t:2 SET price = 3",
        "DELETE t:2",
        "CREATE t:3 SET price = 33",
    ):
        last = await seq(node, script)
    await reader.reached(last)
    actions = [action for action, _ in reader.changes]
    assert actions == ["create", "update", "delete", "create", "delete", "create"]


@pytest.mark.parametrize(
    ("where", "refusal"),
    [
        ("price >", UnexpectedToken),
        ("(SELECT * FROM u) = []", BadRequest),
        ("$x = 1", BadRequest),
        ("time::now() > at", BadRequest),
        ("rand::int(1, 2) = 1", BadRequest),
        ("u:1.secret = 1", BadRequest),
        ("fn::mine(price)", BadRequest),
    ],
)
async def test_a_filter_looks_at_the_record_alone(
    node: Node, where: str, refusal: type[Refusal]
) -> None:
    with pytest.raises(refusal):
        await follow(node, Reader(), where=where)
    assert len(node.open_feeds) == 0


async def test_a_filter_is_held_against_the_types_of_fields_as_a_where_is(node: Node) -> None:
    await seq(
        node,
        "DEFINE FIELD at ON t TYPE option<datetime>; DEFINE FIELD of ON t TYPE"
        " option<record<u>>; DEFINE FIELD l ON t TYPE option<array<object>>; DEFINE FIELD"
        " l[*].of ON t TYPE record<u>",
    )
    for where in (
        "at > '2025'",
        "NOT (at = '2026')",
        "of = 'u:1'",
        "'x' + 'y' = at",
        "id = 5",
        "l[0].of = 1",
    ):
        with pytest.raises(TypeRefused, match="can't be compared with"):
            await follow(node, Reader(), where=where)
    for where in ("of.name = 'lamp'", "$this.of.name = 'lamp'", "l[0].of.name = 'lamp'"):
        with pytest.raises(BadRequest, match="follows the record link"):
            await follow(node, Reader(), where=where)
    assert len(node.open_feeds) == 0
    long = Filter("id = array::find(0..1000000, |$x| $x < 0)", {})
    with pytest.raises(TooLarge, match="too many steps"):  # it is then held against nothing
        long.evaluate(long.comparisons[0].node.right)
    for where in ("at > d'2025-01-01'", "of = u:1", "of.id = u:1", "at = NONE"):
        await follow(node, Reader(), where=where)


async def test_a_filter_that_follows_a_link_of_the_record_ends_its_feed_saying_where(
    node: Node,
) -> None:
    reader, other = Reader(), Reader()
    await follow(node, reader, where="friend.name = 'x'")
    await follow(node, other)
    last = await seq(node, "CREATE t:1 SET friend = 'none'; CREATE t:2 SET friend = u:1")
    await other.reached(last)
    why = await reader.over()
    assert isinstance(why, BadRequest)
    assert why.detail["record"] == "t:2"
    assert reader.last < last
    assert len(other.commits) == 2


SPINS = "array::len(array::map(0..100000, |$x| array::len(array::map(0..100000, |$y| $y)))) > 0"


async def test_a_filter_that_takes_long_makes_no_other_feed_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FILTER_TICKS", 1 << 60)  # it never ends by itself
    async with node_with_tables() as node:
        spinning, other, later = Reader(), Reader(), Reader()
        feed = await follow(node, spinning, where=SPINS)
        await follow(node, other, table="u")
        await spinning.caught_up()
        await other.caught_up()
        await seq(node, "CREATE t:1")
        last = await seq(node, "CREATE u:1")
        await other.reached(last)
        await follow(node, later, table="u", start=0)
        await later.reached(last)
        fiber = node.open_feeds._lines[feed.view.wanted]._fiber
        assert fiber is not None
        assert spinning.commits == []
        feed.close()
        while not fiber.ended:  # nothing is computed for nobody
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "where",
    [
        " OR ".join(f"a = {number}" for number in range(300)),
        "a = '" + "x" * limits.FILTER_BYTES + "'",
    ],
)
async def test_a_filter_is_bounded(node: Node, where: str) -> None:
    with pytest.raises(TooLarge):
        await follow(node, Reader(), where=where)


async def test_one_user_has_so_many_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USER_FILTERS", 2)
    async with node_with_tables() as node:
        feeds = [await follow(node, Reader(), where=f"a = {number}") for number in (1, 2, 2)]
        with pytest.raises(Busy):
            await follow(node, Reader(), where="a = 3")
        await follow(node, Reader())
        feeds[0].close()
        await follow(node, Reader(), where="a = 3")


async def test_one_user_leaves_room_for_the_feeds_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FEEDS", 2)
    monkeypatch.setattr(limits, "FEEDS_OF_OTHERS", 1)
    async with node_with_tables() as node:
        await seq(node, "DEFINE USER bob ROLE viewer PASSWORD 'bob-bob-bob'")
        feeds = [await follow(node, Reader()) for _ in range(2)]
        with pytest.raises(Busy):
            await follow(node, Reader())
        await follow(node, Reader(), BOB)
        feeds[0].close()
        with pytest.raises(Busy):
            await follow(node, Reader(), BOB)


async def test_the_record_as_it_was_is_told_where_that_is_asked_for(node: Node) -> None:
    await seq(node, "CREATE t:1 SET a = 1; CREATE t:2 SET a = 1")
    reader = Reader()
    await follow(node, reader, before=True)
    last = await seq(node, "UPDATE t SET a = 2; UPDATE t:1 SET a = 3; DELETE t:2")
    await reader.reached(last)
    seen = [
        (each["id"], each["before"] and each["before"]["a"])
        for one in reader.commits
        for each in one["changes"]
    ]
    assert seen == [("t:1", 1), ("t:2", 1), ("t:1", 2), ("t:2", 2)]


async def test_only_the_actions_that_are_asked_for_are_told(node: Node) -> None:
    reader = Reader()
    await follow(node, reader, actions=frozenset({"delete"}))
    last = await seq(node, "CREATE t:1; UPDATE t:1 SET a = 1; DELETE t:1")
    await reader.reached(last)
    assert reader.changes == [("delete", "t:1")]
    with pytest.raises(BadRequest):
        await follow(node, Reader(), actions=frozenset({"rename"}))


async def test_a_long_commit_comes_in_parts_at_the_readers_pace(node: Node) -> None:
    slow, quick = Reader(takes=False), Reader()
    await follow(node, slow)
    await follow(node, quick)
    await slow.caught_up()
    await quick.caught_up()
    slow.take()
    await seq(node, "FOR $i IN 0..200 { CREATE t SET n = $i, pad = $pad }")
    await seq(node, "DELETE t")
    big = await seq(
        node,
        "BEGIN; FOR $i IN 0..200 { CREATE type::record('t', $i) SET"
        " pad = $pad }; COMMIT; CREATE t:last",
    )
    await quick.reached(big)
    while not slow.said or slow.said[-1]["seq"] < big:
        await asyncio.sleep(0)
        slow.take()
    for reader in (slow, quick):
        parts = [one for one in reader.commits if one["seq"] == big - 1]
        of = parts[-1]["of"]
        assert of >= 10
        assert [one["part"] for one in parts] == [*range(1, of + 1)]
        told = [each["id"] for one in parts for each in one["changes"]]
        assert told == [f"t:{number}" for number in range(200)]
        assert reader.commits[-1]["changes"][0]["id"] == "t:last"
    assert slow.most_waiting < limits.FEED_BEHIND_BYTES + limits.FEED_PART_BYTES


async def test_a_reader_that_takes_nothing_is_ended_with_what_it_was_sent(node: Node) -> None:
    slow = Reader(takes=False)
    await follow(node, slow)
    await slow.caught_up()
    for _ in range(40):
        if slow.why is not None:
            break
        await seq(node, "CREATE t SET pad = [$pad, $pad, $pad, $pad, $pad, $pad]")
    assert isinstance(slow.why, TooSlow)
    assert slow.last == slow.commits[-1]["seq"] == slow.why.detail["seq"]
    assert slow.waiting <= limits.FEED_BEHIND_BYTES + limits.FEED_PART_BYTES
    reader = Reader()
    await follow(node, reader, start=slow.last)
    await reader.caught_up()
    assert [one["seq"] for one in reader.commits][:1] == [slow.last + 1]


@pytest.mark.parametrize("behind", [False, True])
async def test_what_finds_no_room_was_not_told(node: Node, behind: bool) -> None:
    reader = Reader()
    known = await seq(node, "CREATE t:1")
    if not behind:
        await follow(node, reader)
        await reader.caught_up()
    reader.has_room = False
    await seq(node, "CREATE t:2; CREATE t:3")
    if behind:
        await follow(node, reader, start=known)
    assert isinstance(await reader.over(), TooSlow)
    assert reader.last == known
    await nodes.yield_often()
    assert not node.open_feeds._live.of_table


async def test_a_table_that_is_dropped_ends_its_feeds_and_one_declared_anew_is_another(
    node: Node,
) -> None:
    reader = Reader()
    await follow(node, reader)
    known = await seq(node, "CREATE t:1")
    dropped = await seq(node, "DROP TABLE t; DEFINE TABLE t; CREATE t:2")
    why = await reader.over()
    assert isinstance(why, Unknown)
    assert reader.changes == [("create", "t:1")]
    with pytest.raises(Unknown) as refused:
        await follow(node, Reader(), start=known)
    assert refused.value.detail["created"] in range(known + 1, dropped)
    again = Reader()
    await follow(node, again, start=0)
    await again.caught_up()
    assert again.changes == [("create", "t:2")]


async def test_a_table_that_is_dropped_ends_a_feed_that_reads_the_log(node: Node) -> None:
    first = await seq(node, "CREATE t:1")
    other, slow = Reader(), Reader(takes=False)
    await follow(node, other, table="u")
    feed = await follow(node, slow, start=first - 1)
    await slow.until(lambda it: bool(it.commits))
    last = await seq(node, "CREATE t:2; DROP TABLE t; CREATE u:1")
    await other.reached(last)  # the hub is behind all of it
    while slow.why is None:
        slow.take()
        await asyncio.sleep(0)
    assert isinstance(slow.why, Unknown)
    await nodes.yield_often()
    assert [one["type"] for one in slow.said] == ["commit", "commit"]
    assert feed.state is FeedState.OVER
    assert set(node.open_feeds._live.of_table) <= {view.prefix for view in node.open_feeds._views}
    feed.close()


async def test_who_has_asked_for_all_there_is_comes_back_with_what_it_was_told(node: Node) -> None:
    await seq(node, "DEFINE TABLE late; CREATE late:1")
    asked: dict[str, Any] = {"start": 0}
    for _ in range(2):
        reader = Reader()
        feed = await follow(node, reader, table="late", **asked)
        opening = reader.opening
        assert opening is not None and (opening.start, opening.start_epoch) == (0, 0)
        asked = {"start": 0, "store": opening.store, "epoch": opening.start_epoch}
        await reader.caught_up()
        assert reader.changes == [("create", "late:1")]
        feed.close()


async def test_who_knows_what_was_there_before_the_table_knows_another(node: Node) -> None:
    """One of the name may have been dropped by the commit that declares it."""
    known = await seq(node, "CREATE t:1")
    declared = await seq(node, "BEGIN; DROP TABLE t; DEFINE TABLE t; CREATE t:2; COMMIT")
    assert declared == known + 1
    with pytest.raises(Unknown):
        await follow(node, Reader(), start=known)


@pytest.mark.parametrize("drop", ["DROP DATABASE a.b", "DROP NAMESPACE a"])
async def test_a_place_that_is_dropped_ends_the_feeds_in_it(node: Node, drop: str) -> None:
    reader = Reader()
    await follow(node, reader)
    await seq(node, drop)
    assert isinstance(await reader.over(), Unknown)


async def test_a_position_of_another_history_is_refused(node: Node) -> None:
    now = await seq(node, "CREATE t:1")
    store = node.store.id
    for asked in (
        {"start": now + 1},
        {"start": now, "store": "0" * 32},
        {"start": now, "store": store, "epoch": 9},
    ):
        with pytest.raises(Diverged):
            await follow(node, Reader(), **asked)
    reader = Reader()
    await follow(node, reader, start=now, store=store, epoch=1)
    assert reader.opening is not None
    assert (reader.opening.store, reader.opening.epoch) == (store, 1)


async def test_nothing_is_told_behind_the_revoke_that_took_the_right(node: Node) -> None:
    await seq(
        node,
        "DEFINE USER bob ROLE member PASSWORD 'bob-bob-bob'; GRANT READ ON TABLE a.b.t TO bob",
    )
    reader = Reader()
    await follow(node, reader, BOB)
    last = await seq(node, "CREATE t:1")
    await seq(
        node,
        "REVOKE READ ON TABLE a.b.t FROM bob; CREATE t:2;"
        " GRANT READ ON TABLE a.b.t TO bob; CREATE t:3",
    )
    why = await reader.over()
    assert isinstance(why, NotAllowed)
    assert reader.changes == [("create", "t:1")]
    assert reader.last >= last


async def test_who_changes_something_is_for_those_who_hold_info(node: Node) -> None:
    await seq(
        node,
        "DEFINE USER bob ROLE member PASSWORD 'bob-bob-bob'; GRANT READ ON TABLE a.b.t TO bob",
    )
    reader = Reader()
    await follow(node, reader, BOB)
    await seq(node, "CREATE t:1; GRANT INFO ON TABLE a.b.t TO bob; CREATE t:2", "r")
    last = await seq(node, "REVOKE INFO ON TABLE a.b.t FROM bob; CREATE t:3", "r")
    await reader.reached(last)
    assert [(one["by"], one["reason"]) for one in reader.commits] == [
        (None, None), ("ana", "r"), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("grant", ["WRITE", "INFO", "DEFINE"])
async def test_only_read_lets_anybody_follow(node: Node, grant: str) -> None:
    await seq(node, "DEFINE USER bob ROLE member PASSWORD 'bob-bob-bob'")
    with pytest.raises(Unknown):
        await follow(node, Reader(), BOB)
    await seq(node, f"GRANT {grant} ON TABLE a.b.t TO bob")
    with pytest.raises(NotAllowed):
        await follow(node, Reader(), BOB)


async def test_a_feed_ends_with_its_session_and_with_its_user(node: Node) -> None:
    await seq(node, "DEFINE USER bob ROLE viewer PASSWORD 'bob-bob-bob'")
    session = await ask(node.sessions, SignIn("bob", "bob-bob-bob", "http", "192.0.2.2:1"))
    reader, other = Reader(), Reader()
    await follow(node, reader, session.caller)
    await follow(node, other, BOB)
    await ask(node.sessions, SignOut(session.token))
    assert isinstance(await reader.over(), SessionEnded)
    assert other.why is None
    await seq(node, "DROP USER bob")
    assert isinstance(await other.over(), SessionEnded)


@pytest.mark.parametrize("change", ["ALTER USER bob SET ROLE owner", "DROP NAMESPACE c"])
async def test_a_feed_that_waits_to_begin_ends_with_the_password_it_came_by(
    node: Node, change: str
) -> None:
    await seq(node, "DEFINE NAMESPACE c; DEFINE DATABASE c.d")
    define = "DEFINE USER bob ROLE viewer ON DATABASE c.d PASSWORD 'bob-bob-bob'"
    at = await seq(node, define)
    asked = AuthenticatePassword("bob", "bob-bob-bob", "http", "192.0.2.2:1")
    caller = await ask(node.sessions, asked)
    waiting = asyncio.create_task(follow(node, Reader(), caller, after=at + 100))
    while not node.registry.resting:
        await asyncio.sleep(0)
    await seq(node, change)
    with pytest.raises(SessionEnded):
        await waiting
    if change.startswith("ALTER"):
        await seq(node, "DROP USER bob")
    await seq(node, "DEFINE USER bob ROLE owner PASSWORD 'bob-bob-bob'")
    with pytest.raises(SessionEnded):  # also where another has its name and its password
        await follow(node, Reader(), caller)
    await follow(node, Reader(), await ask(node.sessions, asked))


async def test_a_feed_begins_by_no_right_that_may_yet_be_taken_back(node: Node) -> None:
    """One that comes while it waits for another is waited for as well."""
    await seq(node, "DEFINE USER bob ROLE member PASSWORD 'bob-bob-bob'")
    stall = Stall(node)
    try:
        granted = []
        for verb in ("READ", "INFO"):
            before = node.committer.committed
            script = f"GRANT {verb} ON TABLE a.b.t TO bob"
            granted.append(asyncio.create_task(seq(node, script)))
            while node.committer.committed == before:
                await asyncio.sleep(0)
            if verb == "READ":
                opening = asyncio.create_task(follow(node, Reader(), BOB))
                await nodes.yield_often()
        stall.pass_one()
        await granted[0]
        await nodes.yield_often()
        assert not opening.done() and not granted[1].done()
    finally:
        stall.end()
    assert (await opening).view.wanted.attributed


async def test_feeds_are_among_what_runs_and_can_be_killed(node: Node) -> None:
    reader = Reader()
    feed = await follow(node, reader)
    running = await nodes.value(node, "INFO FOR RUNNING")
    assert [one["text"] for one in running if one["id"] == feed.id] == ["WATCH t"]
    await nodes.value(node, f"KILL '{feed.id}'")
    assert isinstance(await reader.over(), Cancelled)
    assert len(node.open_feeds) == 0


async def test_a_quiet_feed_says_how_far_the_store_has_come(node: Node) -> None:
    reader = Reader()
    await follow(node, reader)
    await reader.caught_up()
    last = await seq(node, "CREATE u:1")
    while not any(one["type"] == "beat" and one["seq"] == last for one in reader.said):
        node.open_feeds.beat()
        await asyncio.sleep(0)
    assert reader.commits == []


@pytest.mark.parametrize("script", ["CREATE t:1", "CREATE t:1 SET pad = $large"])
async def test_a_feed_that_goes_while_another_is_told_is_told_nothing(
    node: Node, script: str
) -> None:
    reader, gone, last = Reader(), Reader(), Reader()
    await follow(node, reader)
    feed = await follow(node, gone)
    await follow(node, last)
    for each in (reader, gone, last):
        await each.caught_up()
    reader.told = feed.close
    heard = len(gone.said)
    sequence = await seq(node, script)
    await last.reached(sequence)
    await reader.reached(sequence)
    assert len(gone.said) == heard


async def test_a_log_that_too_many_wait_for_ends_the_feeds_saying_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def busy(self: Feeds, fiber: Fiber) -> list[Frame]:
        raise Busy("too many wait for the log to be read")

    async with node_with_tables() as node:
        reader = Reader()
        await follow(node, reader)
        await reader.caught_up()
        monkeypatch.setattr(Feeds, "_take", busy)
        await seq(node, "CREATE t:1")
        assert isinstance(await reader.over(), Busy)


async def test_the_node_ends_its_feeds_when_it_drains(node: Node) -> None:
    reader = Reader()
    await follow(node, reader)
    last = await seq(node, "CREATE t:1")
    await reader.reached(last)
    await node.drain()
    assert (await reader.over()).code == "Draining"
    assert reader.last == last
