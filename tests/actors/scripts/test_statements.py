"""The statement log and the audit trail: what is kept, of whom, and who sees it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from actors import entry_retention, statements
from actors.execution.request import RequestOrigin
from actors.runtime import ask
from actors.scripts.handlers import HANDLERS, Requires
from actors.settings import NodeSettings
from language import tree
from protocol import limits
from protocol.errors import Draining, NotEnoughReplicas, Refusal, SignInRefused
from protocol.requests import (
    AuthenticatePassword,
    Caller,
    ChangePassword,
    SignIn,
    SignOut,
    Surface,
)
from protocol.rights import DEFINE, OWN
from protocol.spaces import SetKey
from protocol.values import NONE
from storage.audit.trail import EntryOrigin
from tests.logbook import Logbook
from tests.nodes import OWNER, PASSWORD, Running, running
from tests.tables import case

NEW: Final = "PASSWORD 'correct horse battery'"


def who(name: str) -> Caller:
    return replace(OWNER, user=name, role="?", space="?")


async def told(node: Running, name: str, script: str = "INFO FOR STATEMENTS", **more: Any) -> Any:
    """The value of a script's last statement, or the code of its refusal."""
    answer = await node.answer(script, caller=who(name), **more)
    return answer.refusal.code if answer.refusal is not None else answer.results[-1].value


async def texts(
    node: Running, name: str = "root", script: str = "INFO FOR STATEMENTS"
) -> list[Any]:
    return [entry["statement"] for entry in await told(node, name, script)]


@pytest.fixture
async def house(node: Running) -> Running:
    """A store with two tenants, an owner and a member of one of them."""
    await node.values("DEFINE NAMESPACE bank; DEFINE DATABASE bank.vip")
    for name, role in (("dan", "owner ON DATABASE shop.main"), ("mem", "member ON NAMESPACE shop")):
        await node.values(f"DEFINE USER {name} ROLE {role} {NEW}")
    return node


async def test_each_change_is_kept_with_who_and_why_and_where(house: Running) -> None:
    answer = await house.answer("CREATE thing:1 SET n = $n; DELETE thing:1", {"n": 4}, reason="r1")
    (deleted, created) = await told(house, "root", "INFO FOR STATEMENTS LIMIT 2")
    assert created == created | {
        "seq": deleted["seq"] - 1, "user": "root", "surface": "http", "address": OWNER.address,
        "namespace": "shop", "database": "main", "action": "statement", "reason": "r1",
        "statement": "CREATE thing:1 SET n = $n", "refused": None, "needs": None, "more": 0,
    }  # fmt: skip
    assert deleted["statement"] == "DELETE thing:1"
    assert deleted["seq"] == answer.sequence
    assert created["request"] == deleted["request"]


async def test_what_only_reads_is_kept_when_it_is_asked_for(house: Running) -> None:
    await house.answer("SELECT * FROM thing")
    await house.answer("SELECT * FROM thing LIMIT 1; RETURN 1", record=True)
    await house.answer("SELECT * FROM nowhere", record=True)
    newest = await told(house, "root", "INFO FOR STATEMENTS LIMIT 3")
    assert [(each["statement"], each["refused"]) for each in newest] == [
        ("SELECT * FROM nowhere", "Unknown"), ("RETURN 1", None),
        ("SELECT * FROM thing LIMIT 1", None),
    ]  # fmt: skip
    assert "SELECT * FROM thing" not in await texts(house)


async def test_a_refused_right_is_kept(house: Running) -> None:
    await house.values(
        "GRANT READ ON TABLE thing TO mem; DEFINE SPACE c; GRANT READ ON SPACE c TO mem"
    )
    assert await told(house, "mem", "CREATE thing:9 SET n = 1") == "NotAllowed"
    assert await told(house, "mem", "CREATE nowhere:9") == "Unknown"
    kept = await told(house, "dan", "INFO FOR STATEMENTS LIMIT 1")
    assert [(e["user"], e["refused"], e["needs"], e["statement"]) for e in kept] == [
        ("mem", "NotAllowed", "WRITE ON TABLE shop.main.thing", "CREATE thing:9 SET n = 1")
    ]
    (audited,) = await told(house, "dan", "INFO FOR AUDIT LIMIT 1")
    assert audited["needs"] == "WRITE ON TABLE shop.main.thing"


