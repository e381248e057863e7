from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from argon2 import PasswordHasher

from actors.passwords import Cost
from actors.runtime import ask
from actors.scripts import node as statements_on_the_node
from protocol.errors import (
    AlreadyExists,
    BadRequest,
    Draining,
    LastOwner,
    NotInTransaction,
    NotWritable,
    SessionEnded,
    Unknown,
)
from protocol.requests import AuthenticatePassword
from protocol.version import VERSION
from storage.engine.engine import EngineReader
from storage.engine.state_hash import hash_in_slices
from tests import bound
from tests.nodes import OWNER, PASSWORD, Running
from tests.tables import case

WEAK = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"
BOMB = "$argon2id$v=19$m=4194304,t=999,p=1$c29tZXNhbHQ$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"


async def refused(node: Running, script: str, **fields: Any) -> object:
    answer = await node.answer(script, **fields)
    return answer.refusal


async def test_use_lasts_to_the_end_of_the_script(node: Running) -> None:
    await node.values("DEFINE DATABASE other; USE DATABASE other; DEFINE TABLE t; CREATE t:1")
    assert isinstance(await refused(node, "SELECT * FROM t"), Unknown)
    assert len(await node.value("USE shop.other; SELECT * FROM t")) == 1


async def test_a_place_that_is_not_there_is_unknown(node: Running) -> None:
    assert isinstance(await refused(node, "USE nowhere.main"), Unknown)
    assert isinstance(await refused(node, "SELECT * FROM nothing"), Unknown)
    assert isinstance(await refused(node, "SELECT * FROM thing", place=("shop", "no")), Unknown)


async def test_without_a_place_a_table_is_a_bad_request(node: Running) -> None:
    assert isinstance(await refused(node, "SELECT * FROM thing", place=(None, None)), BadRequest)
    assert isinstance(await refused(node, "SELECT * FROM thing", place=("shop", None)), BadRequest)


async def test_dropping_a_place_takes_what_is_in_it_and_its_name_comes_back_empty(
    node: Running,
) -> None:
    await node.values("CREATE thing:1")
    await node.values("DROP DATABASE main REASON 'moved'; DEFINE DATABASE main")
    assert isinstance(await refused(node, "SELECT * FROM thing"), Unknown)
    await node.values("DEFINE TABLE thing")
    assert await node.value("SELECT * FROM thing") == []


async def test_define_says_what_to_do_when_the_name_is_taken(node: Running) -> None:
    assert isinstance(await refused(node, "DEFINE TABLE thing"), AlreadyExists)
    await node.values("CREATE thing:1; DEFINE TABLE IF NOT EXISTS thing COMMENT 'ignored'")
    info = await node.value("INFO FOR TABLE thing")
    assert info["records"] == 1 and info["comment"] is None
    await node.values("DEFINE TABLE OVERWRITE thing COMMENT 'kept'")
    info = await node.value("INFO FOR TABLE thing")
    assert (info["comment"], info["records"]) == ("kept", 1)


async def test_info_names_what_is_there(node: Running) -> None:
    store = await node.value("INFO FOR STORE")
    assert [each["name"] for each in store["namespaces"]] == ["shop"]
    namespace = await node.value("INFO FOR NAMESPACE")
    assert [each["name"] for each in namespace["databases"]] == ["main"]
    database = await node.value("INFO FOR DATABASE shop.main")
    assert [each["name"] for each in database["tables"]] == ["thing"]


async def test_drained_a_node_answers_only_about_itself(node: Running) -> None:
    await node.values("DEFINE NODE ROLES NONE")
    assert isinstance(await refused(node, "SELECT * FROM thing"), Draining)
    assert (await node.value("INFO FOR NODE"))["roles"] == []
    await node.values("DEFINE NODE ROLES serving, writable")
    assert await node.value("SELECT * FROM thing") == []


async def test_any_role_makes_a_node_answer(node: Running) -> None:
    await node.values("DEFINE NODE ROLES writable; CREATE thing:1")
    assert node.node.status().reason == "not_serving"
    assert len(await node.value("SELECT * FROM thing")) == 1
    await node.values("DEFINE NODE ROLES coordinating")
    assert len(await node.value("SELECT * FROM thing:1")) == 1
    assert isinstance(await refused(node, "CREATE thing:2"), NotWritable)


async def test_without_the_writable_role_reads_go_on(node: Running) -> None:
    await node.values("CREATE thing:1; DEFINE NODE ROLES serving")
    for script in (
        "CREATE thing:2",
        "UPDATE thing SET a = 1",
        "DELETE thing",
        "DEFINE TABLE x",
        "DROP TABLE thing",
        "INSERT INTO thing []",
        "DEFINE USER u ROLE owner PASSWORD 'password'",
    ):
        assert isinstance(await refused(node, script), NotWritable), script
    assert len(await node.value("SELECT * FROM thing")) == 1
    await node.values("DEFINE NODE ROLES serving, writable; CREATE thing:2")


