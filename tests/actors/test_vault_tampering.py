"""Rows of vaults that somebody has changed beneath the node: what REVEAL and CHECK make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.node import Node
from actors.runtime import ask
from protocol import limits
from protocol.errors import Unknown, WrongKey
from protocol.vaults import ChangePassphrase, Seal
from storage.formats import keys
from storage.formats.entries import VaultEntry
from storage.vaults import rows as vault_rows
from storage.vaults import trail
from tests.actors.nodes import ANA, value
from tests.actors.parts import on_stepped
from tests.actors.vaulted import (
    PASSPHRASE,
    node_with_vault,
    refusal,
    reveal,
    rotated,
    vault_of,
    with_vault,
    write,
)

Rows = Mapping[bytes, bytes | None]
STAMPED = (keys.VAULT_REMOVED,)


def rows(node: Node) -> dict[bytes, bytes]:
    """All rows of vault `v` beside its trail."""
    vault = vault_of(node)
    with node.committer.begin_transaction() as tx:
        return {
            key: row
            for tag in keys.OF_VAULTS
            if tag not in STAMPED
            for pairs in tx.scan(*keys.within(vault_rows.of_vault(tag, vault.numbers)))
            for key, row in pairs
        }


async def put(node: Node, changed: Rows) -> None:
    """Change rows as whoever has the disk does; None: remove it."""
    with node.committer.begin_transaction() as tx:
        for key, row in changed.items():
            if row is None:
                tx.delete(key)
            else:
                tx.put(key, row)
        ticket = node.committer.commit(tx, ANA)
    await node.committer.released(ticket)


async def put_back(node: Node, before: Rows) -> None:
    """Make the rows of the vault what they were."""
    await put(node, {key: before.get(key) for key in {**rows(node), **before}})


def remembered(node: Node, id: str = "k") -> bytes:
    """Where the trail remembers which entry is the newest of a record."""
    return trail._last(vault_of(node).id, id)


async def wrongly(node: Node, script: str = "REVEAL 'k' FROM VAULT v") -> None:
    refused = await refusal(node, script)
    assert isinstance(refused, WrongKey) and "put back" in refused.message


@with_vault
async def test_a_record_that_was_taken_away(node: Node, /) -> None:
    before = rows(node)
    await write(node, "k", "first")
    after = rows(node)
    await put_back(node, before)
    await wrongly(node)
    await put_back(node, after)
    assert (await reveal(node, "k"))["value"] == "first"
    assert (await value(node, "ERASE 'k' FROM VAULT v")) == {"erased": True}
    assert isinstance(await refusal(node, "REVEAL 'k' FROM VAULT v"), Unknown)
    await put_back(node, after)  # what was erased is there again
    await wrongly(node)


def forged(node: Node, number: int, change: Callable[[VaultEntry], VaultEntry]) -> Rows:
    """An entry in the place of one that there is, without what only the key makes."""
    vault = vault_of(node).id
    with node.committer.begin_transaction() as tx:
        kept = trail.find(tx, vault, number)
    assert kept is not None
    body = msgspec.msgpack.encode(change(kept.entry))
    return {trail._at(vault, number): msgspec.msgpack.encode((body, kept.before, b""))}


@with_vault
async def test_an_entry_of_a_write_that_nobody_with_the_key_has_made(node: Node, /) -> None:
    await write(node, "k", "first")
    at = vault_rows.value(vault_of(node).numbers, b"k", 1)
    entry = vault_rows.read_value(rows(node)[at]).entry
    assert (await reveal(node, "k"))["value"] == "first"
    await put(node, forged(node, entry, lambda kept: kept))
    await wrongly(node)


# --- a whole trail --------------------------------------------------------------------------------


async def checked(node: Node, of: str = "VAULT v") -> dict[str, Any]:
    found = await value(node, f"INFO FOR AUDIT OF {of} CHECK")
    assert isinstance(found, dict)
    return found


async def much_done(node: Node) -> None:
    """What leaves entries of every kind."""
    for number in range(12):
        await write(node, f"k{number % 4}", number)
        await reveal(node, f"k{number % 4}")
    await write(node, "gone", 1)
    await value(node, "ERASE 'gone' FROM VAULT v; ERASE 'never' FROM VAULT v")
    await write(node, "k1", 1, "EXPECT VERSION 99")
    assert await refusal(node, "REVEAL 'never' FROM VAULT v") is not None
    await value(node, "LIST FROM VAULT v")


@with_vault
async def test_a_sound_trail(node: Node, /) -> None:
    await much_done(node)
    found = await checked(node)
    told = (await value(node, "INFO FOR VAULT v"))["audit"]
    assert found == {
        "intact": True, "entries": told["entries"], "newest": told["entries"],
        "hash": told["hash"], "proven": found["proven"], "unproven": 0, "wrong": [],
        "put_back": [],
    }  # fmt: skip
    assert found["proven"] > 25
    asked = ChangePassphrase(ANA, None, PASSPHRASE, PASSPHRASE, rekey=True)
    await ask(node.vaults, asked)
    await rotated(node)
    await much_done(node)
    found = await checked(node)  # the keys of the first entries are gone
    assert found["intact"] and found["unproven"] > 25 and found["proven"] > 25
    of_store = await checked(node, "ALL VAULTS")
    assert of_store["intact"] and of_store["entries"] > 3
    await ask(node.vaults, Seal(ANA, None))
    await value(node, "ERASE 'k1' FROM VAULT v")
    found = await checked(node)
    assert found["intact"] and found["proven"] == 0
    await value(node, "DROP VAULT v")
    found = await checked(node, f"ALL VAULTS NUMBER {1}")
    assert found["intact"] and found["newest"] == found["entries"]


@on_stepped
async def test_a_trail_whose_oldest_entries_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VAULT_ENTRIES_KEPT", 20)
    async with node_with_vault() as node:
        await much_done(node)
        await much_done(node)
        found = await checked(node)
        assert found["intact"] and found["entries"] == 20 < found["newest"]


@with_vault
async def test_what_is_wrong_with_a_trail_is_named(node: Node, /) -> None:
    await much_done(node)
    number = vault_of(node).id
    newest = (await checked(node))["newest"]

    def entry(at: int) -> bytes:
        with node.committer.begin_transaction() as tx:
            row = tx.get(trail._at(number, at))
        assert row is not None
        return row

    async def wrong_with(changed: Rows) -> list[int]:
        before = {key: entry(trail._number(key)) for key in changed}
        await put(node, changed)
        found = await checked(node)
        assert not found["intact"] and found["put_back"] == []
        await put(node, before)
        assert (await checked(node))["intact"]
        wrong: list[int] = found["wrong"]
        return wrong

    for at in (1, 2, 5, newest):
        where = trail._at(number, at)
        assert await wrong_with({where: entry(at).replace(b"ana", b"eve")}) == [at]
        gone = await wrong_with({where: None})
        assert gone and min(abs(one - at) for one in gone) <= 1
        assert await wrong_with(forged(node, at, lambda kept: replace(kept, user="eve")))
    stripped = forged(node, 2, lambda kept: kept)  # of a write, whose chain is sound
    assert await wrong_with(stripped) == [2]
    other = entry(4)
    assert 3 in await wrong_with({trail._at(number, 3): other})


@with_vault
async def test_records_that_were_put_back_are_named(node: Node, /) -> None:
    """With what is remembered of their newest entries: no REVEAL tells that."""
    await write(node, "k", "first")
    await write(node, "other", 1)
    before, at = rows(node), remembered(node)
    with node.committer.begin_transaction() as tx:
        last = tx.get(at)
    await write(node, "k", "second")
    await put_back(node, before)
    await put(node, {at: last})
    assert (await reveal(node, "k"))["value"] == "first"
    found = await checked(node)
    assert (found["intact"], found["wrong"], found["put_back"]) == (False, [], ["k"])
