"""The gate by itself: what each role and grant holds, what is seen, and what a refusal says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from actors.commits.committer import NODE as SYSTEM
from actors.redaction import redacted
from actors.rights import Rights
from actors.securables import securable_of
from protocol.errors import (
    Conflict,
    Duplicate,
    FieldRefused,
    NotAllowed,
    Refusal,
    SessionEnded,
    StatementTimeout,
    Unknown,
)
from protocol.paths import EACH, Step, path_text
from protocol.requests import Caller
from protocol.rights import (
    ALL,
    CONSUME,
    DEFINE,
    INFO,
    NODE,
    NOTHING,
    OWN,
    READ,
    STORE,
    VERBS,
    WRITE,
    Securable,
    SecurableKind,
    Verb,
    Verbs,
)
from storage.catalog import places, spaces, tables, users
from storage.catalog.functions import Function
from storage.catalog.places import Database
from storage.catalog.tables import Field
from storage.topics import topics
from storage.txn.transaction import Transaction
from tests.callers import Granted, declare
from tests.nodes import OWNER, Running, running

PLACE = ("shop", "main")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store") as node:
        await node.values(
            "DEFINE TABLE t; DEFINE TOPIC q; DEFINE SPACE c; DEFINE DATABASE shop.other;"
            " DEFINE NAMESPACE bank; DEFINE DATABASE bank.main"
        )
        await node.values("DEFINE FUNCTION f() { 1 }")
        for place in ("shop.other", "bank.main"):
            await node.values(f"USE {place}; DEFINE TABLE t; DEFINE TOPIC q; DEFINE SPACE c")
        yield node


Ask = Callable[[Rights, Transaction, Caller], object]


def asked(node: Running, caller: Caller, ask: Ask) -> object:
    """What the gate hands over, or refuses."""
    with node.node.committer.begin_transaction() as tx:
        try:
            return ask(node.node.rights, tx, caller)
        except Refusal as refusal:
            return refusal


def table(verbs: Verbs, name: str = "t", place: tuple[str, str] = PLACE) -> Ask:
    return lambda rights, tx, who: rights.table(tx, who, place, name, verbs)


def user(name: str, verbs: Verbs) -> Ask:
    return lambda rights, tx, who: rights.user(tx, who, name, verbs)


def held(node: Running, caller: Caller) -> dict[SecurableKind, Verbs]:
    """What a caller holds on one thing of each kind in shop.main, and on the store and node."""
    with node.node.committer.begin_transaction() as tx:
        namespace = places.namespace(tx, "shop")
        database = places.database(tx, namespace, "main")
        things = (
            STORE, NODE, namespace, database, tables.table(tx, database, "t"),
            topics.topic(tx, database, "q"), spaces.space(tx, database, "c"),
            Securable(SecurableKind.VAULT, (namespace.id, database.id, 1), "shop.main.v"),
        )  # fmt: skip
        privileges = node.node.rights.privileges(tx, caller)
        return {securable_of(thing).kind: privileges.holds(thing) for thing in things}


DATA = (
    SecurableKind.NAMESPACE,
    SecurableKind.DATABASE,
    SecurableKind.TABLE,
    SecurableKind.TOPIC,
    SecurableKind.SPACE,
)
EDITOR = READ | WRITE | CONSUME | DEFINE
VIEWER = READ | INFO

HELD: dict[tuple[str, str | None], dict[SecurableKind, Verbs]] = {
    ("editor", None): {
        SecurableKind.STORE: DEFINE, SecurableKind.NODE: NOTHING, SecurableKind.VAULT: NOTHING,
        **{kind: EDITOR & VERBS[kind] for kind in DATA},
    },
    ("viewer", None): {
        SecurableKind.STORE: INFO, SecurableKind.NODE: INFO, SecurableKind.VAULT: NOTHING,
        **dict.fromkeys(DATA, VIEWER),
    }, ("member",
    None): dict.fromkeys((*DATA, SecurableKind.STORE, SecurableKind.NODE, SecurableKind.VAULT),
    NOTHING), ("owner", "shop"): {
        SecurableKind.STORE: NOTHING, SecurableKind.NODE: NOTHING,
        SecurableKind.VAULT: VERBS[SecurableKind.VAULT], **{kind: VERBS[kind] for kind in DATA},
    },
    ("editor", "shop.main"): {
        SecurableKind.STORE: NOTHING, SecurableKind.NODE: NOTHING, SecurableKind.VAULT: NOTHING,
        SecurableKind.NAMESPACE: NOTHING, **{kind: EDITOR & VERBS[kind] for kind in DATA[1:]},
    }, ("owner",
    "bank"): dict.fromkeys((*DATA, SecurableKind.STORE, SecurableKind.NODE, SecurableKind.VAULT),
    NOTHING), ("viewer",
    "sho"): dict.fromkeys((*DATA, SecurableKind.STORE, SecurableKind.NODE, SecurableKind.VAULT),
    NOTHING),
}  # fmt: skip


@pytest.mark.parametrize(("role", "space"), HELD)
async def test_what_a_role_holds(node: Running, role: str, space: str | None) -> None:
    who = await declare(node.node, "eve", role, space)
    assert held(node, who) == HELD[role, space]


async def test_a_store_wide_owner_holds_everything(node: Running) -> None:
    who = await declare(node.node, "ana", "owner")
    assert set(held(node, who).values()) == {ALL}


async def test_whoever_opens_the_directory_may_do_everything(node: Running) -> None:
    who = Caller("operator", "owner", None, None, "command", "local")
    assert set(held(node, who).values()) == {ALL}
    assert isinstance(asked(node, replace(who, surface="wire"), table(READ)), SessionEnded)


async def test_the_stored_role_counts_and_not_that_of_the_sign_in(node: Running) -> None:
    who = await declare(node.node, "eve", "editor")
    assert held(node, who)[SecurableKind.TABLE] == EDITOR & VERBS[SecurableKind.TABLE]
    await declare(node.node, "eve", "member")
    assert held(node, who)[SecurableKind.TABLE] == NOTHING
    assert held(node, replace(who, role="owner"))[SecurableKind.TABLE] == NOTHING


async def test_a_user_that_is_no_more_holds_nothing(node: Running) -> None:
    nobody = Caller("nobody", "owner", None, None, "http", "127.0.0.1:1")
    assert isinstance(asked(node, nobody, table(READ)), SessionEnded)


# --- what is seen -------------------------------------------------------------------------------


async def test_what_may_not_be_seen_is_as_if_it_were_absent(node: Running) -> None:
    """Word for word, from the outermost place on that is not seen."""
    who = await declare(node.node, "eve", "viewer", "shop.main")

    for hidden, missing in (
        (("bank", "main", "t"), ("bonk", "main", "t")),
        (("shop", "other", "t"), ("shop", "otter", "t")),
    ):
        told = []
        for *place, name in (hidden, missing):
            refusal = asked(node, who, table(READ, name, (place[0], place[1])))
            assert isinstance(refusal, Unknown)
            told.append([refusal.message, *refusal.detail.values()])
        assert [
            str(one).replace("bonk", "bank").replace("otter", "other") for one in told[1]
        ] == told[0]
    unknown = asked(node, who, table(READ, "u"))
    assert isinstance(unknown, Unknown) and unknown.detail["name"] == "shop.main.u"


async def test_a_place_is_seen_by_who_holds_something_in_it(node: Running) -> None:
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    place: Ask = lambda rights, tx, who: rights.database(tx, who, *PLACE, NOTHING)  # noqa: E731
    assert isinstance(asked(node, eve, place), Unknown)
    granted.grant("eve", Verb.WRITE, *PLACE, "t")
    assert isinstance(asked(node, eve, place), Database)
    other: Ask = lambda rights, tx, who: rights.database(tx, who, "shop", "other", NOTHING)  # noqa: E731
    assert isinstance(asked(node, eve, other), Unknown)
    topic: Ask = lambda rights, tx, who: rights.topic(tx, who, PLACE, "q", NOTHING)  # noqa: E731
    assert isinstance(asked(node, eve, topic), Unknown), "it is not in it, but beside it"


async def test_what_is_seen_and_may_not_be_done_says_what_is_missing(node: Running) -> None:
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    granted.grant("eve", Verb.CONSUME, "shop")
    for verbs, needs in (
        (READ, "READ ON TABLE shop.main.t"),
        (READ | WRITE, "READ, WRITE ON TABLE shop.main.t"),
    ):
        refusal = asked(node, eve, table(verbs))
        assert isinstance(refusal, NotAllowed) and refusal.detail == {"needs": needs}
    drop: Ask = lambda rights, tx, who: rights.database(tx, who, *PLACE, OWN)  # noqa: E731
    refusal = asked(node, eve, drop)
    assert isinstance(refusal, NotAllowed)
    assert refusal.detail == {"needs": "OWNER OF DATABASE shop.main"}


# --- grants -------------------------------------------------------------------------------------


async def test_a_grant_reaches_what_lies_in_its_place_and_nothing_else(node: Running) -> None:
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    granted.grant("eve", Verb.READ, "shop", "main")
    assert held(node, eve) == {
        SecurableKind.STORE: NOTHING, SecurableKind.NODE: NOTHING,
        SecurableKind.NAMESPACE: NOTHING, SecurableKind.DATABASE: READ, SecurableKind.TABLE: READ,
        SecurableKind.TOPIC: READ, SecurableKind.SPACE: READ, SecurableKind.VAULT: NOTHING,
    }  # fmt: skip
    assert isinstance(asked(node, eve, table(READ, "t", ("shop", "other"))), Unknown)
    granted.revoke("eve")
    assert set(held(node, eve).values()) == {NOTHING}
    granted.grant("eve", Verb.WRITE, *PLACE, "t")
    assert held(node, eve)[SecurableKind.TABLE] == WRITE
    assert held(node, eve)[SecurableKind.TOPIC] == NOTHING


async def test_a_grant_on_what_was_dropped_shows_no_place(node: Running) -> None:
    """Not the one it lay in, nor what is judged as that."""
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    granted.grant("eve", Verb.READ, *PLACE, "t")
    granted.grant("eve", Verb.READ, "shop", "other", "t")
    place: Ask = lambda rights, tx, who: rights.database(tx, who, *PLACE, NOTHING)  # noqa: E731
    around: Ask = lambda rights, tx, who: rights.namespace(tx, who, "shop", NOTHING)  # noqa: E731
    function: Ask = lambda rights, tx, who: rights.function(tx, who, PLACE, "f", NOTHING)  # noqa: E731
    for ask in (place, around, function):
        assert not isinstance(asked(node, eve, ask), Refusal)

    # Whoever cancels has dropped nothing.
    await node.values("BEGIN; DROP TABLE t; CANCEL")
    assert isinstance(asked(node, eve, place), Database)
    await node.values("DROP TABLE t; DEFINE TABLE t")
    for ask in (place, function):
        assert isinstance(asked(node, eve, ask), Unknown)
    assert not isinstance(asked(node, eve, around), Refusal), "shop.other has a part of hers"
    await node.values("DROP DATABASE shop.other; DEFINE DATABASE shop.other")
    assert isinstance(asked(node, eve, around), Unknown)
    granted.grant("eve", Verb.READ, *PLACE, "q", kind="topic")
    for ask in (place, around, function):
        assert not isinstance(asked(node, eve, ask), Refusal)


async def test_only_verbs_that_mean_something_are_held(node: Running) -> None:
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    granted.grant("eve", Verb.CONSUME, "shop")
    assert held(node, eve)[SecurableKind.TABLE] == NOTHING
    assert held(node, eve)[SecurableKind.TOPIC] == CONSUME


# --- users --------------------------------------------------------------------------------------


async def test_who_sees_and_changes_whom(node: Running) -> None:
    names = {
        "root": OWNER,
        "chief": await declare(node.node, "chief", "owner", "shop"),
        "clerk": await declare(node.node, "clerk", "editor", "shop.main"),
        "guest": await declare(node.node, "guest", "member"),
    }
    expected = {
        "root": dict.fromkeys(names, "may"),
        "chief": {"root": "Unknown", "chief": "may", "clerk": "may", "guest": "Unknown"},
        "clerk": {"root": "Unknown", "chief": "Unknown", "clerk": "sees", "guest": "Unknown"},
        "guest": {"root": "Unknown", "chief": "Unknown", "clerk": "Unknown", "guest": "sees"},
    }
    for caller, row in expected.items():
        for name, what in row.items():
            sees, may = (asked(node, names[caller], user(name, verbs)) for verbs in (NOTHING, OWN))
            if what == "Unknown":
                assert isinstance(sees, Unknown) and isinstance(may, Unknown)
                assert sees.message == f"there is no user {name}"
            else:
                assert not isinstance(sees, Refusal)
                assert isinstance(may, NotAllowed) is (what == "sees"), (caller, name)


# --- what a refusal tells ------------------------------------------------------------------------


def test_a_refusal_over_records_tells_where_and_not_what() -> None:
    refusal = Duplicate(
        "index i of table t holds 'secret' already: t:1",
        index="i", table="t", values=["secret"], record="t:1",
    )  # fmt: skip
    told = redacted(refusal, "t", ())
    assert type(told) is Duplicate and told.detail == {"index": "i", "table": "t"}
    assert "secret" not in told.message and "index i of table t" in told.message
    late = StatementTimeout("too late", table="t")
    assert redacted(late, "t", ()) is late


@pytest.mark.parametrize(
    ("found", "told"),
    {
        "n": "n", "n.deep": "n", "tags[2]": "tags[*]", "tags": "tags", "mm.alice": "mm",
        "mm.`a.b@c`.phone": "mm", "`a.b`": "`a.b`", "`a.b`[3].x": "`a.b`",
        "by[1].name": "by[*].name",
        "by.eve.name": "by[*].name", "by.eve.age": "by[*]", "q": None, "`alice@example.com`": None,
        "nn": None, "mmm.…": None, "[2]": None,
    }.items(),
)  # fmt: skip
def test_of_a_field_only_what_is_defined_is_told(found: str, told: str | None) -> None:
    paths: list[tuple[Step, ...]] = [
        ("n",), ("tags",), ("tags", EACH), ("mm",), ("a.b",), ("by",), ("by", EACH),
        ("by", EACH, "name"),
    ]  # fmt: skip
    fields = [Field(path, path_text(path), "any") for path in paths]
    refusal = redacted(FieldRefused("secret", table="t", field=found, found="secret"), "t", fields)
    assert refusal.detail.get("field") == told and "secret" not in refusal.message
    assert refusal.detail.keys() <= {"table", "field"}


NAMES = {"TABLE": "t", "TOPIC": "q", "SPACE": "c", "FUNCTION": "f"}
FORM = {"FUNCTION": "() { 1 }"}
"""What stands behind the name where one is defined."""
NAMED: tuple[tuple[str, Ask], ...] = (
    ("TABLE", lambda rights, tx, who: rights.table(tx, who, PLACE, "t", NOTHING)),
    ("TOPIC", lambda rights, tx, who: rights.topic(tx, who, PLACE, "q", NOTHING)),
    ("SPACE", lambda rights, tx, who: rights.space(tx, who, PLACE, "c", NOTHING)),
    ("FUNCTION", lambda rights, tx, who: rights.function(tx, who, PLACE, "f", NOTHING)),
)


@pytest.mark.parametrize(("kind", "ask"), NAMED)
async def test_what_was_found_for_one_is_judged_for_the_next(
    node: Running, kind: str, ask: Ask
) -> None:
    strangers = [
        await declare(node.node, "bob", "member"),
        await declare(node.node, "cyd", "owner", "bank"),
        await declare(node.node, "dan", "viewer", "shop.other"),
    ]
    before = [asked(node, one, ask) for one in strangers]
    assert all(isinstance(one, Unknown) for one in before)
    assert not isinstance(asked(node, OWNER, ask), Refusal)
    after = [asked(node, one, ask) for one in strangers]
    assert [str(one) for one in after] == [str(one) for one in before]


@pytest.mark.parametrize(("kind", "ask"), NAMED)
@pytest.mark.parametrize("drop", ["the thing", "DROP DATABASE shop.main", "DROP NAMESPACE shop"])
async def test_what_was_found_is_forgotten_with_what_its_names_lead_over(
    node: Running, kind: str, ask: Ask, drop: str
) -> None:
    found = asked(node, OWNER, ask)
    assert asked(node, OWNER, ask) is found
    name = NAMES[kind]
    await node.values(f"DROP {kind} {name}" if drop == "the thing" else drop)
    assert isinstance(asked(node, OWNER, ask), Unknown)
    await node.values("DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS main")
    assert isinstance(asked(node, OWNER, ask), Unknown)
    await node.values(f"DEFINE {kind} {name}{FORM.get(kind, '')}")
    again = asked(node, OWNER, ask)
    assert not isinstance(again, Refusal) and again is not found


@pytest.mark.parametrize(("kind", "ask"), NAMED)
async def test_a_transaction_finds_what_it_has_declared_itself(
    node: Running, kind: str, ask: Ask
) -> None:
    assert not isinstance(asked(node, OWNER, ask), Refusal)
    name = NAMES[kind]
    look = {"TABLE": f"SELECT * FROM {name}", "TOPIC": f"READ FROM {name} AFTER 0 LIMIT 1",
            "SPACE": f"GET 'k' FROM {name}", "FUNCTION": f"fn::{name}()"}[kind]  # fmt: skip
    made = f"DEFINE {kind} {name}{FORM.get(kind, '')}"
    refusal = (await node.answer(f"BEGIN; {look}; DROP {kind} {name}; {look}; COMMIT")).refusal
    assert isinstance(refusal, Unknown) and refusal.detail["statement"] == 4
    await node.values(f"BEGIN; DROP {kind} {name}; {made}; {look}; CANCEL; {look}")


@pytest.mark.parametrize(("kind", "ask"), NAMED)
@pytest.mark.parametrize("change", ["the thing", "DROP DATABASE shop.main", "DROP NAMESPACE shop"])
async def test_a_transaction_rests_on_all_that_a_name_led_over(
    node: Running, kind: str, ask: Ask, change: str
) -> None:
    """Also where another had looked it up before."""
    name = NAMES[kind]
    ask(node.node.rights, node.node.committer.begin_transaction(), OWNER)
    committer = node.node.committer
    with committer.begin_transaction() as tx:
        ask(node.node.rights, tx, OWNER)
        users.define(tx, "eve", "viewer", "*")
        tx.pause()
        await node.values(f"DROP {kind} {name}" if change == "the thing" else change)
        with pytest.raises(Conflict):
            committer.commit(tx, SYSTEM)


async def test_a_function_is_judged_as_its_database(node: Running) -> None:
    function: Callable[[Verbs], Ask] = lambda verbs: (  # noqa: E731
        lambda rights, tx, who: rights.function(tx, who, PLACE, "f", verbs)
    )
    eve, granted = await declare(node.node, "eve", "member"), Granted(node.node)
    refusal = asked(node, eve, function(NOTHING))
    assert isinstance(refusal, Unknown) and refusal.detail["kind"] == "namespace"
    granted.grant("eve", Verb.WRITE, *PLACE, "t")  # she sees the database by it
    assert isinstance(asked(node, eve, function(NOTHING)), Function)
    refusal = asked(node, eve, function(DEFINE))
    assert isinstance(refusal, NotAllowed)
    assert refusal.detail == {"needs": "DEFINE ON DATABASE shop.main"}
    granted.grant("eve", Verb.DEFINE, *PLACE)
    assert isinstance(asked(node, eve, function(DEFINE)), Function)
