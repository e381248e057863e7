"""Rows of vaults that somebody has changed beneath the node: what REVEAL and CHECK make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from actors.node import Node
from protocol.errors import Unknown, WrongKey
from storage import keys, vault_rows, vault_trail
from storage.vault_entries import VaultEntry
from tests.actors.nodes import ANA, value
from tests.actors.vaulted import node_with_vault, played, refusal, reveal, vault_of, write

Rows = Mapping[bytes, bytes | None]
STAMPED = (keys.VAULT_REMOVED,)


def rows(node: Node) -> dict[bytes, bytes]:
    """All rows of vault `v` beside its trail."""
    vault = vault_of(node)
    with node.committer.begin() as tx:
        return {
            key: row
            for tag in keys.OF_VAULTS
            if tag not in STAMPED
            for pairs in tx.scan(*keys.within(vault_rows.of_vault(tag, vault.numbers)))
            for key, row in pairs
        }


async def put(node: Node, changed: Rows) -> None:
    """Change rows as whoever has the disk does; None: remove it."""
    with node.committer.begin() as tx:
        for key, row in changed.items():
            if row is None:
                tx.delete(key)
            else:
                tx.put(key, row)
        promise = node.committer.commit(tx, ANA)
    await node.committer.released(promise)


async def put_back(node: Node, before: Rows) -> None:
    """Make the rows of the vault what they were."""
    await put(node, {key: before.get(key) for key in {**rows(node), **before}})


def remembered(node: Node, id: str = "k") -> bytes:
    """Where the trail remembers which entry is the newest of a record."""
    return vault_trail._last(vault_of(node).id, id)


async def wrongly(node: Node, script: str = "REVEAL 'k' FROM VAULT v") -> None:
    refused = await refusal(node, script)
    assert isinstance(refused, WrongKey) and "put back" in refused.message


def test_older_rows_whose_newest_entry_is_forgotten() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", "first")
            before = rows(node)
            await write(node, "k", "second")
            await put_back(node, before)
            await put(node, {remembered(node): None})
            await wrongly(node)

    played(main)


def test_a_record_that_was_taken_away() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
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

    played(main)


def forged(node: Node, number: int, change: Callable[[VaultEntry], VaultEntry]) -> Rows:
    """An entry in the place of one that there is, without what only the key makes."""
    vault = vault_of(node).id
    with node.committer.begin() as tx:
        kept = vault_trail.find(tx, vault, number)
    assert kept is not None
    body = msgspec.msgpack.encode(change(kept.entry))
    return {vault_trail._at(vault, number): msgspec.msgpack.encode((body, kept.before, b""))}


def test_an_entry_of_a_write_that_nobody_with_the_key_has_made() -> None:
    async def main() -> None:
        async with node_with_vault() as node:
            await write(node, "k", "first")
            at = vault_rows.value(vault_of(node).numbers, b"k", 1)
            entry = vault_rows.read_value(rows(node)[at]).entry
            assert (await reveal(node, "k"))["value"] == "first"
            await put(node, forged(node, entry, lambda kept: kept))
            await wrongly(node)

    played(main)
