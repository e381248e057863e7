"""The rules of places and tables."""

from __future__ import annotations

import pytest

from protocol import limits
from protocol.errors import AlreadyExists, NameRefused, TooLarge, Unknown
from storage.catalog import places, tables, users
from storage.catalog.places import Database, IfExists, Namespace
from storage.catalog.tables import Table
from storage.formats import keys
from storage.records import records
from tests.storage.books import Book


@pytest.fixture
def book() -> Book:
    return Book()


def place(book: Book, ns: str = "shop", db: str = "main", table: str = "order") -> Table:
    with book.begin_transaction() as tx:
        namespace = places.define_namespace(tx, ns, taken=IfExists.SKIP)
        database = places.define_database(tx, namespace, db, taken=IfExists.SKIP)
        made = tables.define_table(tx, database, table)
        book.commit(tx)
    return made


def found(book: Book, ns: str = "shop", db: str = "main", table: str = "order") -> Table:
    with book.begin_transaction() as tx:
        database = places.database(tx, places.namespace(tx, ns), db)
        return tables.table(tx, database, table)


def test_unknown_names_what_is_missing(book: Book) -> None:
    place(book)
    tx = book.begin_transaction()
    with pytest.raises(Unknown, match="no namespace other"):
        places.namespace(tx, "other")
    namespace = places.namespace(tx, "shop")
    with pytest.raises(Unknown, match=r"no database shop\.other"):
        places.database(tx, namespace, "other")
    with pytest.raises(Unknown, match=r"no table shop\.main\.other"):
        tables.table(tx, places.database(tx, namespace, "main"), "other")


def test_taken(book: Book) -> None:
    table = place(book)
    database, namespace = table.database, table.database.namespace
    with book.begin_transaction() as tx:
        with pytest.raises(AlreadyExists, match="namespace shop exists"):
            places.define_namespace(tx, "shop")
        with pytest.raises(AlreadyExists, match=r"database shop\.main exists"):
            places.define_database(tx, namespace, "main")
        with pytest.raises(AlreadyExists, match=r"table shop\.main\.order exists"):
            tables.define_table(tx, database, "order")
        assert places.define_namespace(tx, "shop", "no", IfExists.SKIP) == namespace
        assert places.define_database(tx, namespace, "main", "no", IfExists.SKIP) == database
        assert (
            tables.define_table(tx, database, "order", comment="no", taken=IfExists.SKIP) == table
        )
        assert tx.size == 0
        changed = places.define_namespace(tx, "shop", "yes", IfExists.OVERWRITE)
        assert (changed.id, changed.comment) == (namespace.id, "yes")
        assert places.namespace(tx, "shop") == changed
        anew = places.define_database(tx, namespace, "main", "yes", IfExists.OVERWRITE)
        assert (anew.id, anew.comment) == (database.id, "yes")
        full = tables.define_table(
            tx, database, "order", schemafull=True, comment="yes", taken=IfExists.OVERWRITE
        )
        assert (full.id, full.schemafull, full.comment) == (table.id, True, "yes")
        assert (full.prefix, full.count_key) == (table.prefix, table.count_key)
        book.commit(tx)
    assert found(book).schemafull


def test_overwritten_table_keeps_its_records(book: Book) -> None:
    table = place(book)
    with book.begin_transaction() as tx:
        records.create(tx, table, 1, {"a": 1})
        again = tables.define_table(tx, table.database, "order", taken=IfExists.OVERWRITE)
        assert records.count(tx, again) == 1
        assert records.read(tx, again, 1) is not None


@pytest.mark.parametrize("name", ["", "1a", "a b", "a\0", "é", "x" * 65, "a.b", "a\n"])
def test_names(book: Book, name: str) -> None:
    table = place(book)
    with book.begin_transaction() as tx:
        with pytest.raises(NameRefused):
            places.define_namespace(tx, name)
        with pytest.raises(NameRefused):
            places.define_database(tx, table.database.namespace, name)
        with pytest.raises(NameRefused):
            tables.define_table(tx, table.database, name)


def test_comments_are_bounded(book: Book) -> None:
    with book.begin_transaction() as tx, pytest.raises(TooLarge):
        places.define_namespace(tx, "a", "x" * (limits.COMMENT_CHARACTERS + 1))


