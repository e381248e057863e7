"""Vaults of a whole node: seals, passphrases, records, rotation, trails, rights."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from actors.node import Node
from actors.runtime import ask
from actors.scripts.plans import Plans
from actors.vaults import rotation
from protocol import limits
from protocol.errors import (
    AlreadyExists,
    AuditRefused,
    BadRequest,
    NotAllowed,
    NotWritable,
    Sealed,
    TooLarge,
    TypeRefused,
    Unknown,
    WrongKey,
)
from protocol.requests import Caller
from protocol.vaults import ChangePassphrase, Seal, ShowVaults, Unseal
from storage import keys, vault_rows, vault_trail, vaults
from storage.memory import MemoryEngine
from storage.vault_seals import stretched, unwrap_key, unwrap_root
from storage.vaults import Vault
from tests.actors.nodes import ANA, VAULTS, prepare, run, running, settings, simulated_doors, value
from tests.actors.parts import outcome, play
from tests.logbook import Logbook
from tests.simulation.disk import Fault, SimulatedDisk

PASSPHRASE = "open sesame, please"
OTHER = "quite another one"
NAMES = ("a", "b", "v")
CANARY = "canary-sk-live-51"


class Machine:
    """A disk and a state that nodes are started on, one after the other."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.engine = MemoryEngine()

    @asynccontextmanager
    async def node(self, **fields: Any) -> AsyncIterator[Node]:
        doors = simulated_doors("stepped", self.disk, self.engine)
        async with running(doors, settings(**fields)) as node:
            yield node


@asynccontextmanager
async def node_with_vault(sealed: bool = False, **fields: Any) -> AsyncIterator[Node]:
    """A node with vault `v` that hangs on the store, and unsealed."""
    async with Machine().node(**fields) as node:
        await set_up(node)
        if not sealed:
            await unseal(node)
        yield node


async def set_up(node: Node) -> None:
    await prepare(node)
    await ask(node.vaults, ChangePassphrase(ANA, None, None, PASSPHRASE))
    await value(node, "DEFINE VAULT v VERSIONS 2")


async def unseal(
    node: Node, passphrase: str = PASSPHRASE, names: Any = None, caller: Caller = ANA
) -> Any:
    return await ask(node.vaults, Unseal(caller, names, passphrase, "r-unseal"))


async def write(node: Node, id: str, value_: Any, more: str = "") -> Any:
    script = f"WRITE $id IN VAULT v VALUE $value {more}"
    return await value(node, script, {"id": id, "value": value_})


async def reveal(node: Node, id: str, more: str = "") -> Any:
    return await value(node, f"REVEAL $id FROM VAULT v {more}", {"id": id})


async def refusal(node: Node, script: str, parameters: Mapping[str, Any] | None = None) -> Any:
    return (await run(node, script, parameters)).refusal


async def trail(node: Node, of: str = "VAULT v") -> list[Any]:
    return await value(node, f"INFO FOR AUDIT OF {of} LIMIT 1000")  # type: ignore[no-any-return]


def vault_of(node: Node, name: str = "v") -> Vault:
    with node.committer.begin() as tx:
        return node.rights.vault(tx, ANA, ("a", "b"), name, frozenset())


def played(main: Any) -> None:
    play("stepped", main)


def test_written_and_revealed() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            for value_ in (CANARY, {"user": "x", "at": [1, 2.5, None]}, b"\x00\xff", True):
                assert (await write(node, "k", value_))["written"] is True
                found = await reveal(node, "k")
                assert found["value"] == value_
                assert found["id"] == "k"
            assert found["version"] == 4
            assert (await reveal(node, "k", "VERSION 3"))["value"] == b"\x00\xff"
            for version in ("VERSION 2", "VERSION 5", "VERSION 0"):
                assert isinstance(
                    await refusal(node, f"REVEAL 'k' FROM VAULT v {version}"), Unknown
                )
            assert await value(node, "LIST FROM VAULT v") == {"ids": ["k"]}
            assert await value(node, "ERASE 'k' FROM VAULT v REASON 'old'") == {"erased": True}
            assert await value(node, "ERASE 'k' FROM VAULT v") == {"erased": False}
            assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Unknown)
            assert (await write(node, "k", 1))["version"] == 5

    played(main)