async def test_what_is_declared_changed_or_dropped_is_in_the_audit_trail(house: Running) -> None:
    for text in (
        "DEFINE NAMESPACE n",
        "DEFINE DATABASE n.d",
        "DEFINE TABLE t",
        "DEFINE FIELD a ON t TYPE int",
        "ALTER FIELD a ON t SET COMMENT 'x'",
        "ALTER TABLE t SET SCHEMAFULL",
        "DEFINE INDEX i ON t FIELDS a",
        "REBUILD INDEX i ON t",
        "DROP INDEX i ON t REASON 'r'",
        "DROP FIELD a ON t",
        "DEFINE FUNCTION f() { 1 }",
        "DROP FUNCTION f REASON 'r'",
        "DEFINE TOPIC q",
        "ALTER TOPIC q SET KEEP 1h",
        "DEFINE READER r ON q",
        "ALTER READER r ON q SET POSITION END REASON 'r'",
        "DROP READER r ON q REASON 'r'",
        "DEFINE GROUP g ON q DEADLINE 30s",
        "ALTER GROUP g ON q SET DELIVERIES 3",
        "DROP GROUP g ON q REASON 'r'",
        "PUBLISH INTO q VALUES [1, 2]; DEFINE TOPIC p; REDRIVE FROM q TO p LIMIT 1",
        "TRIM TOPIC p BEFORE 2 REASON 'r'",
        "DROP TOPIC p REASON 'r'",
        "DEFINE SPACE s",
        "SET 'k' IN s VALUE 1; DROP KEYS IN s PREFIX 'k' REASON 'r'",
        "DROP SPACE s REASON 'r'",
        "DROP TABLE t REASON 'r'",
        "DROP DATABASE n.d REASON 'r'",
        "DROP NAMESPACE n REASON 'r'",
    ):
        with case(text):
            await house.values(text)
            (kept,) = await told(house, "root", "INFO FOR AUDIT LIMIT 1")
            assert kept["statement"] == text.rpartition("; ")[2] and kept["user"] == "root"
            assert kept["reason"] == ("r" if "REASON" in text else None)
    await house.values("DEFINE TABLE t")
    before = await told(house, "root", "INFO FOR AUDIT LIMIT 1")
    await house.values(
        "DEFINE TABLE IF NOT EXISTS t; CREATE t:1; UPDATE t:1 SET n = 1; DELETE t;"
        " PUBLISH INTO q VALUE 1; LET $r = READ FROM q AFTER 0"
    )
    assert await told(house, "root", "DEFINE TABLE t") == "AlreadyExists"
    assert await told(house, "root", "INFO FOR AUDIT LIMIT 1") == before
    assert await told(house, "root", "KILL 'r-none'") == "Unknown"
    await asyncio.sleep(0)  # a turn for its commit
    (kept,) = await told(house, "root", "INFO FOR AUDIT LIMIT 1")
    assert (kept["statement"], kept["refused"]) == ("KILL 'r-none'", "Unknown")


def test_each_statement_that_needs_define_or_own_is_kept_in_the_audit_trail() -> None:
    left_out = [
        kind
        for kind, handler in HANDLERS.items()
        if any(isinstance(need, Requires) and need.verbs & (DEFINE | OWN) for need in handler.needs)
        and not handler.audited
    ]
    assert left_out == [tree.CheckIndex, tree.InfoTrail]  # they read


