"""The rules of vaults, and their trails."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from protocol import limits
from protocol.errors import AlreadyExists, BadRequest, NameRefused, TooLarge, TypeRefused
from protocol.values import unpaced
from storage.catalog import places
from storage.formats import keys
from storage.formats.entries import VaultEntry
from storage.txn.transaction import Transaction
from storage.vaults import rows, trail, vaults
from storage.vaults.rows import KeysRow, RecordRow, ValueRow
from storage.vaults.vaults import Vault
from tests.storage.books import Book

ENTRY = VaultEntry(5, "ana", "owner", "http", "1.2.3.4:5", "write", "shop.main.v", "granted", "k")


@pytest.fixture
def book() -> Book:
    made = Book()
    with made.begin_transaction() as tx:
        shop = places.define_namespace(tx, "shop")
        main = places.define_database(tx, shop, "main")
        vaults.define(tx, main, "v", versions=2, comment="c")
        made.commit(tx)
    return made


def vault_in(tx: Transaction, name: str = "v") -> Vault:
    main = places.database(tx, places.namespace(tx, "shop"), "main")
    found = vaults.find(tx, main, name)
    assert found is not None
    return found


def put(book: Book, id: bytes, key_version: int = 1, sealed: bytes = b"sealed") -> int:
    with book.begin_transaction() as tx:
        vault = vault_in(tx)
        present = vaults.find_record(tx, vault, id)
        version = vaults.next_version(tx, vault, id, present)
        vaults.put_value(
            tx, vault, id, present, version, ValueRow(key_version, tx.now_us, 1, sealed)
        )
        book.commit(tx)
    return version


def test_declared(book: Book) -> None:
    with book.begin_transaction() as tx:
        vault = vault_in(tx)
        assert vault.path == "shop.main.v"
        assert (vault.versions, vault.comment, vault.own) == (2, "c", False)
        with pytest.raises(AlreadyExists, match=r"shop\.main\.v"):
            vaults.define(tx, vault.database, "v")
        with pytest.raises(NameRefused):
            vaults.define(tx, vault.database, "a b")
        for versions in (0, limits.VAULT_VERSIONS + 1):
            with pytest.raises(BadRequest):
                vaults.define(tx, vault.database, "w", versions=versions)
            with pytest.raises(BadRequest):
                vaults.alter(tx, vault, versions=versions)
        changed = vaults.alter(tx, vault, versions=3, comment="d")
        assert changed == replace(vault, versions=3, comment="d") == vault_in(tx)
        other = vaults.define(tx, vault.database, "u", own=True)
        assert [each.name for each in vaults.each(tx, vault.database, unpaced)] == ["u", "v"]
        vaults.drop(tx, other)
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert vaults.define(tx, vault_in(tx).database, "u").id > other.id


def test_versions(book: Book) -> None:
    assert [put(book, b"k"), put(book, b"k"), put(book, b"k")] == [1, 2, 3]
    with book.begin_transaction() as tx:
        vault = vault_in(tx)
        assert vaults.find_record(tx, vault, b"k") == RecordRow(3, (2, 3))
        assert vaults.find_value(tx, vault, b"k", 1) is None
        assert vaults.find_value(tx, vault, b"k", 2) is not None
        assert vaults.count(tx, vault) == 1
        assert vaults.removed_at(tx, vault) == book.ledger.state.committed
        vaults.erase(tx, vault, b"k", RecordRow(3, (2, 3)))
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert vaults.count(tx, vault) == 0
        assert vaults.find_record(tx, vault, b"k") is None
        assert vaults.values_to_reseal(tx, vault, 1, 1) == []
    assert put(book, b"k") == 4  # it never starts again
    with book.begin_transaction() as tx:
        assert vaults.find_record(tx, vault, b"k") == RecordRow(4, (4,))
        assert tx.get(rows.erased(vault.numbers, b"k")) is None


def test_ids(book: Book) -> None:
    for id in (b"a", b"ab", b"b", b"\xff\xff", b"a/b"):
        put(book, id)
    with book.begin_transaction() as tx:
        vault = vault_in(tx)

        def listed(prefix: bytes = b"", after: bytes = b"") -> list[bytes]:
            raw = rows.of_vault(keys.VAULT_RECORD, vault.numbers)
            start, end = vaults._ids_range(vault, prefix)
            if after:
                start = max(start, raw + after + b"\x00")
            return [key[len(raw) :] for pairs in tx.scan(start, end) for key, _ in pairs]

        assert listed() == [b"a", b"a/b", b"ab", b"b", b"\xff\xff"]
        found = [id for some in vaults.ids(tx, vault, b"a", b"a") for id in some]
        assert found == ["a/b", "ab"]
        assert [id for some in vaults.ids(tx, vault, b"c", b"") for id in some] == []


def test_ids_that_are_none() -> None:
    assert vaults.check_id("straße/1") == "straße/1".encode()
    for id in ("", "a\x00b", "a\nb", "\x7f"):
        with pytest.raises(BadRequest):
            vaults.check_id(id)
    with pytest.raises(TypeRefused):
        vaults.check_id(5)
    with pytest.raises(TooLarge):
        vaults.check_id("ß" * 257)


def test_sealed_again(book: Book) -> None:
    put(book, b"a", 1)
    put(book, b"b", 1)
    put(book, b"c", 2)
    with book.begin_transaction() as tx:
        vault = vault_in(tx)
        left = vaults.values_to_reseal(tx, vault, 1, 10)
        assert left == [vaults.UnrotatedValue(b"a", 1), vaults.UnrotatedValue(b"b", 1)]
        assert vaults.values_to_reseal(tx, vault, 1, 1) == left[:1]
        for one in left:
            before = vaults.find_value(tx, vault, one.id, one.version)
            assert before is not None
            after = before._replace(key_version=2, sealed=b"again")
            vaults.seal_again(tx, vault, one, before, after)
        assert vaults.values_to_reseal(tx, vault, 1, 1) == []
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert len(vaults.values_to_reseal(tx, vault, 2, 10)) == 3
        assert vaults.approximate_sealed(tx, vault) in (0, 5)  # what is in flight is not looked at


def test_rows_of_keys_and_uses() -> None:
    row = KeysRow(2, {1: b"a", 2: b"b"}, began=7)
    assert row.older == (1,)
    assert rows.read_keys(None) == KeysRow()
    assert "wraps" not in repr(row)
    use = rows.use((1, 2, 3), 4, b"id", 5)
    assert rows.used(use) == (b"id", 5)


def test_dropped_leaves_its_trail(book: Book) -> None:
    put(book, b"k")
    with book.begin_transaction() as tx:
        vault = vault_in(tx)
        trail.append(tx, vault.id, ENTRY, None)
        places.drop_database(tx, vault.database)
        book.commit(tx)
    with book.begin_transaction() as tx:
        for tag in keys.OF_VAULTS:
            assert not list(tx.scan(*keys.tagged(tag)))
        (kept,) = trail.newest(tx, vault.id)
        assert kept.entry == ENTRY


def test_trail_is_chained(book: Book) -> None:
    key = b"k" * 32
    with book.begin_transaction() as tx:
        for number in range(1, 6):
            entry = msgspec.structs.replace(ENTRY, version=number)
            assert trail.append(tx, 9, entry, key if number > 2 else None) == number
        book.commit(tx)
    with book.begin_transaction() as tx:
        kept = list(trail.newest(tx, 9))
        assert [one.number for one in kept] == [5, 4, 3, 2, 1]
        assert trail.head(tx, 9) == (5, kept[0].hash)
        for one, before in pairwise(kept):
            assert one.before == before.hash
        assert kept[-1].before == bytes(32)
        assert [trail.is_authentic(one, key) for one in kept] == [True] * 3 + [False] * 2
        assert not trail.is_authentic(kept[0], b"x" * 32)
        assert trail.last_about(tx, 9, "k") == 5
        assert trail.last_about(tx, 9, "l") == 0
        assert trail.find(tx, 9, 3) == kept[2]
        page = [one.number for one in trail.newest(tx, 9, before=3)]
        assert page == [2, 1]
        assert trail.head(tx, 8) == (0, bytes(32))


def test_an_entry_that_is_changed_breaks_the_chain(book: Book) -> None:
    with book.begin_transaction() as tx:
        for _ in range(3):
            trail.append(tx, 9, ENTRY, None)
        row = tx.get(trail._at(9, 2))
        assert row is not None
        tx.put(trail._at(9, 2), row.replace(b"ana", b"eve"))
        newest, changed, _ = trail.newest(tx, 9)
        assert changed.entry.user == "eve"
        assert newest.before != changed.hash


def test_the_oldest_entries_go(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VAULT_ENTRIES_KEPT", 3)
    with book.begin_transaction() as tx:
        for _ in range(5):
            trail.append(tx, 9, ENTRY, None)
        kept = [one.number for one in trail.newest(tx, 9)]
    assert kept == [5, 4, 3]
