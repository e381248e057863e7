"""Statements on topics on a real node: what they answer, what commits together, who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import chain, count
from typing import Any

import pytest

from actors.execution.fiber import Fiber
from actors.runtime import ask, tell
from protocol import limits
from protocol.errors import (
    BadRequest,
    Busy,
    Cancelled,
    NotAllowed,
    NotInTransaction,
    NotWritable,
    SessionEnded,
    StatementTimeout,
    TooLarge,
    TypeRefused,
    Unknown,
)
from protocol.messages import PublishMessages
from protocol.requests import (
    Caller,
    CancelScript,
    RunScript,
    ScriptAnswer,
    Session,
    SignIn,
    SignOut,
)
from protocol.rights import Verb
from protocol.values import PACE
from tests.actors.live import running_scripts
from tests.callers import Granted, declare
from tests.nodes import OWNER, Running
from tests.operations import Operated
from tests.receipts import settled

EVE = replace(OWNER, user="eve")
DECLARED = "DEFINE TOPIC t; DEFINE GROUP g ON t DEADLINE 1h IN FLIGHT 10"


@pytest.fixture
async def here(node: Running) -> Running:
    """A node with topic `t` and its group `g`."""
    await node.values(DECLARED)
    return node


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)


def started(here: Running, script: str, **fields: Any) -> asyncio.Task[ScriptAnswer]:
    """A script under way. One that is only ended by its own WAIT of a minute was not woken."""
    return asyncio.ensure_future(asyncio.wait_for(here.answer(script, **fields), 30))


async def waiting(here: Running, count: int) -> None:
    """Until so many scripts wait."""
    await until(lambda: sum(run.waiting for run in running_scripts(here.node)) == count)


def found(answer: ScriptAnswer) -> Any:
    assert answer.refusal is None, answer.refusal
    return answer.results[-1].value


def positions(messages: list[dict[str, Any]]) -> list[int]:
    return [message["position"] for message in messages]


def receipts(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"r": [message["receipt"] for message in messages]}


# --- without waiting ------------------------------------------------------------------------------


async def test_what_goes_in_comes_out(here: Running) -> None:
    assert await here.value("PUBLISH INTO t VALUE {a: 1} KEY 'k' HEADERS {h: 'x'}") == {
        "position": 1,
        "duplicate": False,
    }
    many = await here.value("PUBLISH INTO t VALUES [1, 'two', NULL]")
    assert many == {"first": 2, "last": 4, "count": 3}
    read = await here.value("READ FROM t AFTER 0")
    assert [message["value"] for message in read] == [{"a": 1}, 1, "two", None]
    assert read[0]["key"] == "k" and read[0]["headers"] == {"h": "x"} and read[1]["key"] is None
    taken = await here.value("TAKE 3 FROM t AS g MEMBER 'm'")
    assert positions(taken) == [1, 2, 3]
    assert {message["attempt"] for message in taken} == {1}
    assert {message["member"] for message in taken} == {"m"}
    assert await here.value("ACK t AS g RECEIPTS $r", receipts(taken)) == settled("acked", 3)
    assert await here.value("ACK t AS g RECEIPTS $r", receipts(taken)) == settled(
        "acked", 0, receipts(taken)["r"]
    )
    assert positions(await here.value("TAKE 5 FROM t AS g")) == [4]


async def test_a_nack_hands_out_again_and_give_up_does_not(here: Running) -> None:
    await here.value("PUBLISH INTO t VALUES [1, 2]")
    first, second = await here.value("TAKE 2 FROM t AS g")
    nacked = await here.value("NACK t AS g RECEIPTS $r ERROR 'no'", receipts([first]))
    assert nacked == settled("nacked", 1)
    extended = await here.value("EXTEND t AS g RECEIPTS $r BY 1m", receipts([second]))
    assert extended == settled("extended", 1)
    (again,) = await here.value("TAKE 5 FROM t AS g")
    assert (again["position"], again["attempt"]) == (1, 2)
    gone = await here.value("GIVE UP t AS g RECEIPTS $r", receipts([again, second]))
    assert gone == settled("given_up", 2)
    figures = await here.value("INFO FOR GROUP g ON t")
    assert (figures["committed"], figures["in_flight"], figures["dead_lettered"]) == (2, 0, 2)


async def test_readers_stand_where_they_are_put(here: Running) -> None:
    await here.value("PUBLISH INTO t VALUES [1, 2, 3]")
    await here.values("DEFINE READER r ON t; DEFINE READER late ON t AT END")
    assert positions(await here.value("READ FROM t AS r LIMIT 2")) == [1, 2]
    assert positions(await here.value("READ FROM t AS r")) == [1, 2, 3]
    assert await here.value("COMMIT READER r ON t AT 2") == {"position": 2}
    assert positions(await here.value("READ FROM t AS r")) == [3]
    assert await here.value("READ FROM t AS late") == []
    await here.values("ALTER READER late ON t SET POSITION 1")
    assert positions(await here.value("READ FROM t AS late")) == [2, 3]
    with pytest.raises(BadRequest):
        await here.values("COMMIT READER r ON t AT 4")
    await here.values("DROP READER r ON t")
    with pytest.raises(Unknown):
        await here.values("READ FROM t AS r")


async def test_info_shows_topics_readers_and_groups(here: Running) -> None:
    await here.values("PUBLISH INTO t VALUES [1, 2, 3]; DEFINE READER r ON t; TAKE FROM t AS g")
    info = await here.value("INFO FOR TOPIC t")
    assert (info["name"], info["messages"], info["last_position"], info["lag"]) == ("t", 3, 3, 3)
    assert [reader["lag"] for reader in info["readers"]] == [3]
    (group,) = info["groups"]
    assert (group["handed_out"], group["committed"], group["in_flight"]) == (1, 0, 1)
    assert (group["deadline"], group["max_in_flight"]) == (timedelta(hours=1), 10)
    assert await here.value("INFO FOR GROUP g ON t") | group == await here.value(
        "INFO FOR GROUP g ON t"
    )
    (topic,) = (await here.value("INFO FOR DATABASE"))["topics"]
    assert (topic["name"], topic["messages"], topic["last_position"]) == ("t", 3, 3)


async def test_a_message_a_record_and_a_key_are_one_commit(here: Running) -> None:
    await here.values("DEFINE SPACE s; PUBLISH INTO t VALUE 0")
    (taken,) = await here.value("TAKE FROM t AS g")
    before = here.node.committer.committed
    await here.values(
        "BEGIN; CREATE thing:1; PUBLISH INTO t VALUE 'made'; SET 'k' IN s VALUE 1;"
        " ACK t AS g RECEIPTS $r; COMMIT",
        receipts([taken]),
    )
    assert here.node.committer.committed == before + 1
    answer = await here.answer(
        "BEGIN; CREATE thing:2; PUBLISH INTO t VALUE 'not'; SET 'k' IN s VALUE 2; THROW 'x'; COMMIT"
    )
    assert answer.refusal is not None
    assert [m["value"] for m in await here.value("READ FROM t AFTER 0")] == [0, "made"]
    assert (await here.value("GET 'k' FROM s"))["value"] == 1


@pytest.mark.parametrize("bound", ["KEEP 1h", "BYTES 700", "BYTES 1MiB"])
async def test_publishers_that_pause_lose_no_race_where_the_oldest_make_room(
    here: Running, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the topic holds is looked at for what is to be trimmed, and that comes after them."""
    monkeypatch.setattr(limits, "COMMIT_RETRIES", 0)
    await here.value(f"DEFINE TOPIC x {bound}")
    text = {"v": "x" * 200}
    script = (
        "BEGIN; PUBLISH INTO x VALUE $v; FOR $n IN 0..20000 { LET $y = $n };"
        " PUBLISH INTO x VALUE $v; COMMIT"
    )
    running = started(here, script, parameters=text)
    await until(lambda: any(run.fiber.slices > 0 for run in running_scripts(here.node)))
    assert await here.value("PUBLISH INTO x VALUE $v", text) == {"position": 1, "duplicate": False}
    answer = await running
    assert answer.refusal is None
    assert answer.results[-2].value == {"position": 3, "duplicate": False}
    first = 2 if bound == "BYTES 700" else 1  # though each publisher saw less than that
    async with asyncio.timeout(10):
        while (await here.value("INFO FOR TOPIC x"))["first_position"] < first:
            await asyncio.sleep(0.01)


