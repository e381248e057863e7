"""Vaults of a whole node: seals, records and their versions, declarations."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.errors import (
    AlreadyExists,
    BadRequest,
    Busy,
    Conflict,
    Draining,
    Failed,
    NotAllowed,
    NotEnoughReplicas,
    Refusal,
    Sealed,
    SessionEnded,
    TooLarge,
    TypeRefused,
    Unknown,
    WrongKey,
)
from protocol.requests import AuthenticatePassword, Caller, SignIn
from protocol.vaults import ChangePassphrase, Seal, ShowVaults
from tests.actors.nodes import (
    ANA,
    VAULTS,
    prepare,
    run,
    value,
)  # fmt: skip
from tests.actors.parts import on_stepped, outcome
from tests.actors.vaulted import (
    CANARY,
    PASSPHRASE,
    Machine,
    called,
    define_users,
    node_with_vault,
    refusal,
    reveal,
    trail,
    unseal,
    with_vault,
    write,
)
from tests.logbook import Logbook


@with_vault
async def test_written_and_revealed(node: Node, /) -> None:
    for value_ in (CANARY, {"user": "x", "at": [1, 2.5, None]}, b"\x00\xff", True):
        assert (await write(node, "k", value_))["written"] is True
        found = await reveal(node, "k")
        assert found["value"] == value_
        assert found["id"] == "k"
    assert found["version"] == 4
    assert (await reveal(node, "k", "VERSION 3"))["value"] == b"\x00\xff"
    for version in ("VERSION 2", "VERSION 5", "VERSION 0"):
        assert isinstance(await refusal(node, f"REVEAL 'k' FROM VAULT v {version}"), Unknown)
    assert await value(node, "LIST FROM VAULT v") == {"ids": ["k"]}
    assert await value(node, "ERASE 'k' FROM VAULT v REASON 'old'") == {"erased": True}
    assert await value(node, "ERASE 'k' FROM VAULT v") == {"erased": False}
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Unknown)
    assert (await write(node, "k", 1))["version"] == 5


@with_vault
async def test_conditions(node: Node, /) -> None:
    assert await write(node, "k", 1, "IF ABSENT") == {"written": True, "version": 1}
    assert await write(node, "k", 2, "IF ABSENT") == {"written": False, "version": 1}
    assert await write(node, "k", 2, "EXPECT VERSION 2") == {"written": False, "version": 1}
    assert await write(node, "k", 2, "EXPECT VERSION 1") == {"written": True, "version": 2}
    assert await write(node, "l", 2, "EXPECT VERSION 0") == {"written": True, "version": 1}
    assert (await reveal(node, "k"))["value"] == 2


@with_vault
async def test_what_is_no_id_or_value(node: Node, /) -> None:
    script = "WRITE $id IN VAULT v VALUE $value"
    for id, value_, kind in (
        (5, 1, TypeRefused),
        ("", 1, BadRequest),
        ("a\nb", 1, BadRequest),
        ("x" * 513, 1, TooLarge),
        ("k", "x" * limits.VAULT_VALUE_BYTES, TooLarge),
    ):
        assert isinstance(await refusal(node, script, {"id": id, "value": value_}), kind)
    assert isinstance(await refusal(node, "WRITE 'k' IN VAULT v VALUE NONE"), TypeRefused)


@with_vault
async def test_listed_in_pages(node: Node, /) -> None:
    for id in ("b", "a/2", "a/1", "ß"):
        await write(node, id, 1)
    assert (await value(node, "LIST FROM VAULT v"))["ids"] == ["a/1", "a/2", "b", "ß"]
    page = await value(node, "LIST FROM VAULT v PREFIX 'a/' AFTER 'a/1' LIMIT 5")
    assert page["ids"] == ["a/2"]
    assert (await value(node, "LIST FROM VAULT v LIMIT 0"))["ids"] == []
    assert isinstance(await refusal(node, "LIST FROM VAULT v LIMIT 1001"), BadRequest)
    assert isinstance(await refusal(node, "LIST FROM VAULT v PREFIX 5"), TypeRefused)


@with_vault.using(sealed=True)
async def test_sealed(node: Node, /) -> None:
    for script in (
        "WRITE 'k' IN VAULT v VALUE 1", "REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v",
        "ROTATE VAULT v",
    ):  # fmt: skip
        assert isinstance(await refusal(node, script), Sealed)
    await unseal(node)
    await write(node, "k", 1)
    await ask(node.vaults, Seal(ANA, None))
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Sealed)
    assert not node._sealed._keyring._open
    actions = [(one["action"], one["outcome"]) for one in await trail(node)]
    assert actions.count(("reveal", "Sealed")) == 2


@pytest.mark.parametrize(
    "why",
    [
        NotEnoughReplicas("too few would have it", followers=0, acks=1),
        Draining("the node stops"),
        Conflict("somebody's barrier stands"),
        Failed("the log has failed"),
        Busy("the disk is slow"),
    ],
)
@with_vault
async def test_it_is_sealed_whatever_refuses_to_record_it(
    node: Node, /, why: Refusal, logbook: Logbook
) -> None:
    logbook.allow("sealed without an audit entry")
    await write(node, "k", CANARY)
    committer = node.committer
    check = committer.check_replicated

    def refuse() -> None:
        raise why.also()

    committer.check_replicated = refuse
    await ask(node.vaults, Seal(ANA, None))
    committer.check_replicated = check
    assert not node._sealed._keyring._open
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Sealed)
    (line,) = [one for one in logbook.events if one["event"] == "sealed without an audit entry"]
    assert line["why"] == why.code


@on_stepped
async def test_the_time_of_an_unseal() -> None:
    told = replace(VAULTS, unseal_us=60_000_000)
    async with node_with_vault(sealed=True, vaults=told) as node:
        before = node.environment.clock.monotonic_us()
        until_at = await unseal(node)
        await write(node, "k", 1)
        await asyncio.sleep(30)
        await reveal(node, "k")  # which makes it no longer
        left_us = before + 60_000_000 - node.environment.clock.monotonic_us()
        await asyncio.sleep(left_us / 1e6 - 1)
        await reveal(node, "k")
        assert not (await value(node, "INFO FOR VAULT v"))["sealed"]
        await asyncio.sleep(2)
        found = await value(node, "INFO FOR VAULT v")
        assert found["sealed"] and found["until"] is None
        assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Sealed)
        newest = (await trail(node, "ALL VAULTS"))[0]
        assert (newest["action"], newest["user"]) == ("seal", "node")
        assert newest["reason"] == "its time was over"
        assert until_at is not None


@with_vault.using(sealed=True)
async def test_wrong_passphrases(node: Node, /) -> None:
    clock = node.environment.clock
    taken = []
    for passphrase in ("wrong passphrase", "", "x" * 5000):
        began = clock.monotonic_us()
        with pytest.raises(WrongKey, match=r"^wrong passphrase$"):
            await unseal(node, passphrase)
        taken.append(clock.monotonic_us() - began)
    assert taken[0] >= 100_000 and taken[1] >= 200_000 and taken[2] >= 400_000
    entries = await trail(node, "ALL VAULTS")
    assert [one["outcome"] for one in entries if one["action"] == "unseal"] == ["WrongKey"] * 3
    await unseal(node)


@with_vault
async def test_declared(node: Node, /) -> None:
    assert isinstance(await refusal(node, "DEFINE VAULT v"), AlreadyExists)
    await value(node, "DEFINE VAULT IF NOT EXISTS v PASSPHRASE 'not looked at'")
    await value(node, "ALTER VAULT v SET VERSIONS 3; ALTER VAULT v SET COMMENT 'c'")
    found = await value(node, "INFO FOR VAULT v")
    assert (found["versions"], found["comment"], found["own"]) == (3, "c", False)
    (number,) = [
        one["version"] for one in await trail(node, "ALL VAULTS") if "define" in one["action"]
    ]
    await write(node, "k", 1)
    await value(node, "DROP VAULT v REASON 'gone'")
    assert isinstance(await refusal(node, "INFO FOR VAULT v"), Unknown)
    kept = await trail(node, f"ALL VAULTS NUMBER {number}")
    assert [one["action"] for one in kept] == ["drop", "write", "alter", "alter", "define"]
    assert kept[0]["reason"] == "gone"
    newest = (await trail(node, "ALL VAULTS"))[0]
    assert (newest["action"], newest["version"]) == ("drop a.b.v", number)
    await value(node, "DEFINE VAULT v")
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Unknown)
    await value(node, "DROP DATABASE a.b")
    newest = (await trail(node, "ALL VAULTS"))[0]
    assert newest["action"] == "drop a.b.v"


@with_vault
async def test_part_of_a_transaction(node: Node, /) -> None:
    script = """
                BEGIN; CREATE t:1; WRITE 'a' IN VAULT v VALUE 1; WRITE 'b' IN VAULT v VALUE 2;
                ERASE 'a' FROM VAULT v; COMMIT
            """
    await value(node, script)
    assert (await reveal(node, "b"))["value"] == 2
    await value(node, "BEGIN; WRITE 'b' IN VAULT v VALUE 3; CANCEL")
    assert (await reveal(node, "b"))["value"] == 2
    for script in (
        "BEGIN; REVEAL 'b' FROM VAULT v; COMMIT", "BEGIN; LIST FROM VAULT v; COMMIT",
        "IF true { REVEAL 'b' FROM VAULT v }", "FOR $i IN [1] { LIST FROM VAULT v }",
    ):  # fmt: skip
        assert isinstance(await refusal(node, script), BadRequest)
    actions = [one["action"] for one in await trail(node)]
    assert actions.count("write") == 2 and actions.count("erase") == 1


@on_stepped
async def test_an_unset_store() -> None:
    async with Machine().node() as node:
        await prepare(node)
        with pytest.raises(Sealed, match="has no passphrase"):
            await unseal(node)
        with pytest.raises(Sealed, match="has no passphrase"):
            await ask(node.vaults, ChangePassphrase(ANA, None, "not there", PASSPHRASE))
        await define_users(node)
        with pytest.raises(NotAllowed):
            asked = ChangePassphrase(called("sue", "owner"), None, None, PASSPHRASE)
            await ask(node.vaults, asked)
        await value(node, "DEFINE VAULT v")
        assert isinstance(await refusal(node, "WRITE 'k' IN VAULT v VALUE 1"), Sealed)
        assert not (await ask(node.vaults, ShowVaults(ANA))).is_set
        assert await outcome(unseal(node)) is not None


@pytest.mark.parametrize("basic", [False, True])
@with_vault
async def test_an_unseal_ends_with_the_credential_it_was_asked_by(
    node: Node, /, basic: bool
) -> None:
    """Also while its passphrase is hashed."""
    await value(node, "DEFINE USER eve ROLE owner PASSWORD 'xxxxxxxx'")
    address = "192.0.2.2:1"
    if basic:
        asked = AuthenticatePassword("eve", "xxxxxxxx", "http", address)
        caller = await ask(node.sessions, asked)
    else:
        signed_in = SignIn("eve", "xxxxxxxx", "http", address)
        caller = (await ask(node.sessions, signed_in)).caller
    await ask(node.vaults, Seal(ANA, None))
    opening = asyncio.create_task(unseal(node, caller=caller))
    await asyncio.sleep(0)
    await value(node, "ALTER USER eve SET ROLE owner")
    with pytest.raises(SessionEnded):
        await opening
    assert isinstance(await refusal(node, "WRITE 'k' IN VAULT v VALUE 1"), Sealed)


@with_vault
async def test_a_database_shows_its_vaults_to_whom_they_concern(node: Node, /) -> None:
    await define_users(node)
    await value(node, "DEFINE VAULT o PASSPHRASE 'of its own, it is' COMMENT 'c'")
    await write(node, "k", CANARY)
    v = {"name": "v", "comment": None, "own": False, "sealed": False, "versions": 2,
         "records": 1}  # fmt: skip
    o = {"name": "o", "comment": "c", "own": True, "sealed": True, "versions": 1,
         "records": 0}  # fmt: skip

    async def shown(caller: Caller) -> Any:
        answer = await run(node, "INFO FOR DATABASE", caller=caller)
        assert answer.refusal is None
        found = answer.results[-1].value
        assert isinstance(found, dict)
        return found["vaults"]

    assert await shown(ANA) == await shown(called("sue", "owner")) == [o, v]
    assert await shown(called("vi", "viewer")) == []
    await value(node, "GRANT INFO ON DATABASE a.b TO mo; GRANT INFO ON DATABASE a.b TO ed")
    assert await shown(called("ed", "editor")) == await shown(called("mo")) == []
    for verb in ("READ", "WRITE", "INFO", "UNSEAL"):
        await value(node, f"GRANT {verb} ON VAULT v TO mo")
        assert await shown(called("mo")) == [v]
        await value(node, f"REVOKE {verb} ON VAULT v FROM mo")
    await value(node, "GRANT READ ON ALL VAULTS IN a TO vi")
    assert await shown(called("vi", "viewer")) == [o, v]
