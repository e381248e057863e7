"""Moments of the store that several requests read in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from actors.scripts.named_snapshots import NamedSnapshots
from protocol import limits
from protocol.errors import AnswerTooLarge, BadRequest, Busy, Refusal, Unknown
from protocol.requests import NEW_MOMENT, Caller, ScriptAnswer
from protocol.values import NONE
from tests.actors.parts import until
from tests.nodes import OWNER, Running
from tests.tables import case

OTHER = replace(OWNER, user="eve")
ALL = "SELECT VALUE n FROM thing ORDER BY id"


@pytest.fixture
async def filled(node: Running) -> Running:
    rows = [{"id": n, "n": n} for n in range(10)]
    await node.values(
        "DEFINE SPACE c; DEFINE TOPIC t; INSERT INTO thing $rows RETURN NONE;SET 'k' IN c VALUE 1",
        {"rows": rows},
    )
    return node


def moments(node: Running) -> NamedSnapshots:
    return node.node.moments


async def taken(node: Running, script: str = "", **fields: Any) -> str:
    """The name of a new moment."""
    answer = await node.answer(script, moment=NEW_MOMENT, **fields)
    assert answer.refusal is None and answer.moment is not None
    return answer.moment


async def refused(node: Running, script: str, **fields: Any) -> Refusal:
    answer = await node.answer(script, **fields)
    assert answer.refusal is not None, "it was not refused"
    return answer.refusal


def value(answer: ScriptAnswer) -> Any:
    assert answer.refusal is None, answer.refusal
    return answer.results[-1].value


async def test_what_is_committed_later_is_not_read(filled: Running) -> None:
    """Whatever changes: records, whole tables, fields and indexes, keys."""
    before = await filled.answer(f"{ALL}; GET 'k' FROM c; RETURN time::now()", moment=NEW_MOMENT)
    name = before.moment
    await filled.values(
        "UPDATE thing SET n = n + 100; DELETE thing:3; CREATE thing:77 SET n = 77;"
        "DEFINE INDEX by_n ON thing FIELDS n; SET 'k' IN c VALUE 2"
    )
    await until(lambda: not filled.node.committer.ledger.state.flight.write_sets)
    for _ in range(2):
        after = await filled.answer(f"{ALL}; GET 'k' FROM c; RETURN time::now()", moment=name)
        assert [one.value for one in after.results] == [one.value for one in before.results]
        assert (after.sequence, after.moment) == (before.sequence, name)
    by_index = await filled.answer("SELECT VALUE id FROM thing WHERE n = 3", moment=name)
    plan = await filled.answer("EXPLAIN SELECT * FROM thing WHERE n = 3", moment=name)
    assert len(value(by_index)) == 1 and "by_n" not in str(value(plan))
    await filled.values("DROP TABLE thing; DEFINE TABLE thing; CREATE thing:1 SET n = -1")
    assert value(await filled.answer(ALL, moment=name)) == list(range(10))
    assert await filled.value(ALL) == [-1]


async def test_every_statement_of_a_script_reads_the_same(filled: Running) -> None:
    """Without being one transaction, and without a name that anybody would have to remember."""
    long = "FOR $x IN 0..3000 { LET $y = (SELECT VALUE n FROM thing) }"
    running = asyncio.ensure_future(
        filled.answer(f"{ALL}; {long}; {ALL}", moment=NEW_MOMENT, keep_us=0)
    )
    await until(lambda: filled.node.registry.unfinished == 1)
    await filled.values("DELETE thing")
    answer = await running
    assert answer.results[0].value == answer.results[2].value == list(range(10))
    assert answer.moment is None and not moments(filled)


async def test_nothing_is_written_there(filled: Running) -> None:
    for script in [
        "CREATE thing",
        "DELETE thing:99",
        "SET 'k' IN c VALUE 2",
        "PUBLISH INTO t VALUE 1",
        "DEFINE TABLE other",
        "FOR $x IN [1] { UPDATE thing:1 SET n = 2 }",
        "BEGIN; CREATE thing; COMMIT",
        "IF true { DROP TABLE thing }",
        "LET $x = 1; INSERT INTO thing [{ n: 1 }]",
    ]:
        with case(script):
            name, at = await taken(filled), filled.node.committer.committed
            refusal = await refused(filled, script, moment=name)
            assert isinstance(refusal, BadRequest) and "statement" in refusal.detail
            assert filled.node.committer.committed == at
            assert value(await filled.answer(ALL, moment=name)) == list(range(10)), (
                "it is still kept"
            )


async def test_one_that_was_refused_has_no_name_and_is_not_kept(filled: Running) -> None:
    answer = await filled.answer("CREATE thing", moment=NEW_MOMENT)
    assert answer.refusal is not None and answer.moment is None
    assert not moments(filled) and not filled.node.committer.ledger.state.moments


async def test_an_expired_key_that_is_passed_over_stays_as_it_is(filled: Running) -> None:
    """What a moment finds expired may have been set again since."""
    await filled.values("SET 'k' IN c VALUE 1 EXPIRE 1us")
    name = await taken(filled)
    await filled.values("SET 'k' IN c VALUE 2")
    assert value(await filled.answer("GET 'k' FROM c", moment=name)) == NONE
    assert (await filled.value("GET 'k' FROM c"))["value"] == 2


async def test_one_whose_answer_is_too_large_is_not_kept(filled: Running) -> None:
    """Nobody would know its name."""
    answer = await filled.answer(ALL, moment=NEW_MOMENT, answer_bytes=20)
    assert isinstance(answer.refusal, AnswerTooLarge)
    assert not moments(filled) and not filled.node.committer.ledger.state.moments


@pytest.mark.parametrize("script", ["", "-- nothing", "USE shop.main"])
async def test_every_answer_names_its_sequence(filled: Running, script: str) -> None:
    first = await filled.answer(script, moment=NEW_MOMENT)
    await filled.values("UPDATE thing SET n = 7")
    again = await filled.answer(script, moment=first.moment)
    assert again.sequence == first.sequence < filled.node.committer.committed


async def test_a_key_that_was_told_to_have_expired_never_comes_back(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer waits until the log has it so: no clock of another start can undo that."""
    spaces, committer = filled.node.spaces, filled.node.committer
    monkeypatch.setattr(spaces, "expiring", lambda *_: None)  # nobody else removes it meanwhile
    await filled.values("SET 'k' IN c VALUE 1 EXPIRE 1us")
    name, at = await taken(filled), committer.commit_index
    assert value(await filled.answer("GET 'k' FROM c", moment=name)) == NONE
    assert committer.commit_index == at + 1