def test_conditions() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            assert await write(node, "k", 1, "IF ABSENT") == {"written": True, "version": 1}
            assert await write(node, "k", 2, "IF ABSENT") == {"written": False, "version": 1}
            assert await write(node, "k", 2, "EXPECT VERSION 2") == {"written": False, "version": 1}
            assert await write(node, "k", 2, "EXPECT VERSION 1") == {"written": True, "version": 2}
            assert await write(node, "l", 2, "EXPECT VERSION 0") == {"written": True, "version": 1}
            assert (await reveal(node, "k"))["value"] == 2

    played(main)


def test_what_is_no_id_or_value() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
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

    played(main)


def test_listed_in_pages() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            for id in ("b", "a/2", "a/1", "ß"):
                await write(node, id, 1)
            assert (await value(node, "LIST FROM VAULT v"))["ids"] == ["a/1", "a/2", "b", "ß"]
            page = await value(node, "LIST FROM VAULT v PREFIX 'a/' AFTER 'a/1' LIMIT 5")
            assert page["ids"] == ["a/2"]
            assert (await value(node, "LIST FROM VAULT v LIMIT 0"))["ids"] == []
            assert isinstance(await refusal(node, "LIST FROM VAULT v LIMIT 1001"), BadRequest)
            assert isinstance(await refusal(node, "LIST FROM VAULT v PREFIX 5"), TypeRefused)

    played(main)


def test_sealed() -> None:
    async def main() -> None:
        async with node_with_vault(sealed=True) as node:
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

    played(main)


def test_the_time_of_an_unseal() -> None:
    async def main() -> None:
        told = replace(VAULTS, unseal_us=60_000_000)
        async with node_with_vault(sealed=True, vaults=told) as node:
            before = node.doors.clock.monotonic_us()
            until_at = await unseal(node)
            await write(node, "k", 1)
            await asyncio.sleep(30)
            await reveal(node, "k")  # which makes it no longer
            left_us = before + 60_000_000 - node.doors.clock.monotonic_us()
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

    played(main)


def test_wrong_passphrases() -> None:
    async def main() -> None:
        async with node_with_vault(sealed=True) as node:
            clock = node.doors.clock
            taken = []
            for passphrase in ("wrong passphrase", "", "x" * 5000):
                began = clock.monotonic_us()
                with pytest.raises(WrongKey, match=r"^the passphrase does not open it$"):
                    await unseal(node, passphrase)
                taken.append(clock.monotonic_us() - began)
            assert taken[0] >= 100_000 and taken[1] >= 200_000 and taken[2] >= 400_000
            entries = await trail(node, "ALL VAULTS")
            assert [one["outcome"] for one in entries if one["action"] == "unseal"] == [
                "WrongKey"
            ] * 3
            await unseal(node)

    played(main)


def test_passphrases_are_changed() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", CANARY)
            with pytest.raises(WrongKey):
                await ask(node.vaults, ChangePassphrase(ANA, None, OTHER, OTHER))
            with pytest.raises(BadRequest):
                await ask(node.vaults, ChangePassphrase(ANA, None, None, OTHER))
            with pytest.raises(BadRequest):
                await ask(node.vaults, ChangePassphrase(ANA, None, PASSPHRASE, "short"))
            assert await ask(node.vaults, ChangePassphrase(ANA, None, PASSPHRASE, OTHER)) == 1
            assert (await reveal(node, "k"))["value"] == CANARY  # it stays unsealed
            await ask(node.vaults, Seal(ANA, None))
            with pytest.raises(WrongKey):
                await unseal(node, PASSPHRASE)
            await unseal(node, OTHER)
            assert (await reveal(node, "k"))["value"] == CANARY
            assert (await value(node, "INFO FOR VAULT v"))["key_version"] == 1

    played(main)