async def test_expect_is_met_by_one_of_many(here: Running) -> None:
    answers = await asyncio.gather(
        *(here.answer(f"PUBLISH INTO t VALUE {n} EXPECT 0") for n in range(20))
    )
    refused = [answer.refusal for answer in answers if answer.refusal is not None]
    assert len(refused) == 19
    assert {refusal.code for refusal in refused} == {"AssertFailed"}


async def test_an_id_is_published_once_within_its_time(here: Running) -> None:
    await here.values("DEFINE TOPIC d DEDUP 1h")
    first = await here.value("PUBLISH INTO d VALUE 1 ID 'x'")
    again = await here.value("PUBLISH INTO d VALUE 2 ID 'x'")
    assert (first["duplicate"], again) == (False, {"position": 1, "duplicate": True})
    assert (await here.value("INFO FOR TOPIC d"))["messages"] == 1


async def test_trimming_takes_hand_outs_with_it(here: Running) -> None:
    await here.value("PUBLISH INTO t VALUES [1, 2, 3]")
    taken = await here.value("TAKE 2 FROM t AS g")
    assert await here.value("TRIM TOPIC t BEFORE 3 REASON 'old'") == {"trimmed": 2}
    assert await here.value("ACK t AS g RECEIPTS $r", receipts(taken)) == settled(
        "acked", 0, receipts(taken)["r"]
    )
    assert positions(await here.value("TAKE 9 FROM t AS g")) == [3]


