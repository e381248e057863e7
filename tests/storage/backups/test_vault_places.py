"""Vaults in a snapshot of one place."""

from __future__ import annotations

import pytest

from protocol.values import unpaced
from storage.backups import place_copy
from storage.catalog import places
from storage.formats import keys
from storage.formats.container import BackupScope
from storage.formats.entries import VaultEntry
from storage.formats.keys import Pair
from storage.vaults import rows, trail, vaults
from storage.vaults.cipher import Argon2Parameters, RootWrap
from storage.vaults.rows import KeysRow, StoreRow, ValueRow
from storage.vaults.vaults import Vault
from tests.storage.books import Book

ROOT = RootWrap(b"s" * 16, Argon2Parameters(), b"w" * 60)


@pytest.fixture
def book() -> Book:
    """`a.one` has a vault that hangs on the store, `a.two` one of its own, `b.one` has none."""
    made = Book()
    with made.begin_transaction() as tx:
        vaults.put_store_row(tx, StoreRow(b"d" * 16, ROOT))
        a, b = places.define_namespace(tx, "a"), places.define_namespace(tx, "b")
        one = places.define_database(tx, a, "one")
        two = places.define_database(tx, a, "two")
        places.define_database(tx, b, "one")
        for vault in (vaults.define(tx, one, "v"), vaults.define(tx, two, "w", own=True)):
            root = ROOT if vault.own else None
            vaults.put_keys_row(tx, vault, KeysRow(1, {1: b"wrapped"}, root))
            vaults.put_value(tx, vault, b"k", None, 1, ValueRow(1, 5, 1, b"sealed"))
            entry = VaultEntry(5, "ana", "owner", "", "", "write", vault.path, "granted", "k", 1)
            trail.append(tx, vault.id, entry, None)
        trail.append(tx, trail.STORE_TRAIL, entry, None)
        made.commit(tx)
    made.durable()
    return made


def taken(book: Book, place: BackupScope) -> list[Pair]:
    found = [pair for pairs in place_copy.pairs(book.engine, place) for pair in pairs]
    assert found == sorted(found)
    return found


def tags(pairs: list[Pair], vault: Vault) -> set[int]:
    numbers = vault.numbers
    own = [(tag, rows.of_vault(tag, numbers)) for tag in keys.OF_VAULTS]
    own += [(tag, keys.tagged(tag)[0] + vault.id.to_bytes(4)) for tag in keys.OF_TRAILS]
    return {tag for tag, prefix in own for key, _ in pairs if key.startswith(prefix)}


def test_of_a_place(book: Book) -> None:
    with book.begin_transaction() as tx:
        a = places.namespace(tx, "a")
        (one,) = vaults.each(tx, places.database(tx, a, "one"), unpaced)
        (two,) = vaults.each(tx, places.database(tx, a, "two"), unpaced)
    every = {*keys.OF_VAULTS, *keys.OF_TRAILS} - {keys.VAULT_ERASED, keys.VAULT_REMOVED}
    for place, root, has_one, has_two in (
        (BackupScope("a"), ROOT, True, True),
        (BackupScope("a", "one"), ROOT, True, False),
        (BackupScope("a", "two"), None, False, True),
        (BackupScope("b"), None, False, False),
    ):
        found = taken(book, place)
        assert tags(found, one) == (every if has_one else set())
        assert tags(found, two) == (every if has_two else set())
        row = dict(found).get(rows.STORE_KEY)
        if has_one or has_two:
            assert row is not None
            assert rows.read_store(row) == StoreRow(b"d" * 16, root)
        else:
            assert row is None
        declared = [key for key, _ in found if key[keys.TAG_AT] == keys.VAULT]
        assert len(declared) == 2  # as of anything else, siblings are declared
        assert not any(
            key.startswith(keys.tagged(keys.VAULT_ENTRY)[0] + bytes(4)) for key, _ in found
        )