async def test_nobody_waits_there_for_what_can_not_come(filled: Running) -> None:
    name = await taken(filled)
    for script in ("READ FROM t AFTER 0 WAIT 300s", "LET $x = 1; READ FROM t AFTER 0 WAIT 1s"):
        assert isinstance(await refused(filled, script, moment=name), BadRequest)
    assert value(await filled.answer("READ FROM t AFTER 0", moment=name)) == []


async def test_it_belongs_to_its_user(filled: Running) -> None:
    name = await taken(filled)
    refusal = await refused(filled, ALL, moment=name, caller=OTHER)
    assert isinstance(refusal, Unknown) and refusal.detail["moment"] == name
    assert value(await filled.answer(ALL, moment=name)) == list(range(10))


async def test_it_ends_when_rights_change(filled: Running) -> None:
    """They are judged as they were then: nobody goes on with what was taken from him."""
    name = await taken(filled)
    await filled.values("DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    assert isinstance(await refused(filled, ALL, moment=name), Unknown)
    assert not filled.node.committer.ledger.state.moments, "it holds the state no more"
    assert value(await filled.answer(ALL, moment=await taken(filled))) == list(range(10))


async def test_what_rights_have_ended_takes_nobodys_room(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not its user comes back to be told."""
    monkeypatch.setattr(limits, "MOMENTS", 2)
    names = [await taken(filled, keep_us=60_000_000) for _ in range(2)]
    await filled.values("DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    assert not moments(filled) and not filled.node.committer.ledger.state.moments
    assert value(await filled.answer(ALL, moment=await taken(filled))) == list(range(10))
    for name in names:
        assert isinstance(await refused(filled, ALL, moment=name), Unknown)


async def test_one_that_is_made_while_rights_change_is_of_after_that(filled: Running) -> None:
    """It would be over before anybody had read in it."""
    ledger = filled.node.committer.ledger
    changing = asyncio.ensure_future(
        filled.values("DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    )
    while ledger.state.users_version <= ledger.state.commit_index:
        await asyncio.sleep(0)
    answer = await filled.answer(ALL, moment=NEW_MOMENT)
    assert value(answer) == list(range(10))
    assert answer.sequence >= ledger.state.users_version
    await changing
    assert value(await filled.answer(ALL, moment=answer.moment)) == list(range(10))


async def test_rights_that_change_under_a_script_end_it(filled: Running) -> None:
    long = "FOR $x IN 0..3000 { LET $y = (SELECT VALUE n FROM thing) }"
    running = asyncio.ensure_future(filled.answer(f"{long}; {ALL}", moment=NEW_MOMENT))
    await until(lambda: filled.node.registry.unfinished == 1)
    await filled.values("DEFINE USER eve ROLE owner PASSWORD 'a password of hers'")
    answer = await running
    assert isinstance(answer.refusal, Unknown)
    assert not filled.node.committer.ledger.state.moments


async def test_it_lapses(filled: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    name = await taken(filled, keep_us=20_000)
    await until(lambda: not moments(filled))
    assert isinstance(await refused(filled, ALL, moment=name), Unknown)
    assert not filled.node.committer.ledger.state.moments
    monkeypatch.setattr(limits, "MOMENT_LIFE_SECONDS", 0)
    await taken_for_a_moment(filled)
    await until(lambda: not filled.node.committer.ledger.state.moments)


async def taken_for_a_moment(node: Running) -> None:
    """However long a request says: its life is over."""
    await node.answer("RETURN 1", moment=NEW_MOMENT, keep_us=60_000_000)


async def test_reading_keeps_it(filled: Running) -> None:
    name = await taken(filled, keep_us=60_000_000)
    (kept,) = moments(filled)
    first = kept.lapses_us
    await filled.answer(ALL, moment=name, keep_us=120_000_000)
    assert kept.lapses_us >= first + 60_000_000
    await filled.answer("", moment=name, keep_us=0)
    assert not moments(filled) and not filled.node.committer.ledger.state.moments


async def test_how_many_there_are(filled: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOMENTS_OF_USER", 2)
    monkeypatch.setattr(limits, "MOMENTS", 3)
    names = [await taken(filled) for _ in range(2)]
    assert isinstance(await refused(filled, "", moment=NEW_MOMENT), Busy)
    await taken(filled, caller=OTHER)
    assert isinstance(await refused(filled, "", moment=NEW_MOMENT, caller=OTHER), Busy)
    for name in names:
        await filled.answer("", moment=name, keep_us=0)
    await taken(filled)


async def test_two_users_leave_room_for_a_third(filled: Running) -> None:
    async def kept(caller: Caller) -> int:
        count = 0
        while (answer := await filled.answer("", moment=NEW_MOMENT, caller=caller)).refusal is None:
            count += 1
        assert isinstance(answer.refusal, Busy)
        return count

    assert await kept(OWNER) == limits.MOMENTS_OF_USER
    assert await kept(OTHER) == limits.MOMENTS_OF_USER // 2
    assert await kept(replace(OWNER, user="dan")) == limits.MOMENTS_OF_USER // 4


async def test_how_long_it_is_kept_is_bounded(filled: Running) -> None:
    most = limits.MOMENT_KEEP_SECONDS * 1_000_000
    for keep_us in (-1, most + 1):
        refusal = await refused(filled, ALL, moment=NEW_MOMENT, keep_us=keep_us)
        assert isinstance(refusal, BadRequest)
    assert isinstance(await refused(filled, ALL, keep_us=1), BadRequest), "it keeps nothing"
    await taken(filled, keep_us=most)


async def test_what_is_in_flight_is_not_in_it(
    filled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may still be taken back is never shown; what was released and has not reached the
    engine is."""
    committer = filled.node.committer
    durable, held = committer.durable, list[Any]()
    monkeypatch.setattr(committer, "durable", lambda *told: held.append(told))
    released = committer.commit_index
    running = [asyncio.ensure_future(filled.values("UPDATE thing SET n = 5")) for _ in range(3)]
    while not held:
        await asyncio.sleep(0)
    answer = await filled.answer(ALL, moment=NEW_MOMENT)
    assert answer.sequence == released < committer.committed
    assert value(answer) == list(range(10))
    monkeypatch.undo()
    for told in held:
        durable(*told)
    await asyncio.gather(*running)
    assert value(await filled.answer(ALL, moment=answer.moment)) == list(range(10))


async def test_a_full_disk_ends_all(filled: Running) -> None:
    name = await taken(filled)
    for tell in filled.node.committer.on_roll_back:
        tell()
    assert isinstance(await refused(filled, ALL, moment=name), Unknown)
    assert not filled.node.committer.ledger.state.moments