async def test_of_what_was_refused_no_more_is_kept_than_was_reached(house: Running) -> None:
    script = "BEGIN; CREATE thing:1; SELECT * FROM nowhere; USE bank.vip; COMMIT"
    assert await told(house, "root", script, record=True) == "Unknown"
    (kept,) = await told(house, "dan", "INFO FOR STATEMENTS LIMIT 1")
    assert kept["statement"] == "BEGIN; CREATE thing:1; SELECT * FROM nowhere"


@pytest.mark.parametrize(
    "other", ["NAMESPACE bank", "bank.vip", "NAMESPACE nowhere", "bank.nowhere"]
)
async def test_of_places_that_a_refused_statement_names_each_is_touched(
    house: Running, other: str
) -> None:
    """Also behind the one that it was refused for."""
    await house.values(f"DEFINE USER ed ROLE editor {NEW}")
    script = f"BACKUP SCRIPT OF shop.main, {other}"
    assert await told(house, "ed", script) == "NotAllowed"
    assert await told(house, "ed", "BACKUP SCRIPT OF shop.main") == "NotAllowed"
    for log in ("STATEMENTS", "AUDIT"):
        shown = await texts(house, "dan", f"INFO FOR {log}")
        assert [text for text in shown if text and text.startswith("BACKUP")] == [
            "BACKUP SCRIPT OF shop.main"
        ]
    assert len([text for text in await texts(house) if text.startswith("BACKUP")]) == 2


async def test_a_refused_operation_on_keys_is_kept(house: Running) -> None:
    await house.values("DEFINE SPACE c; GRANT READ ON SPACE c TO mem")

    class Asker:
        surface: Surface = "wire"
        origin = RequestOrigin("r-key", "wire", "192.0.2.9:1")
        connection = origin.address

        def on_result(self, *_: object) -> None: ...

    found = house.node.spaces.run(
        Asker(),
        who("mem"),
        ("shop", "main", "c"),
        [SetKey("k", "s3cret")],
    )
    assert found is not None and isinstance(found[0], Refusal)
    for _ in range(3):  # a turn to ask where it came from, one for its commit
        await asyncio.sleep(0)
    (kept,) = await told(house, "dan", "INFO FOR STATEMENTS LIMIT 1")
    assert (kept["user"], kept["request"], kept["refused"]) == ("mem", "r-key", "NotAllowed")
    assert kept["needs"] == "WRITE ON SPACE shop.main.c"
    assert "s3cret" not in repr(kept)


async def test_secrets_are_not_kept(house: Running) -> None:
    await house.answer("DEFINE USER x ROLE viewer PASSWORD 'hunter2hunter2'")
    await house.answer("DEFINE USER x ROLE viewer PASSWORD 'hunter2hunter2'", caller=who("mem"))
    await house.answer("RETURN 1; ALTER USER x SET PASSWORD 'hunter2hunter2'", record=True)
    every = await told(house, "root", "INFO FOR STATEMENTS LIMIT 1000")
    assert sum("PASSWORD '...'" in (each["statement"] or "") for each in every) >= 3
    assert "hunter2" not in repr(every) + repr(await told(house, "root", "INFO FOR AUDIT"))


async def test_an_owner_sees_what_touched_its_place_alone(house: Running) -> None:
    await house.values("BEGIN; CREATE thing:1; USE bank.vip; DEFINE TABLE account; COMMIT")
    await house.values("USE bank.vip; CREATE account:1 SET canary = 1")
    await house.values("CREATE thing:2; DEFINE USER eve ROLE member " + NEW)
    mine = await texts(house, "dan")
    assert "CREATE thing:2" in mine
    assert not [text for text in mine if "account" in text or "eve" in text or "bank" in text]
    assert any("account" in text for text in await texts(house))
    # Of the namespace around it: mem belongs to that.
    assert not [text for text in mine if "mem" in text]
    await house.values(f"DEFINE USER nora ROLE owner ON NAMESPACE shop {NEW}")
    assert [text for text in await texts(house, "nora") if "mem" in text]