async def test_dead_letters_and_back(here: Running) -> None:
    await here.values("DEFINE TOPIC dead; DEFINE GROUP h ON t DEADLINE 1s DELIVERIES 1"
                      " DEAD LETTER dead; PUBLISH INTO t VALUE 'bad' KEY 'k'")  # fmt: skip
    taken = await here.value("TAKE FROM t AS h")
    await here.values("NACK t AS h RECEIPTS $r ERROR 'it was bad'", receipts(taken))
    (letter,) = await here.value("READ FROM dead AFTER 0")
    assert (letter["value"], letter["key"]) == ("bad", "k")
    assert letter["headers"]["dead-error"] == "it was bad"
    assert await here.value("REDRIVE FROM dead TO t") == {"moved": 1, "first": 2, "last": 2}
    assert await here.value("REDRIVE FROM dead TO t") == {"moved": 0, "first": None, "last": None}
    assert (await here.value("READ FROM t AFTER 1"))[0]["headers"] == {}


async def test_a_moved_group_makes_receipts_stale(here: Running) -> None:
    await here.value("PUBLISH INTO t VALUES [1, 2, 3]")
    taken = await here.value("TAKE 2 FROM t AS g")
    await here.values("ALTER GROUP g ON t SET POSITION END REASON 'skip'")
    assert await here.value("ACK t AS g RECEIPTS $r", receipts(taken)) == settled(
        "acked", 0, receipts(taken)["r"]
    )
    assert await here.value("TAKE FROM t AS g") == []
    await here.values("ALTER GROUP g ON t SET POSITION START, DEADLINE 5s, IN FLIGHT 1")
    assert positions(await here.value("TAKE 9 FROM t AS g")) == [1]


async def test_what_is_altered_counts(here: Running) -> None:
    await here.values("ALTER TOPIC t SET KEEP 1h, BYTES 1MiB, LARGEST 1KiB, FULL REFUSE")
    info = await here.value("INFO FOR TOPIC t")
    assert (info["keep"], info["max_bytes"], info["largest"]) == (
        timedelta(hours=1), limits.MIB, limits.KIB,
    )  # fmt: skip
    await here.values("ALTER TOPIC t SET KEEP NONE, BYTES NONE, LARGEST NONE")
    info = await here.value("INFO FOR TOPIC t")
    assert (info["keep"], info["max_bytes"]) == (None, None)


