"""Trails of vaults: what they say of whom, who may do what, and what is said nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask
from protocol.errors import (
    AuditRefused,
    NotAllowed,
    NotWritable,
    Unknown,
)
from protocol.vaults import ChangePassphrase, Seal, ShowVaults, Unseal
from tests.actors.nodes import ANA, run, value
from tests.actors.parts import on_stepped
from tests.actors.vaulted import (
    CANARY,
    NAMES,
    PASSPHRASE,
    Machine,
    called,
    define_users,
    log_is_full,
    refusal,
    reveal,
    set_up,
    trail,
    unseal,
    with_vault,
    write,
)
from tests.logbook import Logbook


@with_vault
async def test_the_trail_says_all_of_it(node: Node, /) -> None:
    await write(node, "k", CANARY)
    await run(node, "REVEAL 'k' FROM VAULT v REASON 'because'")
    await refusal(node, "REVEAL 'nothing' FROM VAULT v")
    await value(node, "LIST FROM VAULT v PREFIX 'k'")
    newest, *older = await trail(node)
    assert newest["action"] == "list" and newest["id"] == "k"
    refused, revealed, written, defined = older[:4]
    assert (refused["outcome"], refused["id"]) == ("Unknown", "nothing")
    assert revealed | {"at": 0, "hash": "", "seq": 0, "request": ""} == {
        "seq": 0, "at": 0, "user": "ana", "role": "owner", "surface": "wire",
        "address": ANA.address, "action": "reveal", "vault": "a.b.v", "id": "k",
        "version": 1, "outcome": "granted", "reason": "because", "request": "", "more": 0,
        "hash": "", "intact": True,
    }  # fmt: skip
    assert written["action"] == "write" and defined["action"] == "define"
    assert CANARY not in repr([newest, *older])
    pages = await value(node, f"INFO FOR AUDIT OF VAULT v BEFORE {refused['seq']} LIMIT 1")
    assert [one["seq"] for one in pages] == [revealed["seq"]]
    assert pages[0]["intact"]


@on_stepped
async def test_refusals_by_the_thousand_are_counted() -> None:
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        await define_users(node)
        await value(node, "GRANT INFO ON VAULT v TO mo")
        before = len(await trail(node))
        for _ in range(80):
            await run(node, "REVEAL 'k' FROM VAULT v", caller=called("vi", "viewer"))
            await run(node, "REVEAL 'k' FROM VAULT v", caller=called("mo"))
            await refusal(node, "REVEAL 5 FROM VAULT v")
        await asyncio.sleep(61)
        await write(node, "k", 1)
        await asyncio.sleep(1)
        entries = (await trail(node))[:-before]
        for code, at_most in (("Unknown", 12), ("NotAllowed", 12), ("TypeRefused", 25)):
            found = [one for one in entries if one["outcome"] == code]
            assert len(found) <= at_most
            assert sum(one["more"] + 1 for one in found) == 80
        for _ in range(5):
            await run(node, "REVEAL 'k' FROM VAULT v", caller=called("vi", "viewer"))
    async with machine.node() as node:  # what was counted is told at the end
        kept = [one for one in await trail(node) if one["outcome"] == "Unknown"]
        assert sum(one["more"] + 1 for one in kept) == 85


@with_vault
async def test_who_sees_no_vault_makes_no_commit(node: Node, /) -> None:
    """By the sequence, which everybody is shown, it would be told from one that is not there."""
    await define_users(node)
    sequence = node.committer.committed
    for name in ("v", "nothing"):
        for script in (f"REVEAL 'k' FROM VAULT {name}", f"INFO FOR VAULT {name}"):
            answer = await run(node, script, caller=called("vi", "viewer"))
            assert isinstance(answer.refusal, Unknown)
        with pytest.raises(Unknown):
            await unseal(node, PASSPHRASE, ("a", "b", name), called("vi", "viewer"))
    await asyncio.sleep(90)
    assert node.committer.committed == sequence
    # What else they may not do there is kept as that, and the same for both.
    await value(node, "GRANT READ ON TABLE t TO mo")
    for script in (
        "ALTER VAULT {} SET COMMENT 'c'", "DROP VAULT {}", "ROTATE VAULT {}",
        "WRITE 'k' IN VAULT {} VALUE 1", "ERASE 'k' FROM VAULT {}", "LIST FROM VAULT {}",
        "INFO FOR AUDIT OF VAULT {}",
    ):  # fmt: skip
        grown = []
        for name in ("nothing", "v"):
            sequence = node.committer.committed
            answer = await run(node, script.format(name), caller=called("mo"))
            assert isinstance(answer.refusal, Unknown | NotAllowed)
            await asyncio.sleep(1)
            grown.append(node.committer.committed - sequence)
        assert grown[0] == grown[1], script
    await write(node, "k", 1)
    await asyncio.sleep(1)
    outcomes = [(one["user"], one["action"], one["outcome"]) for one in await trail(node)]
    for action in ("reveal", "info", "unseal"):
        assert ("vi", action, "Unknown") in outcomes


@with_vault
async def test_rights(node: Node, /) -> None:
    await define_users(node)
    await write(node, "k", 1)

    async def told(name: str, script: str) -> Any:
        return (await run(node, script, caller=called(name))).refusal

    scripts = (
        "REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v", "WRITE 'k' IN VAULT v VALUE 1",
        "ERASE 'x' FROM VAULT v", "INFO FOR VAULT v", "INFO FOR AUDIT OF VAULT v",
        "ROTATE VAULT v",
    )  # fmt: skip
    for script in scripts:
        for name in ("ed", "vi"):  # they see the place, and nothing of vaults
            assert isinstance(await told(name, script), Unknown), (name, script)
        assert isinstance(await told("mo", script), Unknown)
        assert isinstance(await told("bob", script), Unknown)
        assert await told("sue", script) is None, script
    verbs = ("READ", "READ", "WRITE", "WRITE", "INFO", "INFO", "UNSEAL")
    for securable in ("VAULT a.b.v", "ALL VAULTS IN a.b", "ALL VAULTS IN a"):
        for verb in verbs:
            await value(node, f"GRANT {verb} ON {securable} TO mo")
            for other, needed in zip(scripts, verbs, strict=True):
                found = await told("mo", other)
                if needed == verb:
                    assert found is None, (securable, verb, other)
                else:
                    assert isinstance(found, NotAllowed), (securable, verb, other)
                    assert needed in str(found.detail["needs"])
            await value(node, f"REVOKE {verb} ON {securable} FROM mo")
    await value(node, "GRANT READ, WRITE, INFO ON DATABASE a.b TO mo")
    for script in scripts:  # no grant on a place reaches a vault
        assert isinstance(await told("mo", script), Unknown)
    for name in ("sue", "mo", "ed"):
        refused = await told(name, "INFO FOR AUDIT OF ALL VAULTS")
        assert isinstance(refused, NotAllowed)
    with pytest.raises(NotAllowed):
        await unseal(node, PASSPHRASE, None, called("sue", "owner"))
    with pytest.raises(NotAllowed):
        await unseal(node, PASSPHRASE, None, called("ed", "editor"))
    with pytest.raises(Unknown):
        await unseal(node, PASSPHRASE, NAMES, called("vi", "viewer"))
    await value(node, "GRANT UNSEAL ON NODE TO ed")
    await unseal(node, PASSPHRASE, None, called("ed", "editor"))
    outcomes = [(one["user"], one["action"], one["outcome"]) for one in await trail(node)]
    assert ("vi", "reveal", "Unknown") in outcomes
    assert ("mo", "reveal", "NotAllowed") in outcomes
    shown = await ask(node.vaults, ShowVaults(called("ed", "editor")))
    assert shown.vaults == ()


@with_vault
async def test_texts_hide_secrets(node: Node, /) -> None:
    await value(node, f"WRITE '{CANARY}' IN VAULT v VALUE '{CANARY}'")
    await value(node, f"BEGIN; LET $x = '{CANARY}'; WRITE 'k' IN VAULT v VALUE $x; COMMIT")
    await value(node, f"FOR $s IN ['{CANARY}'] {{ WRITE $s IN VAULT v VALUE $s }}")
    await value(node, f"IF '{CANARY}' = 'x' {{ WRITE 'k' IN VAULT v VALUE 1 }}")
    await value(node, f"BEGIN; LET $p = '{CANARY}'; DEFINE VAULT o PASSPHRASE $p; COMMIT")
    bound = f"BEGIN; LET $p = '{CANARY}'; DEFINE USER u ROLE member PASSWORD $p; COMMIT"
    await value(node, bound)
    await value(node, f"REVEAL '{CANARY}' FROM VAULT v")
    await value(node, f"BEGIN; LET $x = '{CANARY}'; ERASE $x FROM VAULT v; COMMIT")
    await value(node, f"DEFINE VAULT w PASSPHRASE '{CANARY}'")
    await value(node, f"LIST FROM VAULT v PREFIX '{CANARY}'")
    await refusal(node, f"REVEAL '{CANARY}' FROM VALUT v")
    await refusal(node, f"WRITE 'k' IN VAULT v VALEU '{CANARY}'")
    kept = await value(node, "INFO FOR STATEMENTS LIMIT 1000")
    texts = [one["statement"] for one in kept if one["statement"]]
    assert "WRITE '...' IN VAULT v VALUE '...'" in texts
    assert "REVEAL '...' FROM VAULT v" in texts
    assert CANARY not in repr(kept)
    assert "FOR $s IN '...' { WRITE $s IN VAULT v VALUE $s }" in texts
    await value(node, "WRITE $id IN VAULT v VALUE $value", {"id": CANARY, "value": CANARY})
    texts = [one["statement"] for one in await value(node, "INFO FOR STATEMENTS")]
    assert "WRITE $id IN VAULT v VALUE $value" in texts


@with_vault
async def test_the_log_says_where_trails_stand(node: Node, /, logbook: Logbook) -> None:
    await write(node, "k", 1)
    await asyncio.sleep(3601)
    said = [one for one in logbook.events if one["event"] == "head of a vault's trail"]
    told = (await value(node, "INFO FOR VAULT v"))["audit"]
    assert [one["vault"] for one in said] == ["", "a.b.v"]
    assert (said[1]["entries"], said[1]["hash"]) == (told["entries"], told["hash"])
    await asyncio.sleep(3601)
    assert logbook.names().count("head of a vault's trail") < 4  # what has not grown is not said


@on_stepped
async def test_a_full_disk_reveals_nothing(logbook: Logbook) -> None:
    logbook.allow("disk")
    logbook.allow("not kept")
    machine = Machine()
    async with machine.node() as node:
        await set_up(node)
        await unseal(node)
        await write(node, "k", CANARY)
        machine.disk.plan = log_is_full
        for script in ("REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v"):
            answer = await run(node, script)
            assert isinstance(answer.refusal, AuditRefused)
            assert answer.results == ()
        asked: tuple[Any, ...] = (
            Unseal(ANA, None, PASSPHRASE),
            ChangePassphrase(ANA, None, PASSPHRASE, PASSPHRASE, rekey=True),
        )
        for _ in range(2):  # when it is found to be full, and when that is known
            for one in asked:
                with pytest.raises(AuditRefused):
                    await ask(node.vaults, one)
        machine.disk.plan = None
        assert (await reveal(node, "k"))["value"] == CANARY


@with_vault
async def test_a_node_that_takes_no_writes_reveals_nothing(node: Node, /, logbook: Logbook) -> None:
    logbook.allow("sealed without an audit entry")
    await write(node, "k", 1)
    await value(node, "DEFINE NODE ROLES serving")
    for script in ("REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v"):
        assert isinstance(await refusal(node, script), NotWritable)
    with pytest.raises(NotWritable):
        await unseal(node, "not even looked at")
    await ask(node.vaults, Seal(ANA, None))  # that is done all the same
    assert (await value(node, "INFO FOR VAULT v"))["sealed"]


@with_vault
async def test_a_script_says_what_it_does_not_carry(node: Node, /) -> None:
    await define_users(node)
    await value(node, "GRANT READ ON VAULT v TO mo; GRANT READ ON ALL VAULTS IN a TO mo")
    await write(node, "k", CANARY)
    await write(node, "l", CANARY)
    script = await value(node, "BACKUP SCRIPT")
    assert b"not carried: vault a.b.v, with 2 secrets\n" in script
    assert b"ON ALL VAULTS IN a " in script
    assert b"ON VAULT" not in script and CANARY.encode() not in script
