"""Roles in spaces and grants, given by statements: who may give what, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from protocol import limits
from protocol.errors import NotAllowed, Refusal, TooLarge, Unknown
from protocol.requests import Caller
from tests.nodes import OWNER, Running
from tests.tables import case

PASSWORD: Final = "PASSWORD 'correct horse battery'"
USERS: Final = {
    "nora": "owner ON NAMESPACE shop", "dan": "owner ON DATABASE shop.main",
    "ed": "editor ON DATABASE shop.main", "vic": "viewer ON NAMESPACE shop",
    "mem": "member ON DATABASE shop.main", "eve": "member", "tess": "owner ON NAMESPACE bank",
}  # fmt: skip


def who(name: str) -> Caller:
    """A caller. What a session says of it beside its name is of the sign-in, and judges nothing."""
    return replace(OWNER, user=name, role="?", space="?")


@pytest.fixture
async def house(node: Running) -> Running:
    await node.values(
        "DEFINE NAMESPACE bank; DEFINE DATABASE bank.vip; USE bank.vip; DEFINE TABLE account;"
        "CREATE account:1 SET canary = 'b4nk'; USE shop.main; CREATE thing:1 SET n = 1;"
        "DEFINE DATABASE shop.side; DEFINE TOPIC news; DEFINE SPACE c"
    )
    for name, role in USERS.items():
        await node.values(f"DEFINE USER {name} ROLE {role} {PASSWORD}")
    return node


async def told(node: Running, name: str, script: str, **fields: Any) -> str:
    """The code of the refusal that a user hears, or `may`."""
    refusal = (await node.answer(script, caller=who(name), **fields)).refusal
    return "may" if refusal is None else refusal.code


async def refused(node: Running, name: str, script: str) -> Refusal:
    refusal = (await node.answer(script, caller=who(name))).refusal
    assert refusal is not None, "it was not refused"
    return refusal


async def test_a_near_name_of_a_table_is_told_to_who_sees_that_table(node: Running) -> None:
    """Whatever it may not see, a table of the very name included, changes no word of it."""
    await node.values(
        "DEFINE TABLE person; DEFINE TABLE parson; DEFINE TABLE invoice;"
        f"DEFINE USER pa ROLE member {PASSWORD}; GRANT READ ON TABLE parson TO pa;"
        f"DEFINE USER bill ROLE member {PASSWORD}; GRANT READ ON TABLE invoice TO bill"
    )
    table = [
        ("root", "persn", "there is no table shop.main.persn; did you mean person?"),
        ("root", "Invoice", "there is no table shop.main.Invoice; did you mean invoice?"),
        ("root", "nowhere", "there is no table shop.main.nowhere"),
        ("pa", "persn", "there is no table shop.main.persn; did you mean parson?"),
        ("pa", "person", "there is no table shop.main.person; did you mean parson?"),
        ("pa", "invoic", "there is no table shop.main.invoic"),
        ("bill", "persn", "there is no table shop.main.persn"),
        ("bill", "person", "there is no table shop.main.person"),
    ]
    for name, wanted, message in table:
        with case(name, wanted):
            refusal = (await node.answer(f"SELECT * FROM {wanted}", caller=who(name))).refusal
            assert isinstance(refusal, Unknown) and refusal.message == message
            assert refusal.detail["name"] == f"shop.main.{wanted}"


READS, WRITES = "SELECT * FROM thing", "CREATE thing RETURN NONE"
DEFINES, TAKES = "DEFINE FIELD f ON thing TYPE any", "READ FROM news AFTER 0"
BESIDE: Final = "USE bank.vip; SELECT * FROM account"
ANSWERED: Final[Mapping[str, tuple[str, ...]]] = {
    # user: reads, writes, defines, reads messages, another namespace, another database
    "nora": ("may", "may", "may", "may", "Unknown", "may"),
    "dan": ("may", "may", "may", "may", "Unknown", "Unknown"),
    "ed": ("may", "may", "may", "may", "Unknown", "Unknown"),
    "vic": ("may", "NotAllowed", "NotAllowed", "may", "Unknown", "NotAllowed"),
    "mem": ("Unknown", "Unknown", "Unknown", "Unknown", "Unknown", "Unknown"),
    "eve": ("Unknown", "Unknown", "Unknown", "Unknown", "Unknown", "Unknown"),
    "tess": ("Unknown", "Unknown", "Unknown", "Unknown", "may", "Unknown"),
}


@pytest.mark.parametrize("name", ANSWERED)
async def test_what_a_role_brings_ends_where_its_space_does(house: Running, name: str) -> None:
    scripts = (READS, WRITES, DEFINES, TAKES, BESIDE, "USE shop.side; DEFINE TABLE t")
    assert tuple([await told(house, name, script) for script in scripts]) == ANSWERED[name]


@pytest.mark.parametrize("name", ["nora", "dan", "tess"])
async def test_the_owner_of_a_space_owns_nothing_around_it(house: Running, name: str) -> None:
    for script in (
        "DEFINE NODE ROLES NONE", "INFO FOR NODE", "INFO FOR STORE", "INFO FOR RUNNING", "KILL 'x'",
        "DEFINE NAMESPACE mine", f"DEFINE USER x ROLE owner {PASSWORD}",
        "GRANT INFO ON NODE TO mem" if name != "tess" else "GRANT INFO ON NODE TO tess",
    ):  # fmt: skip
        assert await told(house, name, script) == "NotAllowed", script
    for script in (
        "ALTER USER root SET ROLE member", "DROP USER eve", "GRANT READ ON TABLE thing TO eve",
        "INFO FOR USER root", "INFO FOR GRANTS OF eve", "DROP USER nobody",
    ):  # fmt: skip
        assert await told(house, name, script) == "Unknown", script


async def test_users_are_owned_by_who_owns_their_space(house: Running) -> None:
    made = f"DEFINE USER a ROLE editor ON NAMESPACE shop {PASSWORD}"
    assert await told(house, "nora", made) == "may"
    made = f"DEFINE USER b ROLE owner ON DATABASE shop.main {PASSWORD}"
    assert await told(house, "dan", made) == "may"
    outside = f"DEFINE USER c ROLE viewer ON NAMESPACE shop {PASSWORD}"
    assert await told(house, "dan", outside) == "NotAllowed"
    beside = f"DEFINE USER c ROLE viewer ON DATABASE shop.side {PASSWORD}"
    assert await told(house, "dan", beside) == "Unknown"
    foreign = f"DEFINE USER c ROLE viewer ON NAMESPACE bank {PASSWORD}"
    assert await told(house, "nora", foreign) == "Unknown"
    assert await told(house, "nora", "ALTER USER b SET ROLE viewer") == "may"
    assert await told(house, "dan", "ALTER USER a SET ROLE viewer") == "Unknown"
    assert await told(house, "dan", "DROP USER b") == "may"
    # A name is of the whole store, and that it is taken is all that crosses.
    taken = f"DEFINE USER tess ROLE viewer ON NAMESPACE shop {PASSWORD}"
    assert await told(house, "nora", taken) == "AlreadyExists"
    for clause in ("OVERWRITE", "IF NOT EXISTS"):
        script = f"DEFINE USER {clause} tess ROLE viewer ON NAMESPACE shop {PASSWORD}"
        assert await told(house, "nora", script) == "AlreadyExists", clause
    assert (await house.value("INFO FOR USER tess"))["role"] == "owner"


async def test_who_is_listed(house: Running) -> None:
    async def names(name: str) -> set[str]:
        answer = await house.answer("INFO FOR USERS", caller=who(name))
        assert answer.refusal is None
        found: Any = answer.results[0].value
        return {each["name"] for each in found}

    assert await names("root") == {"root", *USERS}
    assert await names("nora") == {"nora", "dan", "ed", "vic", "mem"}
    assert await names("dan") == {"dan", "ed", "mem"}
    for name in ("ed", "vic", "mem", "eve"):
        assert await told(house, name, "INFO FOR USERS") == "NotAllowed"


async def test_a_grant_acts_at_once_and_its_end_too(house: Running) -> None:
    steps = [
        ("GRANT READ ON TABLE thing TO mem", ("may", "NotAllowed")),
        ("GRANT WRITE ON DATABASE shop.main TO mem", ("may", "may")),
        ("REVOKE READ ON TABLE thing FROM mem", ("NotAllowed", "may")),
        ("REVOKE WRITE ON DATABASE shop.main FROM mem", ("Unknown", "Unknown")),
    ]
    for statement, (reads, writes) in steps:
        assert await told(house, "dan", statement) == "may"
        assert (await told(house, "mem", READS), await told(house, "mem", WRITES)) == (
            reads, writes,
        ), statement  # fmt: skip


async def test_a_right_that_ends_under_a_script_ends_what_it_would_have_written(
    house: Running,
) -> None:
    """Nothing is committed behind the REVOKE that took the right away."""
    rows = [{"id": n} for n in range(3000)]
    await house.values(
        "DELETE thing; INSERT INTO thing $rows RETURN NONE;GRANT READ, WRITE ON TABLE thing TO mem",
        {"rows": rows},
    )
    long = "UPDATE thing SET n = array::len(array::distinct([id, 1, 2]))"
    running = asyncio.ensure_future(house.answer(long + " RETURN NONE", caller=who("mem")))
    while not house.node.registry.unfinished:
        await asyncio.sleep(0)
    await house.values("REVOKE WRITE ON TABLE thing FROM mem")
    answer = await running
    assert isinstance(answer.refusal, NotAllowed | Unknown), answer
    assert await house.value("SELECT * FROM thing WHERE n != NONE") == []


async def test_how_many_things_are_granted(house: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GRANTS", 2)
    await house.values("GRANT READ ON TABLE thing TO eve; GRANT READ ON TOPIC news TO eve")
    await house.values("GRANT WRITE ON TABLE thing TO eve")
    refusal = (await house.answer("GRANT READ ON SPACE c TO eve")).refusal
    assert isinstance(refusal, TooLarge)
    await house.values("DROP TOPIC news; GRANT READ ON SPACE c TO eve")  # what is gone makes room


async def test_what_an_owner_is_told_of_others_grants(house: Running) -> None:
    await house.values("GRANT READ ON TABLE thing TO mem")
    found = (await house.answer("INFO FOR GRANTS OF mem", caller=who("dan"))).results[0].value
    assert found == [{"on": "TABLE shop.main.thing", "verbs": ["READ"], "from": "grant"}]
    own = (await house.answer("INFO FOR GRANTS", caller=who("mem"))).results[0].value
    assert own == found
    assert isinstance(await refused(house, "ed", "INFO FOR GRANTS OF mem"), Unknown)


async def test_the_node_may_be_shown_without_being_owned(house: Running) -> None:
    assert await told(house, "eve", "INFO FOR NODE") == "NotAllowed"
    await house.values("GRANT INFO ON NODE TO eve")
    assert await told(house, "eve", "INFO FOR NODE; INFO FOR STATE") == "may"
    for script in ("INFO FOR RUNNING", "INFO FOR STORE", "DEFINE NODE ROLES NONE", "KILL 'x'"):
        assert await told(house, "eve", script) == "NotAllowed", script
    assert house.node.may_read_node(who("eve"))
    await house.values("REVOKE INFO ON NODE FROM eve")
    assert not house.node.may_read_node(who("eve"))


async def test_what_a_table_tells_a_topic_is_told_with_the_writers_rights(house: Running) -> None:
    await house.values(
        "DEFINE TABLE told ON CHANGE PUBLISH INTO news; GRANT WRITE ON TABLE told TO mem"
    )
    assert await told(house, "mem", "CREATE told:1 RETURN NONE") == "Unknown"  # it sees no topic
    assert await house.value("SELECT * FROM told") == []
    await house.values("GRANT WRITE ON TOPIC news TO mem")
    assert await told(house, "mem", "CREATE told:1 RETURN NONE") == "may"
    assert len(await house.value("READ FROM news AFTER 0")) == 1