RIGHTS = {
    "PUBLISH INTO t VALUE 1": "WRITE",
    "READ FROM t AFTER 0": "READ",
    "READ FROM t AS r": "CONSUME",
    "TAKE FROM t AS g": "CONSUME",
    "ACK t AS g RECEIPTS []": "CONSUME",
    "NACK t AS g RECEIPTS []": "CONSUME",
    "EXTEND t AS g RECEIPTS [] BY 1s": "CONSUME",
    "GIVE UP t AS g RECEIPTS []": "CONSUME",
    "DEFINE READER q ON t": "CONSUME",
    "COMMIT READER r ON t AT 0": "CONSUME",
    "ALTER READER r ON t SET POSITION END": "CONSUME",
    "DROP READER r ON t": "CONSUME",
    "DEFINE GROUP h ON t DEADLINE 1s": "DEFINE",
    "ALTER GROUP g ON t SET POSITION END": "DEFINE",
    "ALTER GROUP g ON t SET IN FLIGHT 5": "DEFINE",
    "DROP GROUP g ON t": "DEFINE",
    "ALTER TOPIC t SET KEEP 1h": "DEFINE",
    "TRIM TOPIC t BEFORE 1": "DEFINE",
    "INFO FOR TOPIC t": "INFO",
    "INFO FOR GROUP g ON t": "INFO",
    "REDRIVE FROM t TO u": "CONSUME",
}


@pytest.mark.parametrize("statement", RIGHTS)
async def test_what_a_statement_needs(here: Running, statement: str) -> None:
    await here.values("DEFINE READER r ON t; DEFINE TOPIC u")
    eve = await declare(here.node, "eve", "member")
    Granted(here.node).grant("eve", Verb.UNSEAL, "shop", "main")  # it sees them, and that is all
    answer = await here.answer(statement, caller=eve)
    assert isinstance(answer.refusal, NotAllowed)
    assert answer.refusal.detail["needs"] == f"{RIGHTS[statement]} ON TOPIC shop.main.t"


async def test_what_goes_into_another_topic_needs_write_there(here: Running) -> None:
    """REDRIVE and DEAD LETTER: what one may take from a topic says nothing about another."""
    await here.values("DEFINE TOPIC dead; PUBLISH INTO dead VALUE 1")
    granted, mover = Granted(here.node), await declare(here.node, "mover", "member")
    for verb, topic in ((Verb.CONSUME, "dead"), (Verb.READ, "t")):
        granted.grant("mover", verb, "shop", "main", topic, kind="topic")
    refusal = (await here.answer("REDRIVE FROM dead TO t", caller=mover)).refusal
    assert isinstance(refusal, NotAllowed)
    assert refusal.detail["needs"] == "WRITE ON TOPIC shop.main.t"
    assert len(await here.value("READ FROM dead AFTER 0")) == 1
    granted.grant("mover", Verb.WRITE, "shop", "main", "t", kind="topic")
    assert found(await here.answer("REDRIVE FROM dead TO t", caller=mover))["moved"] == 1
    granted.grant("mover", Verb.DEFINE, "shop", "main", "t", kind="topic")
    for statement in (
        "DEFINE GROUP h ON t DEADLINE 1s DEAD LETTER dead",
        "ALTER GROUP g ON t SET DEAD LETTER dead",
    ):
        refusal = (await here.answer(statement, caller=mover)).refusal
        assert isinstance(refusal, NotAllowed), statement
        assert refusal.detail["needs"] == "WRITE ON TOPIC shop.main.dead"


async def test_a_node_that_is_not_writable_still_reads(here: Running) -> None:
    await here.values("PUBLISH INTO t VALUE 1; DEFINE READER r ON t; DEFINE TOPIC u;"
                      " DEFINE NODE ROLES serving")  # fmt: skip
    reads = [text for text, verb in RIGHTS.items() if verb in ("READ", "INFO") or " AS r" in text]
    for statement in RIGHTS:
        answer = await here.answer(statement)
        refused = isinstance(answer.refusal, NotWritable)
        assert refused is (statement not in reads), statement


# --- waiting --------------------------------------------------------------------------------------


async def test_a_take_waits_until_something_is_published(here: Running) -> None:
    taking = started(here, "TAKE 5 FROM t AS g WAIT 1m")
    await waiting(here, 1)
    await here.value("PUBLISH INTO t VALUES [1, 2]")
    assert positions(found(await taking)) == [1, 2]
    assert len(here.node.topics.waits) == 0