@pytest.mark.parametrize("is_open", [False, True])
def test_all_keys_are_made_anew(is_open: bool) -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            for number in range(150):
                await write(node, f"k{number}", number)
            vault = vault_of(node)
            with node.committer.begin() as tx:
                before = vaults.keys_row(tx, vault)
                store = vaults.store_row(tx)
            if not is_open:
                await ask(node.vaults, Seal(ANA, None))
            asked = ChangePassphrase(ANA, None, PASSPHRASE, OTHER, rekey=True)
            assert await ask(node.vaults, asked) == 2
            if not is_open:
                assert (await value(node, "INFO FOR VAULT v"))["rotation"] == "waiting (sealed)"
                await unseal(node, OTHER)
            await rotated(node)
            with node.committer.begin() as tx:
                after = vaults.keys_row(tx, vault)
                renewed = vaults.store_row(tx)
                assert after.current == 2 and set(after.wraps) == {2}
                assert not vaults.is_used(tx, vault, 1)
            assert store is not None and renewed is not None
            assert (store.generation, renewed.generation) == (1, 2)
            assert before.wraps[1] not in after.wraps.values()
            for number in range(150):
                assert (await reveal(node, f"k{number}"))["value"] == number
            assert all(one["intact"] for one in await trail(node))
            assert all(one["intact"] for one in await trail(node, "ALL VAULTS"))

    played(main)


async def rotated(node: Node) -> None:
    while (await value(node, "INFO FOR VAULT v"))["rotation"] != "none":
        await asyncio.sleep(0.1)


def test_rotation_beside_writes() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            for number in range(200):
                await write(node, f"k{number}", 0)
            written = {f"k{number}": 0 for number in range(200)}

            async def writer(first: int) -> None:
                for number in range(first, 200, 4):
                    await write(node, f"k{number}", number)
                    written[f"k{number}"] = number

            async def rotator() -> None:
                for _ in range(3):
                    await value(node, "ROTATE VAULT v")
                    await asyncio.sleep(0)

            await asyncio.gather(*map(writer, range(4)), rotator())
            await rotated(node)
            for id, number in written.items():
                assert (await reveal(node, id))["value"] == number
            found = await value(node, "INFO FOR VAULT v")
            assert found["key_version"] == 4 and found["records"] == 200

    played(main)


def test_what_a_change_of_keys_gives() -> None:
    """Line by line of the table in docs/vaults.md: what somebody has who kept an old copy of the
    state and learns the old passphrase."""

    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", CANARY)
            vault = vault_of(node)
            with node.committer.begin() as tx:
                old = vaults.store_row(tx)
            assert old is not None and old.root is not None
            wrapping = stretched(PASSPHRASE, old.root.salt, old.root.stretch)
            stolen = unwrap_root(wrapping, old.root, old.domain, 0)

            def opens_today() -> bool:
                with node.committer.begin() as tx:
                    row = vaults.keys_row(tx, vault)
                wrap = row.wraps[row.current]
                try:
                    unwrap_key(stolen, wrap, old.domain, vault.id, row.current)
                except WrongKey:
                    return False
                return True

            await ask(node.vaults, ChangePassphrase(ANA, None, PASSPHRASE, OTHER))
            assert opens_today()  # another passphrase alone takes nothing from them
            await value(node, "ROTATE VAULT v")
            await rotated(node)
            assert opens_today()  # nor does a rotation
            asked = ChangePassphrase(ANA, None, OTHER, PASSPHRASE, rekey=True)
            await ask(node.vaults, asked)
            await rotated(node)
            assert not opens_today()
            assert (await value(node, "INFO FOR VAULT v"))["in_log_until"] is not None
            await value(node, "ERASE 'k' FROM VAULT v")
            erased = await value(node, "INFO FOR VAULT v")
            assert erased["in_log_until"] == node.committer.released_upto
            with node.committer.begin() as tx:
                for tag in (keys.VAULT_VALUE, keys.VAULT_USE, keys.VAULT_RECORD):
                    assert not list(tx.scan(*keys.tagged(tag)))

    played(main)


def test_a_value_that_does_not_open_keeps_its_key(logbook: Logbook) -> None:
    logbook.allow("a value does not open, its key is kept")

    async def main() -> None:
        async with node_with_vault() as node:
            await value(node, "DEFINE VAULT w; WRITE 'k' IN VAULT w VALUE 1")
            for id in ("a", "b", "c"):
                await write(node, id, id)
            at = vault_rows.value(vault_of(node).numbers, b"b", 1)
            with node.committer.begin() as tx:
                row = tx.get(at)
                assert row is not None
                tx.put(at, row[:-1] + bytes((row[-1] ^ 1,)))
                promise = node.committer.commit(tx, ANA)
            await node.committer.released(promise)
            await value(node, "ROTATE VAULT v; ROTATE VAULT w")
            await asyncio.sleep(5)
            assert (await value(node, "INFO FOR VAULT w"))["rotation"] == "none"
            assert (await value(node, "REVEAL 'k' FROM VAULT w"))["value"] == 1
            with node.committer.begin() as tx:
                assert set(vaults.keys_row(tx, vault_of(node)).wraps) == {1, 2}
            for id in ("a", "c"):
                assert (await reveal(node, id))["value"] == id
            assert isinstance(await refusal(node, "REVEAL 'b' FROM VAULT v"), WrongKey)
            outcomes = [(one["action"], one["outcome"]) for one in await trail(node)]
            assert ("rotate", "WrongKey") in outcomes
            await value(node, "ERASE 'b' FROM VAULT v; ROTATE VAULT v")
            await rotated(node)
            assert (await reveal(node, "c"))["value"] == "c"

    played(main)