@pytest.mark.parametrize(
    "other",
    [
        "USE bank.vip",
        "USE NAMESPACE bank",
        "USE bank.vip; USE shop.main",
        "IF true { USE bank.vip; USE shop.main }",
        "INFO FOR USER rob",
        "INFO FOR GRANTS OF rob",
        "INFO FOR STATEMENTS",
        "INFO FOR STATEMENTS OF rob",
        "INFO FOR STATEMENTS OF nobody",
        "INFO FOR AUDIT OF rob",
        "INFO FOR USERS",
    ],
)
async def test_what_was_only_looked_up_is_touched_too(house: Running, other: str) -> None:
    await house.values(f"DEFINE USER rob ROLE owner ON DATABASE bank.vip {NEW}")
    await house.values(f"BEGIN; CREATE thing:1; {other}; COMMIT")
    mine = await texts(house, "dan")
    assert not [text for text in mine if "bank" in text or "rob" in text]
    assert any("CREATE thing:1; " in text for text in await texts(house))


@pytest.mark.parametrize(
    "script",
    [
        "GRANT READ ON TABLE bank.vip.merger TO mem",
        "REVOKE READ ON TABLE bank.vip.merger FROM own",
        "DROP USER own REASON 'merger'",
        "ALTER USER own SET ROLE viewer",
        "INFO FOR USER own",
        "INFO FOR GRANTS OF mem",
        "INFO FOR STATEMENTS OF own",
        "INFO FOR AUDIT OF own",
    ],
)
async def test_who_names_anothers_user_is_not_shown_to_that_ones_owner(
    house: Running, script: str
) -> None:
    await house.values(
        f"DEFINE USER tess ROLE owner ON NAMESPACE bank {NEW};"
        f"DEFINE USER own ROLE member ON DATABASE shop.main {NEW};"
        f"DEFINE USER nora ROLE owner ON NAMESPACE shop {NEW}; USE bank.vip; DEFINE TABLE merger"
    )
    await house.answer(script, caller=who("tess"), record=True, reason="merger")
    for owner in ("dan", "nora"):
        for log in ("STATEMENTS", "AUDIT"):
            shown = await told(house, owner, f"INFO FOR {log} LIMIT 1000")
            assert not [one for one in shown if one["user"] == "tess"]
    assert any(one["user"] == "tess" for one in await told(house, "root"))


async def test_an_owner_is_not_told_where_others_stood(house: Running) -> None:
    grant = "GRANT READ ON TABLE shop.main.thing TO dan"
    for place, told_as in (("shop.main", ["shop", "main"]), ("bank.vip", [None, None])):
        await house.values(f"USE {place}; {grant}")
        for log in ("STATEMENTS", "AUDIT"):
            (mine,) = await told(house, "dan", f"INFO FOR {log} LIMIT 1")
            assert [mine["statement"], mine["namespace"], mine["database"]] == [grant, *told_as]
            (all_,) = await told(house, "root", f"INFO FOR {log} LIMIT 1")
            assert f"{all_['namespace']}.{all_['database']}" == place


async def test_who_is_no_owner_sees_its_own(house: Running) -> None:
    await house.values("GRANT READ, WRITE ON TABLE thing TO mem; CREATE thing:1")
    await told(house, "mem", "CREATE thing:2")
    assert await texts(house, "mem") == ["CREATE thing:2"]
    assert await texts(house, "mem", "INFO FOR STATEMENTS OF mem") == ["CREATE thing:2"]
    assert await told(house, "mem", "INFO FOR STATEMENTS OF root") == "Unknown"
    assert await told(house, "mem", "INFO FOR STATEMENTS OF nobody") == "Unknown"
    assert await told(house, "mem", "INFO FOR AUDIT") == "NotAllowed"
    assert await texts(house, "dan", "INFO FOR STATEMENTS OF mem") == ["CREATE thing:2"]