async def test_a_read_waits_for_what_it_wants(here: Running) -> None:
    await here.values("PUBLISH INTO t VALUE 1; DEFINE READER r ON t AT END")
    one = started(here, "READ FROM t AFTER 1 WAIT 1m")
    two = started(here, "READ FROM t AFTER 2 WAIT 1m")
    named = started(here, "READ FROM t AS r WAIT 1m")
    await waiting(here, 3)
    await here.value("PUBLISH INTO t VALUE 2")
    assert positions(found(await one)) == [2]
    assert positions(found(await named)) == [2]
    await waiting(here, 1)
    await here.value("PUBLISH INTO t VALUE 3")
    assert positions(found(await two)) == [3]


class Meanwhile:
    """What others do while a script pauses at one of its ticks, as if its slice were used up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[Any]]) -> None:
        self.left = 0
        """The tick at which it is to happen; below 1: it has."""
        tick = Fiber.tick

        def paused(fiber: Fiber, cost: int = PACE) -> None:
            self.left -= 1
            if self.left == 0:
                fiber.wait(act())
            else:
                tick(fiber, cost)

        monkeypatch.setattr(Fiber, "tick", paused)


@pytest.mark.parametrize(
    "waits", ["TAKE FROM t AS g WAIT 1m", "READ FROM t AS r WAIT 1m", "READ FROM t AFTER 0 WAIT 1m"]
)
async def test_what_comes_while_a_script_pauses_before_it_waits_is_not_missed(
    here: Running, monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    async def publish() -> None:
        await Operated(here.node, PublishMessages("t", [1]), OWNER, ("shop", "main"))

    meanwhile = Meanwhile(monkeypatch, publish)
    paused = 0
    for tick in chain((1,), count(1)):  # the first is that of a text that is not known yet
        await here.values("DROP TOPIC t; " + DECLARED + "; DEFINE READER r ON t")
        meanwhile.left = tick
        waiting_ = started(here, "LET $x = 1; " + waits)
        await until(
            lambda: meanwhile.left <= 0 or any(r.waiting for r in running_scripts(here.node))
        )
        if meanwhile.left > 0:
            await here.value("PUBLISH INTO t VALUE 1")
        assert positions(found(await waiting_)) == [1], tick
        if meanwhile.left > 0:
            break
        paused += 1
    assert paused > 1, "in its transaction too"


async def test_what_is_there_is_not_waited_for(here: Running) -> None:
    await here.value("PUBLISH INTO t VALUES [1, 2]")
    assert positions(await here.value("READ FROM t AFTER 0 WAIT 1m")) == [1, 2]
    assert positions(await here.value("TAKE FROM t AS g WAIT 1m")) == [1]


async def test_a_wait_ends_empty_when_its_time_is_over(here: Running) -> None:
    assert await here.value("TAKE FROM t AS g WAIT 1ms") == []
    assert await here.value("READ FROM t AFTER 0 WAIT 1ms") == []
    assert await here.value("TAKE FROM t AS g WAIT 0s") == []
    assert len(here.node.topics.waits) == 0


async def test_a_nack_a_lapse_and_room_wake(here: Running) -> None:
    await here.values("PUBLISH INTO t VALUE 1; DEFINE GROUP one ON t DEADLINE 50ms IN FLIGHT 1")
    (first,) = await here.value("TAKE FROM t AS g")
    taking = started(here, "TAKE FROM t AS g WAIT 1m")
    await waiting(here, 1)
    await here.value("NACK t AS g RECEIPTS $r", receipts([first]))
    assert found(await taking)[0]["attempt"] == 2
    # Its deadline passes and nobody says anything.
    await here.value("TAKE FROM t AS one")
    (lapsed,) = found(await here.answer("TAKE FROM t AS one WAIT 1m"))
    assert lapsed["attempt"] == 2
    # As many are in flight as may; an ACK makes room.
    await here.values("ALTER GROUP one ON t SET DEADLINE 1h, POSITION START")
    await here.value("PUBLISH INTO t VALUE 2")
    held = await here.value("TAKE FROM t AS one")
    taking = started(here, "TAKE FROM t AS one WAIT 1m")
    await waiting(here, 1)
    await here.value("ACK t AS one RECEIPTS $r", receipts(held))
    assert positions(found(await taking)) == [2]


async def test_a_delay_and_a_backoff_are_waited_for(here: Running) -> None:
    await here.values("ALTER GROUP g ON t SET BACKOFF 40ms; PUBLISH INTO t VALUE 1 DELAY 40ms")
    (late,) = await here.value("TAKE FROM t AS g WAIT 1m")
    # From the time of the transaction; one that gives way in between is committed a little later.
    assert late["due"] <= late["at"] + timedelta(milliseconds=40)
    await here.value("NACK t AS g RECEIPTS $r", receipts([late]))
    assert (await here.value("TAKE FROM t AS g WAIT 1m"))[0]["attempt"] == 2
    taking = started(here, "TAKE FROM t AS g WAIT 1m")
    await waiting(here, 1)
    await here.value("PUBLISH INTO t VALUE 2 DELAY 40ms")
    assert positions(found(await taking)) == [2]
    await here.value("PUBLISH INTO t VALUE 3 DELAY 1h")
    assert await here.value("TAKE FROM t AS g WAIT 1ms") == []


async def test_who_waits_is_served_first_come_first_served(here: Running) -> None:
    takers = []
    for number in range(50):
        takers.append(started(here, f"TAKE FROM t AS g MEMBER 'm{number}' WAIT 1m"))
        await waiting(here, number + 1)
    await here.values("ALTER GROUP g ON t SET IN FLIGHT 1000; PUBLISH INTO t VALUES $v",
                      {"v": list(range(30))})  # fmt: skip
    for number, taker in enumerate(takers[:30]):
        assert positions(found(await taker)) == [number + 1]
    await waiting(here, 20)
    for number in range(30, 50):
        await here.value("PUBLISH INTO t VALUE 1")
        assert positions(found(await takers[number])) == [number + 1]


async def test_cancel_kill_and_timeout_end_a_wait(here: Running) -> None:
    request = RunScript(OWNER, "TAKE FROM t AS g WAIT 1m", "r-x", {}, "shop", "main")
    taking = ask(here.node.scripts, request)
    reading = started(here, "READ FROM t AFTER 0 WAIT 1m")
    timed = started(here, "TAKE FROM t AS g WAIT 1m", timeout_us=30_000)
    ended = await timed
    assert isinstance(ended.refusal, StatementTimeout)
    assert not ended.results, "that nothing was found is no answer of what was refused"
    await waiting(here, 2)
    tell(here.node.scripts, CancelScript("r-x"))
    assert isinstance((await taking).refusal, Cancelled)
    (shown,) = [run for run in await here.value("INFO FOR RUNNING") if run["waiting"]]
    assert shown["text"] == "READ FROM t AFTER 0 WAIT 1m"
    await here.values(f"KILL '{shown['id']}'")
    refusal = (await reading).refusal
    assert isinstance(refusal, Cancelled) and "killed by root" in refusal.message
    assert refusal.detail["statement"] == 1
    assert len(here.node.topics.waits) == 0


@pytest.mark.parametrize(
    "statement",
    ["DROP TOPIC t", "DROP GROUP g ON t", "DROP DATABASE main", "DROP NAMESPACE shop",
     "BEGIN; DROP GROUP g ON t; DEFINE GROUP g ON t DEADLINE 1s; COMMIT"],
)  # fmt: skip
async def test_what_is_dropped_is_not_waited_for(here: Running, statement: str) -> None:
    taking = [started(here, "TAKE FROM t AS g WAIT 1m") for _ in range(3)]
    await waiting(here, 3)
    await here.values(statement)
    for each in taking:
        assert isinstance((await each).refusal, Unknown)
    assert len(here.node.topics.waits) == 0


async def test_a_drain_answers_who_waits_with_what_there_is(here: Running) -> None:
    waits = [started(here, "TAKE FROM t AS g WAIT 1m") for _ in range(3)]
    waits.append(started(here, "READ FROM t AFTER 0 WAIT 1m"))
    await waiting(here, 4)
    here.node.not_ready()
    assert [found(answer) for answer in await asyncio.gather(*waits)] == [[]] * 4
    assert found(await here.answer("TAKE FROM t AS g WAIT 1m")) == []
    await here.node.drain()


async def test_a_node_without_its_role_lets_nobody_wait(here: Running) -> None:
    taking = started(here, "TAKE FROM t AS g WAIT 1m")
    reading = started(here, "READ FROM t AFTER 0 WAIT 1m")
    await waiting(here, 2)
    await here.values("DEFINE NODE ROLES serving")
    assert isinstance((await taking).refusal, NotWritable)
    await waiting(here, 1)
    await here.values("DEFINE NODE ROLES serving, writable; PUBLISH INTO t VALUE 1")
    assert positions(found(await reading)) == [1]


async def test_a_node_that_is_drained_of_its_roles_answers_who_waits(here: Running) -> None:
    await here.value("DEFINE READER r ON t")
    reading = [started(here, text) for text in ("READ FROM t AFTER 0 WAIT 1m",
                                                "READ FROM t AS r WAIT 1m")]  # fmt: skip
    await waiting(here, 2)
    await here.values("DEFINE NODE ROLES NONE")
    assert [found(answer) for answer in await asyncio.gather(*reading)] == [[], []]
    await here.values("DEFINE NODE ROLES serving, writable")
    again = started(here, "READ FROM t AFTER 0 WAIT 1m")
    await waiting(here, 1)
    await here.value("PUBLISH INTO t VALUE 1")
    assert positions(found(await again)) == [1]


ENDS_SESSIONS = (
    "DROP USER other",
    "ALTER USER other SET PASSWORD 'quite another one'",
)
OTHERS_PASSWORD = "a password of its own"


async def signed_in(here: Running) -> Session:
    """A session of user `other`."""
    await here.values(f"DEFINE USER IF NOT EXISTS other ROLE owner PASSWORD '{OTHERS_PASSWORD}'")
    signing_in = SignIn("other", OTHERS_PASSWORD, "http", "127.0.0.1:50002")
    return await ask(here.node.sessions, signing_in)


@pytest.mark.parametrize("statement", ENDS_SESSIONS)
async def test_who_is_no_user_any_more_waits_no_more(here: Running, statement: str) -> None:
    other = (await signed_in(here)).caller
    basic = Caller("other", "owner", None, None, "http", "127.0.0.1:50003")
    theirs = [started(here, "TAKE FROM t AS g WAIT 1m", caller=who) for who in (other, basic)]
    mine = started(here, "TAKE FROM t AS g WAIT 1m")
    await waiting(here, 3)
    await here.values(f"{statement}; PUBLISH INTO t VALUE 1")
    for each in theirs:
        assert isinstance((await each).refusal, SessionEnded)
    assert positions(found(await mine)) == [1]


async def test_who_signs_out_waits_no_more(here: Running) -> None:
    """And nobody else's wait ends with it, another session's of the same user neither."""
    one, two = await signed_in(here), await signed_in(here)
    theirs = [
        started(here, statement, caller=one.caller)
        for statement in ("TAKE FROM t AS g WAIT 1m", "READ FROM t AFTER 0 WAIT 1m")
    ]
    await waiting(here, 2)
    mine = started(here, "TAKE FROM t AS g WAIT 1m", caller=two.caller)
    await waiting(here, 3)
    # Published and signed out at once: the first in line has been woken, and has not looked.
    publishing = started(here, "PUBLISH INTO t VALUE 1")
    await ask(here.node.sessions, SignOut(one.token))
    await publishing
    for each in theirs:
        refusal = (await each).refusal
        assert isinstance(refusal, SessionEnded) and refusal.detail["statement"] == 1
    assert positions(found(await mine)) == [1]
    answer = await here.answer("TAKE FROM t AS g WAIT 1m", caller=one.caller)
    assert isinstance(answer.refusal, SessionEnded), "a script that comes late"
    assert len(here.node.topics.waits) == 0


async def test_a_wait_stands_alone(here: Running) -> None:
    for script in (
        "BEGIN; TAKE FROM t AS g WAIT 1s; COMMIT",
        "BEGIN; READ FROM t AFTER 0 WAIT 1s; COMMIT",
        "IF true { TAKE FROM t AS g WAIT 1s }",
        "FOR $x IN [1] { READ FROM t AFTER 0 WAIT 1s }",
        "IF true { IF true { TAKE FROM t AS g WAIT 1s } }",
    ):
        assert isinstance((await here.answer(script)).refusal, NotInTransaction), script
    for wait in ("301s", "-1s"):
        assert isinstance((await here.answer(f"TAKE FROM t AS g WAIT {wait}")).refusal, BadRequest)
    answer = await here.answer("TAKE FROM t AS g WAIT $w", {"w": 5})
    assert isinstance(answer.refusal, TypeRefused)
    assert len(here.node.topics.waits) == 0


async def test_what_a_script_did_before_it_waits_is_committed(here: Running) -> None:
    taking = started(here, "CREATE thing:1; TAKE FROM t AS g WAIT 1m; CREATE thing:2")
    await waiting(here, 1)
    assert len(await here.value("SELECT * FROM thing")) == 1
    assert not here.node.committer.ledger.state.paused
    await here.value("PUBLISH INTO t VALUE 1")
    answer = await taking
    assert [result.rows for result in answer.results] == [1, 0, 1]
    assert len(await here.value("SELECT * FROM thing")) == 2


async def test_not_more_wait_than_may(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One user leaves room for another."""
    monkeypatch.setattr(limits, "WAITING", 2)
    await here.values("DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    two = [started(here, "TAKE FROM t AS g WAIT 1m") for _ in range(2)]
    await waiting(here, 2)
    assert isinstance((await here.answer("TAKE FROM t AS g WAIT 1m")).refusal, Busy)
    hers = started(here, "TAKE FROM t AS g WAIT 1m", caller=EVE)
    await waiting(here, 3)
    here.node.not_ready()
    await asyncio.gather(*two, hers)


@pytest.mark.parametrize("script", ["TAKE FROM t AS {g}", "TAKE FROM t AS {g} WAIT 1m"])
async def test_a_take_passes_more_than_one_commit_holds(
    here: Running, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Delayed messages, messages behind one of their key, lapsed deadlines: however many are in the
    way, it gets to what is behind them, in commits of their own."""
    await here.values(
        "DEFINE TOPIC dead; DEFINE GROUP ordered ON t DEADLINE 1h ORDERED BY KEY;"
        "DEFINE GROUP once ON t DEADLINE 1m IN FLIGHT 10000 DELIVERIES 1 DEAD LETTER dead"
    )
    await here.values("PUBLISH INTO t VALUES $v KEY 'hot'", {"v": ["x" * 50] * 1500})
    await here.values("TAKE FROM t AS ordered; TAKE 1000 FROM t AS once; TAKE 500 FROM t AS once")
    await here.values("PUBLISH INTO t VALUES $v DELAY 1h; PUBLISH INTO t VALUE 'at once'",
                      {"v": ["x" * 50] * 1500})  # fmt: skip
    # Nothing else looks after them.
    monkeypatch.setattr(here.node.topics.schedules, "start_due_work", lambda: None)
    await here.values("ALTER GROUP g ON t SET POSITION 1500")
    monkeypatch.setattr(limits, "TRANSACTION_BYTES", 64 * limits.KIB)
    monkeypatch.setattr(limits, "TAKE_BYTES", 16 * limits.KIB)
    monkeypatch.setattr(limits, "LAPSE_BYTES", 16 * limits.KIB)
    monkeypatch.setattr(limits, "GROUP_LOOKED", 100)
    ledger: Any = here.node.committer.ledger
    for group in ("ordered", "once", "g"):
        if group == "once":
            ledger._log_time.reaches(ledger.log_time() + 60_000_000)
        before = here.node.committer.committed
        (found,) = await here.value(script.format(g=group))
        assert found["value"] == "at once"
        assert here.node.committer.committed - before > 3, group
    answer = await here.answer("BEGIN; ALTER GROUP g ON t SET POSITION 1500; TAKE FROM t AS g;"
                               "COMMIT")  # fmt: skip
    assert isinstance(answer.refusal, TooLarge), "a block is one commit"