def test_a_key_that_has_sealed_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VAULT_KEY_SEALS", 3)
    monkeypatch.setattr(rotation, "AT_ONCE", 1)

    async def main() -> None:
        async with node_with_vault() as node:
            for number in range(8):
                await write(node, f"k{number}", number)
                await asyncio.sleep(1)
            await rotated(node)
            found = await value(node, "INFO FOR VAULT v")
            assert found["key_version"] > 2
            for number in range(8):
                assert (await reveal(node, f"k{number}"))["value"] == number

    played(main)


def test_nothing_unsealed_survives_a_restart_and_rotation_goes_on() -> None:
    async def main() -> None:
        machine = Machine()
        async with machine.node() as node:
            await set_up(node)
            await unseal(node)
            for number in range(100):
                await write(node, f"k{number}", number)
            await value(node, "ROTATE VAULT v")
            await ask(node.vaults, Seal(ANA, None))
        async with machine.node() as node:
            found = await value(node, "INFO FOR VAULT v")
            assert found["sealed"]
            assert found["rotation"] == "waiting (sealed)"
            await unseal(node)
            await rotated(node)
            for number in range(100):
                assert (await reveal(node, f"k{number}"))["value"] == number
            assert len(await trail(node)) > 100

    played(main)


def test_a_vault_with_a_passphrase_of_its_own() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await value(node, "DEFINE VAULT o PASSPHRASE $p", {"p": OTHER})
            names = ("a", "b", "o")
            assert isinstance(await refusal(node, "WRITE 'k' IN VAULT o VALUE 1"), Sealed)
            with pytest.raises(WrongKey):
                await unseal(node, PASSPHRASE, names)
            await unseal(node, OTHER, names)
            await value(node, "WRITE 'k' IN VAULT o VALUE 1")
            await ask(node.vaults, Seal(ANA, None))  # the store's seal is none of its
            assert (await value(node, "REVEAL 'k' FROM VAULT o"))["value"] == 1
            asked = ChangePassphrase(ANA, names, OTHER, PASSPHRASE, rekey=True)
            assert await ask(node.vaults, asked) == 2
            assert (await value(node, "REVEAL 'k' FROM VAULT o"))["value"] == 1
            await ask(node.vaults, Seal(ANA, names))
            assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT o"), Sealed)
            await unseal(node, PASSPHRASE, names)
            assert (await value(node, "REVEAL 'k' FROM VAULT o"))["value"] == 1
            with pytest.raises(BadRequest, match="no passphrase of its own"):
                await unseal(node, PASSPHRASE, NAMES)
            shown = await ask(node.vaults, ShowVaults(ANA))
            assert shown.is_set and shown.seal.sealed
            found = [(one.names[2], one.own, one.seal.sealed, one.records) for one in shown.vaults]
            assert found == [("o", True, False, 1), ("v", False, True, 0)]
            with pytest.raises(BadRequest):
                await value(node, "DEFINE VAULT p PASSPHRASE 'short'")

    played(main)