def test_ids_are_never_given_twice(book: Book) -> None:
    seen: set[bytes] = set()
    for _ in range(3):
        table = place(book)
        assert table.prefix not in seen
        seen.add(table.prefix)
        with book.begin_transaction() as tx:
            tables.drop_table(tx, table)
            book.commit(tx)
        book.durable()


def content(book: Book) -> set[bytes]:
    book.durable()
    return {key for step in book.engine.scan(*keys.EVERYTHING) for key, _ in step}


def test_dropping_takes_everything_along_and_nothing_else(book: Book) -> None:
    allocators = {keys.NAMESPACE_IDS, keys.DATABASE_IDS, keys.TABLE_IDS}
    made = [place(book, ns, db, t) for ns in "ab" for db in "xy" for t in "tu"]
    for table in made:
        with book.begin_transaction() as tx:
            for id in range(3):
                records.create(tx, table, id, {})
            book.commit(tx)

    def left(*gone: str) -> None:
        wanted = set(allocators)
        for table in made:
            database, namespace = table.database, table.database.namespace
            if table.path.startswith(gone):
                continue
            wanted.add(keys.table(namespace.id, database.id, table.name))
            wanted.add(table.count_key)
            wanted.add(keys.table_declared(namespace.id, database.id, table.id))
            wanted.update(keys.record(table.prefix, id) for id in range(3))
        for path, key in {
            "a": keys.namespace("a"), "b": keys.namespace("b"),
            "a.x": keys.database(1, "x"), "a.y": keys.database(1, "y"),
            "b.x": keys.database(2, "x"), "b.y": keys.database(2, "y"),
        }.items():  # fmt: skip
            if not path.startswith(gone):
                wanted.add(key)
        assert content(book) == wanted

    left("none")
    with book.begin_transaction() as tx:
        tables.drop_table(tx, made[0])
        assert tables.find_table(tx, made[0].database, "t") is None
        book.commit(tx)
    left("a.x.t")
    with book.begin_transaction() as tx:
        places.drop_database(tx, made[2].database)
        assert places.find_database(tx, made[2].database.namespace, "y") is None
        book.commit(tx)
    left("a.x.t", "a.y")
    with book.begin_transaction() as tx:
        places.drop_namespace(tx, made[0].database.namespace)
        assert places.find_namespace(tx, "a") is None
        book.commit(tx)
    left("a")
    with pytest.raises(Unknown):
        found(book, "a", "x", "u")


def test_a_dropped_place_takes_its_users_along(book: Book) -> None:
    table = place(book)
    with book.begin_transaction() as tx:
        for name, space in [("root", None), ("n", "shop"), ("d", "shop.main"), ("o", "shopping")]:
            users.define(tx, name, "owner", "hash", space=space)
        book.commit(tx)
    with book.begin_transaction() as tx:
        places.drop_database(tx, table.database)
        assert [user.name for user in users.everyone(tx)] == ["n", "o", "root"]
        places.drop_namespace(tx, table.database.namespace)
        assert [user.name for user in users.everyone(tx)] == ["o", "root"]


# --- remembered look-ups ------------------------------------------------------------------------


def test_look_ups_are_remembered_until_a_declaration_changes(book: Book) -> None:
    table = place(book)
    assert found(book) is found(book)
    version = book.ledger.state.catalog_version
    with book.begin_transaction() as tx:
        records.create(tx, table, 1, {})
        book.commit(tx)
    assert book.ledger.state.catalog_version == version
    assert found(book) is found(book)
    with book.begin_transaction() as tx:
        tables.define_table(tx, table.database, "order", comment="c", taken=IfExists.OVERWRITE)
        assert book.ledger.state.catalog_version == version
        book.commit(tx)
    assert book.ledger.state.catalog_version > version
    assert found(book).comment == "c"


def test_kinds_compare_by_what_they_are() -> None:
    namespace = Namespace(1, "a")
    assert Database(1, namespace, "b") == Database(1, Namespace(1, "a"), "b")
    assert Table(1, Database(1, namespace, "b"), "c") != Table(2, Database(1, namespace, "b"), "c")