async def test_another_user_of_the_name_sees_nothing_of_the_first(house: Running) -> None:
    await house.values("GRANT READ, WRITE ON TABLE thing TO mem")
    await told(house, "mem", "CREATE thing:2")
    await house.values(f"DROP USER mem; DEFINE USER mem ROLE member {NEW}")
    assert await texts(house, "mem") == []
    assert "CREATE thing:2" in await texts(house, "root", "INFO FOR STATEMENTS OF mem")


async def test_pages(house: Running) -> None:
    for number in range(7):
        await house.values(f"CREATE thing:{number}")
    found, before = [], None
    while page := await told(
        house, "root", "INFO FOR STATEMENTS BEFORE $b LIMIT 3" if before else
        "INFO FOR STATEMENTS LIMIT 3", parameters={"b": before} if before else {},
    ):  # fmt: skip
        found += [each["statement"] for each in page]
        before = page[-1]["seq"]
    assert found == (await texts(house))[: len(found)]
    assert found[:7] == [f"CREATE thing:{number}" for number in reversed(range(7))]
    assert len(await told(house, "root", "INFO FOR STATEMENTS LIMIT 0")) == 0


async def test_it_survives_a_restart_and_a_state_made_anew(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("the state is made anew")
    async with running(tmp_path / "s") as node:
        await node.values("DEFINE TABLE t; CREATE t:1; DEFINE USER x ROLE viewer " + NEW)
        await node.answer("RETURN 1", record=True, reason="look")
        before = await node.value("INFO FOR STATEMENTS")
        trail = await node.value("INFO FOR AUDIT")
    assert [each["statement"].split()[1] for each in trail] == [
        "USER", "TABLE", "DATABASE", "NAMESPACE",
    ]  # fmt: skip
    for settings in ({}, {"rebuild_state": True}):
        async with running(tmp_path / "s", settings=settings) as node:
            assert (await node.value("INFO FOR STATEMENTS"))[-len(before) :] == before
            assert (await node.value("INFO FOR AUDIT"))[-len(trail) :] == trail


async def test_who_came_and_went_is_in_the_audit_trail(house: Running) -> None:
    sessions = house.node.sessions
    session = await ask(sessions, SignIn("root", PASSWORD, "http", "192.0.2.1:9"))
    await ask(sessions, ChangePassword(session.caller, PASSWORD, "correct horse 2"))
    session = await ask(sessions, SignIn("root", "correct horse 2", "wire", "192.0.2.1:9"))
    await ask(sessions, SignOut(session.token))
    asked = AuthenticatePassword("root", "correct horse 2", "http", "192.0.2.1:9")
    await ask(sessions, asked)
    await ask(sessions, asked)  # is remembered: nobody came
    for name, password in (("root", "wrong horse 1"), ("s3cret-typed-here", "x" * 9)):
        with pytest.raises(SignInRefused):
            await ask(sessions, SignIn(name, password, "http", "192.0.2.1:9"))
    trail = await told(house, "root", "INFO FOR AUDIT LIMIT 7")
    assert [(e["action"], e["user"], e["surface"], e["refused"]) for e in trail] == [
        ("sign in", None, "http", "SignInRefused"), ("sign in", "root", "http", "SignInRefused"),
        ("sign in", "root", "http", None), ("sign out", "root", "wire", None),
        ("sign in", "root", "wire", None), ("statement", "root", "http", None),
        ("sign in", "root", "http", None),
    ]  # fmt: skip
    assert trail[5]["statement"] == "ALTER USER root SET PASSWORD '...'"
    assert "s3cret" not in repr(trail) and "wrong" not in repr(trail)
    assert await told(house, "dan", "INFO FOR AUDIT") == [
        each for each in await told(house, "dan", "INFO FOR AUDIT") if each["database"] == "main"
    ]


async def test_a_flood_of_refusals_is_counted_and_not_kept(
    house: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "BURST", 3)
    clock = house.node.environment.clock
    await house.values("GRANT READ ON TABLE thing TO mem")
    at = clock.monotonic_us()
    monkeypatch.setattr(type(clock), "monotonic_us", lambda _self: at)
    for number in range(9):
        assert await told(house, "mem", f"DELETE thing:{number}") == "NotAllowed"
    at += 1_000_000
    assert await told(house, "mem", "DELETE thing:10") == "NotAllowed"
    kept = await told(house, "mem", "INFO FOR STATEMENTS")
    assert [(each["statement"], each["more"]) for each in kept] == [
        ("DELETE thing:10", 6), ("DELETE thing:2", 0), ("DELETE thing:1", 0),
        ("DELETE thing:0", 0),
    ]  # fmt: skip


async def test_what_was_not_kept_is_counted_for_each_place(
    house: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "BURST", 1)
    await house.values(
        "USE bank.vip; DEFINE TABLE account; DEFINE SPACE c;"
        f"DEFINE USER guest ROLE member {NEW};"
        f"DEFINE USER vip ROLE member ON DATABASE bank.vip {NEW};"
        f"DEFINE USER own ROLE member ON DATABASE shop.main {NEW};"
        "GRANT READ ON TABLE account TO guest; GRANT READ ON TABLE shop.main.thing TO guest"
    )

    clock = house.node.environment.clock
    at = clock.monotonic_us()
    monkeypatch.setattr(type(clock), "monotonic_us", lambda _self: at)

    async def turned_away(name: str) -> None:
        with pytest.raises(SignInRefused):
            await ask(house.node.sessions, SignIn(name, "wrong horse", "http", "192.0.2.7:1"))

    for _ in range(3):
        assert await told(house, "guest", "USE bank.vip; DELETE account:1") == "NotAllowed"
        await turned_away("vip")
    assert await told(house, "guest", "DELETE thing:1") == "NotAllowed"
    at += 1_000_000
    await turned_away("own")
    mine = await told(house, "dan", "INFO FOR AUDIT LIMIT 2")
    assert {(e["user"], e["refused"], e["more"]) for e in mine} == {
        ("guest", "NotAllowed", 0), ("own", "SignInRefused", 0)
    }  # fmt: skip


async def test_of_sign_ins_that_are_refused_nobody_learns_who_there_is(
    house: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sequence, which everybody is shown: whether one more is kept must not rest on the
    place of a user."""
    monkeypatch.setattr(statements, "BURST", 1)
    clock, committer = house.node.environment.clock, house.node.committer
    at = clock.monotonic_us()
    monkeypatch.setattr(type(clock), "monotonic_us", lambda _self: at)
    grown = []
    for name in ("nobody", "dan", "mem", "root", "none"):
        before = committer.committed
        with pytest.raises(SignInRefused):
            await ask(house.node.sessions, SignIn(name, "wrong horse", "http", "192.0.2.7:1"))
        await asyncio.sleep(0)
        grown.append(committer.committed - before)
    assert grown == [1, 0, 0, 0, 0]
    at += 1_000_000
    with pytest.raises(SignInRefused):
        await ask(house.node.sessions, SignIn("dan", "wrong horse", "http", "192.0.2.7:1"))
    (kept,) = await told(house, "dan", "INFO FOR AUDIT LIMIT 1")
    assert (kept["user"], kept["more"]) == ("dan", 1)  # of its own place alone


async def test_a_node_that_takes_no_changes_refuses_all_the_same(house: Running) -> None:
    await house.values("DEFINE NODE ROLES serving")
    sequence = house.node.committer.committed
    assert await told(house, "root", "CREATE thing") == "NotWritable"
    assert await told(house, "mem", "DEFINE NODE ROLES NONE") == "NotAllowed"
    assert (await house.answer("RETURN 1", record=True)).refusal is None
    await asyncio.sleep(0)
    assert house.node.committer.committed == sequence


async def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_retention, "LOOK_SECONDS", 0.01)
    async with running(tmp_path / "s", settings={"keep_statements": 20}) as node:
        await node.values("DEFINE TABLE t")
        for number in range(30):
            await node.values(f"CREATE t:{number}")
        while len(found := await node.value("INFO FOR STATEMENTS")) > 22:
            await asyncio.sleep(0.01)
        assert [each["statement"] for each in found] == [
            f"CREATE t:{number}" for number in reversed(range(30))
        ][: len(found)]
        assert len(found) >= 20
        for number in range(30, 60):
            await node.values(f"CREATE t:{number}")
        while len(found := await node.value("INFO FOR STATEMENTS")) > 22:
            await asyncio.sleep(0.01)
        assert found[0]["statement"] == "CREATE t:59"
        assert len(found) >= 20


@pytest.mark.parametrize(
    "refusal", [NotEnoughReplicas("too few", followers=0, acks=1), Draining("it stops")]
)
async def test_they_are_kept_where_nothing_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal
) -> None:
    monkeypatch.setattr(entry_retention, "LOOK_SECONDS", 0.01)
    async with running(tmp_path / "s", settings={"keep_statements": 0}) as node:
        await node.values("DEFINE TABLE t")
        committer, tries = node.node.committer, list[None]()
        check = committer.check_replicated

        def refused() -> None:
            tries.append(None)
            raise refusal

        committer.check_replicated = refused
        while len(tries) < 5:
            await asyncio.sleep(0.001)
        assert await node.value("INFO FOR STATEMENTS")
        committer.check_replicated = check
        while await node.value("INFO FOR STATEMENTS"):
            await asyncio.sleep(0.01)


async def test_none_may_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_retention, "LOOK_SECONDS", 0.01)
    async with running(tmp_path / "s", settings={"keep_statements": 0}) as node:
        await node.values("DEFINE TABLE t; CREATE t:1")
        while await node.value("INFO FOR STATEMENTS"):
            await asyncio.sleep(0.01)


async def test_nobody_pushes_others_out_of_the_audit_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_retention, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(limits, "ENTRIES_KEPT", 60)
    monkeypatch.setattr(entry_retention, "SPARE_PART", 61)  # none is spare, however often it looks
    monkeypatch.setattr(entry_retention, "AT_ONCE", 7)
    async with running(tmp_path / "s") as node:
        await node.values(
            f"DEFINE TABLE t; DEFINE USER dan ROLE owner ON DATABASE shop.main {NEW};"
            f"DEFINE USER mem ROLE member ON DATABASE shop.main {NEW};"
            "DROP USER mem REASON 'a trace';"
            f"DEFINE USER mem ROLE member ON DATABASE shop.main {NEW};"
            "DEFINE NAMESPACE bank; DEFINE DATABASE bank.vip;"
            f"DEFINE USER eve ROLE owner ON DATABASE bank.vip {NEW};"
        )
        loud = "GRANT READ ON TABLE t TO mem; REVOKE READ ON TABLE t FROM mem;" * 60
        assert isinstance(await told(node, "dan", loud), type(None) | type(NONE))
        while len(found := await node.value("INFO FOR AUDIT")) > 60:
            await asyncio.sleep(0.01)
        assert len(found) == 60
        assert "a trace" in [each["reason"] for each in found]
        assert [each for each in found if "eve" in (each["statement"] or "")]
        # Of who made most the newest are there.
        assert found[0]["statement"] == "REVOKE READ ON TABLE t FROM mem"
        assert [each["seq"] for each in found] == sorted(each["seq"] for each in found)[::-1]


def test_a_node_that_makes_entries_up_takes_the_room_of_one_node() -> None:
    made_up = {EntryOrigin("b", 1, number, False, f"u{number}"): 1 for number in range(2, 90)}
    own = {EntryOrigin("", 1, 1, False, "u"): 2, EntryOrigin("c", 1, 1, False, "u"): 1}
    gone = entry_retention.beyond({**made_up, **own}, 10)
    assert not any(gone[maker] for maker in own)
    assert sum(gone.values()) == len(made_up) + 3 - 10


def test_the_defaults() -> None:
    assert NodeSettings("/x").keep_statements == limits.ENTRIES_KEPT == 100_000