async def test_the_nodes_own_statements_know_their_words(node: Running) -> None:
    assert isinstance(await refused(node, "DEFINE NODE ROLES dancing"), Unknown)
    assert isinstance(
        await refused(node, "BEGIN; DEFINE NODE ROLES serving; COMMIT"), NotInTransaction
    )
    await node.values("DEFINE NODE ENDPOINTS '10.0.0.1:8000', '[::1]:8000'")
    info = await node.value("INFO FOR NODE")
    assert info["endpoints"] == ["10.0.0.1:8000", "[::1]:8000"]
    assert info["roles"] == ["serving", "writable"]


async def test_the_state_hash_follows_the_state(node: Running) -> None:
    before = await node.value("INFO FOR STATE")
    assert await node.value("INFO FOR STATE") == before
    await node.values("CREATE thing:1")
    after = await node.value("INFO FOR STATE")
    assert after["sequence"] == before["sequence"] + 1 and after["hash"] != before["hash"]


async def test_users_sign_in_with_what_was_set_last(node: Running) -> None:
    async def signs_in(password: str) -> str:
        request = AuthenticatePassword("ana", password, "http", "127.0.0.1:1")
        return (await ask(node.node.sessions, request)).user

    await node.values("DEFINE USER ana ROLE owner PASSWORD 'first password'")
    assert await signs_in("first password") == "ana"
    await node.values("ALTER USER ana SET PASSWORD 'second password'")
    assert await signs_in("second password") == "ana"
    await node.values("DROP USER ana REASON 'left'")
    assert [user["name"] for user in await node.value("INFO FOR USERS")] == ["root"]


async def test_the_last_owner_stays(node: Running) -> None:
    assert isinstance(await refused(node, "DROP USER root"), LastOwner)
    assert isinstance(await refused(node, "DROP USER nobody"), Unknown)
    await node.values(f"DEFINE USER ana ROLE owner PASSWORD '{PASSWORD}'; DROP USER root")
    assert isinstance(await refused(node, "DROP USER ana"), SessionEnded)
    ana = replace(OWNER, user="ana")
    assert isinstance(await refused(node, "DROP USER ana", caller=ana), LastOwner)


async def test_a_password_or_hash_out_of_bounds_is_refused(node: Running) -> None:
    for definition in [
        "ROLE owner PASSWORD 'short'",
        f"ROLE owner PASSWORD '{'x' * 1025}'",
        f"ROLE owner PASSHASH '{WEAK}'",
        f"ROLE owner PASSHASH '{BOMB}'",
        "ROLE owner PASSHASH 'secret'",
    ]:
        with case(definition):
            refusal = await refused(node, f"DEFINE USER ana {definition}")
            assert isinstance(refusal, BadRequest)
            assert "secret" not in refusal.message


async def test_a_role_without_rules_is_not_taken(node: Running) -> None:
    answer = await refused(node, "DEFINE USER ana ROLE admin PASSWORD 'long enough'")
    assert isinstance(answer, Unknown)


async def test_a_hash_taken_from_one_store_works_in_another(node: Running) -> None:
    least = Cost()
    made = PasswordHasher(least.passes, least.memory_kib, least.lanes).hash("long enough")
    await node.values(f"DEFINE USER ana ROLE owner PASSHASH '{made}'")
    request = AuthenticatePassword("ana", "long enough", "http", "127.0.0.1:1")
    assert (await ask(node.node.sessions, request)).user == "ana"


async def test_an_endpoint_that_is_no_address_is_refused(node: Running) -> None:
    for address in [
        "",
        " ",
        "a b",
        "a:",
        "a:0",
        "a:65536",
        "a:1:2",
        "[::1",
        "::1:5",
        "http://a",
        "é:1",
    ]:
        with case(address):
            answer = await node.answer(f"DEFINE NODE ENDPOINTS '{address}'")
            assert isinstance(answer.refusal, BadRequest)
            assert node.node.status().endpoints == ()


async def test_what_a_node_says_of_itself_hashes_nothing(
    node: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash is asked for by its own name, and computed once for each state."""
    hashed: list[object] = []

    def counted(state: EngineReader) -> Any:
        hashed.append(state)
        return hash_in_slices(state)

    monkeypatch.setattr(statements_on_the_node, "hash_in_slices", counted)
    info = await node.value("INFO FOR NODE")
    assert info["settings"]["directory"] == node.node.settings.data_dir
    assert (info["version"], info["sequence"]) == (VERSION, node.node.status().sequence)
    assert info["build"] == ("compiled" if bound.COMPILED else "plain")
    assert not hashed
    first = await node.value("INFO FOR STATE")
    assert await node.value("INFO FOR STATE") == first
    assert len(hashed) == 1
    await node.values("CREATE thing:1")
    assert (await node.value("INFO FOR STATE"))["hash"] != first["hash"]
    assert len(hashed) == 2