def test_declared() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            assert isinstance(await refusal(node, "DEFINE VAULT v"), AlreadyExists)
            await value(node, "DEFINE VAULT IF NOT EXISTS v PASSPHRASE 'not looked at'")
            await value(node, "ALTER VAULT v SET VERSIONS 3; ALTER VAULT v SET COMMENT 'c'")
            found = await value(node, "INFO FOR VAULT v")
            assert (found["versions"], found["comment"], found["own"]) == (3, "c", False)
            (number,) = [
                one["version"]
                for one in await trail(node, "ALL VAULTS")
                if "define" in one["action"]
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

    played(main)


def test_part_of_a_transaction() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
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

    played(main)


def test_a_node_that_takes_no_writes_reveals_nothing(logbook: Logbook) -> None:
    logbook.allow("sealed, and not recorded")

    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", 1)
            await value(node, "DEFINE NODE ROLES serving")
            for script in ("REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v"):
                assert isinstance(await refusal(node, script), NotWritable)
            with pytest.raises(NotWritable):
                await unseal(node, "not even looked at")
            await ask(node.vaults, Seal(ANA, None))  # that is done all the same
            assert (await value(node, "INFO FOR VAULT v"))["sealed"]

    played(main)


def test_the_trail_says_all_of_it() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
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

    played(main)


async def define_users(node: Node) -> None:
    for name, role, space in (
        ("sue", "owner", " ON NAMESPACE a"), ("ed", "editor", ""), ("vi", "viewer", ""),
        ("mo", "member", ""), ("bob", "owner", " ON NAMESPACE z"),
    ):  # fmt: skip
        place = "DEFINE NAMESPACE IF NOT EXISTS z; "
        await value(node, f"{place}DEFINE USER {name} ROLE {role}{space} PASSWORD 'xxxxxxxx'")


def called(name: str, role: str = "member") -> Caller:
    return replace(ANA, user=name, role=role)


def test_rights() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
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
            for noun in ("VAULT a.b.v", "ALL VAULTS IN a.b", "ALL VAULTS IN a"):
                for verb in verbs:
                    await value(node, f"GRANT {verb} ON {noun} TO mo")
                    for other, needed in zip(scripts, verbs, strict=True):
                        found = await told("mo", other)
                        if needed == verb:
                            assert found is None, (noun, verb, other)
                        else:
                            assert isinstance(found, NotAllowed), (noun, verb, other)
                            assert needed in str(found.detail["needs"])
                    await value(node, f"REVOKE {verb} ON {noun} FROM mo")
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

    played(main)


def test_refusals_by_the_thousand_are_counted() -> None:
    async def main() -> None:
        machine = Machine()
        async with machine.node() as node:
            await set_up(node)
            await unseal(node)
            await define_users(node)
            await value(node, "GRANT INFO ON VAULT v TO mo")
            before = len(await trail(node))
            for _ in range(200):
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
                assert sum(one["more"] + 1 for one in found) == 200
            for _ in range(5):
                await run(node, "REVEAL 'k' FROM VAULT v", caller=called("vi", "viewer"))
        async with machine.node() as node:  # what was counted is told at the end
            kept = [one for one in await trail(node) if one["outcome"] == "Unknown"]
            assert sum(one["more"] + 1 for one in kept) == 205

    played(main)


def test_who_sees_no_vault_makes_no_commit() -> None:
    """By the sequence, which everybody is shown, it would be told from one that is not there."""

    async def main() -> None:
        async with node_with_vault() as node:
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
            await write(node, "k", 1)
            await asyncio.sleep(1)
            outcomes = [(one["user"], one["action"], one["outcome"]) for one in await trail(node)]
            for action in ("reveal", "info", "unseal"):
                assert ("vi", action, "Unknown") in outcomes

    played(main)


def test_an_older_row_put_back_is_noticed() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            vault = vault_of(node)
            value_at = vault_rows.value(vault.numbers, b"k", 2)

            def rows() -> dict[bytes, bytes]:
                with node.committer.begin() as tx:
                    prefixes = [vault_rows.of_vault(tag, vault.numbers) for tag in keys.OF_VAULTS]
                    return {
                        key: row
                        for prefix in prefixes
                        for pairs in tx.scan(*keys.within(prefix))
                        for key, row in pairs
                    }

            async def put(changed: Mapping[bytes, bytes | None]) -> None:
                with node.committer.begin() as tx:
                    for key, row in changed.items():
                        if row is None:
                            tx.delete(key)
                        else:
                            tx.put(key, row)
                    promise = node.committer.commit(tx, ANA)
                await node.committer.released(promise)

            await write(node, "k", "first")
            await write(node, "k", "second")
            before = rows()
            await write(node, "k", "third")
            after = rows()
            stamped = [key for key in after if key[keys.TAG_AT] == keys.VAULT_REMOVED]
            old = {key: before.get(key) for key in after if key not in stamped}
            await put(old)  # head, values and uses as they were: only the trail knows
            refused = await refusal(node, "REVEAL 'k' FROM VAULT v")
            assert isinstance(refused, WrongKey) and "put back" in refused.message
            await put({key: row for key, row in after.items() if key not in stamped})
            assert (await reveal(node, "k"))["value"] == "third"
            await put({value_at: after[vault_rows.value(vault.numbers, b"k", 3)]})
            assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v VERSION 2"), WrongKey)
            outcomes = [one["outcome"] for one in await trail(node)]
            assert outcomes.count("WrongKey") == 2
            with node.committer.begin() as tx:
                entry = vault_trail._at(vault.id, 3)
                row = tx.get(entry)
            assert row is not None
            await put({entry: row.replace(b"ana", b"eve")})
            assert not all(one["intact"] for one in await trail(node))

    played(main)


def test_no_value_opens_in_the_place_of_another(figure: Callable[[str, object], None]) -> None:
    """Each value row in the place of each other one: of another version, record, vault."""

    async def main() -> None:
        async with node_with_vault() as node:
            await value(node, "DEFINE VAULT w VERSIONS 2")
            rows: dict[tuple[str, str, int], tuple[bytes, bytes]] = {}
            for name in ("v", "w"):
                vault = vault_of(node, name)
                for id in ("a", "b"):
                    for version in (1, 2):
                        script = f"WRITE $id IN VAULT {name} VALUE $value"
                        told = {"id": id, "value": f"{name} {id} {version}"}
                        await value(node, script, told)
                        at = vault_rows.value(vault.numbers, id.encode(), version)
                        with node.committer.begin() as tx:
                            row = tx.get(at)
                        assert row is not None
                        rows[name, id, version] = (at, row)

            async def put(at: bytes, row: bytes) -> None:
                with node.committer.begin() as tx:
                    tx.put(at, row)
                    promise = node.committer.commit(tx, ANA)
                await node.committer.released(promise)

            tried = 0
            for (name, id, version), (at, own) in rows.items():
                for other, (_, row) in rows.items():
                    if other != (name, id, version):
                        await put(at, row)
                        script = f"REVEAL '{id}' FROM VAULT {name} VERSION {version}"
                        assert isinstance(await refusal(node, script), WrongKey), (script, other)
                        tried += 1
                for bit in range(0, 8 * len(own), 7):
                    garbled = bytearray(own)
                    garbled[bit // 8] ^= 1 << bit % 8
                    await put(at, bytes(garbled))
                    script = f"REVEAL '{id}' FROM VAULT {name} VERSION {version}"
                    assert isinstance(await refusal(node, script), WrongKey), (script, bit)
                    tried += 1
                await put(at, own)
                found = await value(node, f"REVEAL '{id}' FROM VAULT {name} VERSION {version}")
                assert found["value"] == f"{name} {id} {version}"
            figure("R22 values in other places, flipped bits", f"{tried}, 0 opened")

    played(main)


def test_an_unseal_beside_a_change_of_all_keys() -> None:
    """An unseal that was on its way to the disk when all keys were made anew has the old ones."""

    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", CANARY)
            for _ in range(20):
                await ask(node.vaults, Seal(ANA, None))
                unsealing = asyncio.ensure_future(outcome(unseal(node)))
                rekey = ChangePassphrase(ANA, None, PASSPHRASE, PASSPHRASE, rekey=True)
                await asyncio.gather(unsealing, outcome(ask(node.vaults, rekey)))
                shown = await ask(node.vaults, ShowVaults(ANA))
                found = await refusal(node, "REVEAL 'k' FROM VAULT v")
                assert found is None or (shown.seal.sealed and isinstance(found, Sealed))
                await unseal(node)
                assert (await reveal(node, "k"))["value"] == CANARY

    played(main)


def test_texts_hide_secrets() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await value(node, f"WRITE '{CANARY}' IN VAULT v VALUE '{CANARY}'")
            await value(node, f"BEGIN; LET $x = '{CANARY}'; WRITE 'k' IN VAULT v VALUE $x; COMMIT")
            await value(node, f"REVEAL '{CANARY}' FROM VAULT v")
            await value(node, f"DEFINE VAULT w PASSPHRASE '{CANARY}'")
            await value(node, f"LIST FROM VAULT v PREFIX '{CANARY}'")
            await refusal(node, f"REVEAL '{CANARY}' FROM VALUT v")
            await refusal(node, f"WRITE 'k' IN VAULT v VALEU '{CANARY}'")
            kept = await value(node, "INFO FOR STATEMENTS LIMIT 1000")
            texts = [one["statement"] for one in kept if one["statement"]]
            assert "WRITE '...' IN VAULT v VALUE '...'" in texts
            assert "REVEAL '...' FROM VAULT v" in texts
            assert CANARY not in repr(kept)
            await value(node, "WRITE $id IN VAULT v VALUE $value", {"id": CANARY, "value": CANARY})
            texts = [one["statement"] for one in await value(node, "INFO FOR STATEMENTS")]
            assert "WRITE $id IN VAULT v VALUE $value" in texts

    played(main)


def test_texts_with_secrets_are_not_kept() -> None:
    plans = Plans()
    for text in (
        f"WRITE '{CANARY}' IN VAULT v VALUE $x", f"WRITE $k IN VAULT v VALUE '{CANARY}'",
        f"LET $x = '{CANARY}'; WRITE $k IN VAULT v VALUE $x", f"REVEAL '{CANARY}' FROM VAULT v",
        f"IF true {{ LET $x = '{CANARY}'; WRITE $k IN VAULT v VALUE $x }}",
        f"DEFINE VAULT v PASSPHRASE '{CANARY}'", f"LIST FROM VAULT v AFTER '{CANARY}'",
    ):  # fmt: skip
        plans.get(text, lambda: None)
        assert len(plans) == 0, text
        assert CANARY not in plans.get(text, lambda: None).redacted(0, 9)
    plans.get("WRITE $k IN VAULT v VALUE $x", lambda: None)
    plans.get("REVEAL $k FROM VAULT v", lambda: None)
    assert len(plans) == 2


def test_a_full_disk_reveals_nothing(logbook: Logbook) -> None:
    logbook.allow("disk")
    logbook.allow("not kept")

    async def main() -> None:
        machine = Machine()
        async with machine.node() as node:
            await set_up(node)
            await unseal(node)
            await write(node, "k", CANARY)
            machine.disk.plan = lambda kind, path: (
                Fault(errno.ENOSPC) if kind == "append" and path.endswith(".storelog") else None
            )
            for script in ("REVEAL 'k' FROM VAULT v", "LIST FROM VAULT v"):
                answer = await run(node, script)
                assert isinstance(answer.refusal, AuditRefused)
                assert answer.results == ()
            machine.disk.plan = None
            assert (await reveal(node, "k"))["value"] == CANARY

    played(main)


def test_a_script_says_what_it_does_not_carry() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await define_users(node)
            await value(node, "GRANT READ ON VAULT v TO mo; GRANT READ ON ALL VAULTS IN a TO mo")
            await write(node, "k", CANARY)
            await write(node, "l", CANARY)
            script = await value(node, "BACKUP SCRIPT")
            assert b"not carried: vault a.b.v, with 2 secrets\n" in script
            assert b"ON ALL VAULTS IN a " in script
            assert b"ON VAULT" not in script and CANARY.encode() not in script

    played(main)


def test_the_log_says_where_trails_stand(logbook: Logbook) -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", 1)
            await asyncio.sleep(3601)
            said = [one for one in logbook.events if one["event"] == "head of a vault's trail"]
            told = (await value(node, "INFO FOR VAULT v"))["audit"]
            assert [one["vault"] for one in said] == ["", "a.b.v"]
            assert (said[1]["entries"], said[1]["hash"]) == (told["entries"], told["hash"])
            await asyncio.sleep(3601)
            assert (
                logbook.names().count("head of a vault's trail") < 4
            )  # what has not grown is not said

    played(main)


def test_who_waits_for_a_refusal_is_let_go() -> None:
    async def main() -> None:
        async with Machine().node() as node:
            await set_up(node)
            for _ in range(6):
                await outcome(unseal(node, "a wrong passphrase"))
            began = node.doors.clock.monotonic_us()
            waiting = asyncio.ensure_future(outcome(unseal(node, "a wrong passphrase")))
            await asyncio.sleep(0.5)
            node.not_ready()
            assert isinstance(await waiting, WrongKey)
            assert node.doors.clock.monotonic_us() - began < 3_000_000

    played(main)


def test_an_unset_store() -> None:
    async def main() -> None:
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

    played(main)
