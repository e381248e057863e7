"""Definitions of fields in the catalog."""

from __future__ import annotations

import pytest

from protocol import limits
from protocol.errors import AlreadyExists, TooLarge, Unknown
from protocol.paths import EACH, Path, read_path, stored_path
from storage.catalog import tables
from storage.catalog.places import IfExists
from storage.catalog.tables import Field, Table
from storage.records import index_builds
from tests.storage.books import Book
from tests.storage.catalog.test_catalog import found, place

AGE = Field(("age",), "age", "int", "18", "$value", "$value > 0", True, "years")
CITY = Field(("home", "city"), "home.city", "string")
ALL = Field(("home", EACH), "home[*]", "any")


@pytest.fixture
def book() -> Book:
    return Book()


def define(book: Book, table: Table, *fields: Field) -> None:
    with book.begin_transaction() as tx:
        for field in fields:
            tables.define_field(tx, table, field)
        book.commit(tx)


def test_a_table_carries_its_fields_in_the_order_of_their_paths(book: Book) -> None:
    table = place(book)
    assert table.fields == () and found(book).fields == ()
    define(book, table, ALL, CITY, AGE)
    assert found(book).fields == (AGE, CITY, ALL)
    book.durable()
    assert found(book).fields == (AGE, CITY, ALL)


def test_taken(book: Book) -> None:
    define(book, place(book), AGE)
    table = found(book)
    with book.begin_transaction() as tx:
        with pytest.raises(AlreadyExists, match=r"field shop\.main\.order\.age exists"):
            tables.define_field(tx, table, AGE)
        assert not tables.define_field(tx, table, AGE, IfExists.SKIP) and tx.size == 0
        other = Field(("age",), "age", "float")
        assert tables.define_field(tx, table, other, IfExists.OVERWRITE)
        assert tables.table(tx, table.database, "order").fields == (other,)
        assert tables.find_field(tables.table(tx, table.database, "order"), "age") == other


def test_dropped(book: Book) -> None:
    define(book, place(book), AGE, CITY)
    with book.begin_transaction() as tx:
        tables.drop_field(tx, found(book), "age")
        book.commit(tx)
    assert found(book).fields == (CITY,)
    with (
        book.begin_transaction() as tx,
        pytest.raises(Unknown, match=r"no field shop\.main\.order\.age"),
    ):
        tables.drop_field(tx, found(book), "age")


def test_limits(book: Book) -> None:
    table = place(book)
    long = "a" * (limits.PATH_BYTES + 1)
    with book.begin_transaction() as tx:
        tables.define_field(tx, table, Field((long[1:],), long[1:], "int"))
        with pytest.raises(TooLarge):
            tables.define_field(tx, table, Field((long,), long, "int"))
        with pytest.raises(TooLarge):
            tables.define_field(tx, table, Field(("é" * 300,), "é" * 300, "int"))
        with pytest.raises(TooLarge):
            tables.define_field(tx, table, Field(("a",), "a", "x" * limits.DEFINITION_BYTES))
        with pytest.raises(TooLarge):
            tables.define_field(tx, table, Field(("a",), "a", "int", comment="x" * 1025))


def test_a_table_has_so_many_fields_and_no_more(book: Book) -> None:
    table = place(book)
    define(book, table, *(Field((f"f{n}",), f"f{n}", "int") for n in range(limits.FIELDS)))
    table = found(book)
    with book.begin_transaction() as tx:
        with pytest.raises(TooLarge, match="at most 1000 fields"):
            tables.define_field(tx, table, AGE)
        tables.define_field(tx, table, Field(("f1",), "f1", "string"), IfExists.OVERWRITE)


NAMED: tuple[Path, ...] = (
    ("o", "*"), ("o", EACH), ("*",), ("*", EACH), ("**", "[*]", -1, EACH, "*", 0),
)  # fmt: skip


@pytest.mark.parametrize("path", NAMED)
def test_a_wildcard_is_kept_apart_from_a_name(path: Path) -> None:
    assert read_path(stored_path(path)) == path


def test_a_wildcard_of_an_older_store_is_one() -> None:
    assert read_path(["home", "*", "city"]) == ("home", EACH, "city")
    assert stored_path(("home", EACH, "city")) == ["home", "*", "city"]


def test_both_are_found_again_as_they_were_defined(book: Book) -> None:
    each, name = Field(("o", EACH), "o[*]", "int"), Field(("o", "*"), "o.`*`", "any")
    define(book, place(book), each, name)
    book.durable()
    assert found(book).fields == (each, name) or found(book).fields == (name, each)
    with book.begin_transaction() as tx:
        paths: list[Path] = [("o", EACH), ("o", "*"), ("*",)]
        index_builds.define_index(tx, found(book), "i", paths)
        book.commit(tx)
    book.durable()
    assert found(book).indexes[0].paths == tuple(paths)
