"""The rules of users."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from protocol import limits
from protocol.errors import (
    AlreadyExists,
    BadRequest,
    LastOwner,
    NameRefused,
    TooLarge,
    Unknown,
)
from storage.catalog import users
from tests.storage.books import Book


@pytest.fixture
def book() -> Book:
    made = Book()
    with made.begin_transaction() as tx:
        users.define(tx, "root", "owner", "hash0")
        made.commit(tx)
    return made


def test_declared_and_found(book: Book) -> None:
    with book.begin_transaction() as tx:
        made = users.define(tx, "ana", "editor", "hash1", space="shop", comment="c")
        assert users.get(tx, "ana") == made
        book.commit(tx)
    made = replace(made, created=tx.now + timedelta(microseconds=1))  # it is later than all before
    for _ in range(2):
        with book.begin_transaction() as tx:
            assert users.get(tx, "ana") == made
            assert [user.name for user in users.everyone(tx)] == ["ana", "root"]
            assert users.find(tx, "bob") is None
            with pytest.raises(Unknown, match="bob"):
                users.get(tx, "bob")
        book.durable()
    assert "hash1" not in repr(made)
    assert not made.owns_store


def test_refused(book: Book) -> None:
    with book.begin_transaction() as tx:
        with pytest.raises(NameRefused):
            users.define(tx, "no name", "owner", "h")
        with pytest.raises(Unknown, match="role"):
            users.define(tx, "bob", "boss", "h")
        with pytest.raises(AlreadyExists, match="root"):
            users.define(tx, "root", "owner", "h")
        with pytest.raises(TooLarge):
            users.define(tx, "bob", "owner", "h", comment="x" * (limits.COMMENT_CHARACTERS + 1))


def test_taken(book: Book) -> None:
    with book.begin_transaction() as tx:
        made = users.define(tx, "ana", "viewer", "one", space="shop")
        assert users.define(tx, "ana", "editor", "two", space="shop", skip=True) == made
        anew = users.define(tx, "ana", "editor", "two", space="shop", overwrite=True)
        assert (anew.role, anew.passhash, anew.created) == ("editor", "two", made.created)
        with pytest.raises(BadRequest, match="space"):
            users.define(tx, "ana", "editor", "two", space=None, overwrite=True)


def test_altered(book: Book) -> None:
    with book.begin_transaction() as tx:
        user = users.define(tx, "ana", "viewer", "one")
        assert users.alter(tx, user, passhash="two").passhash == "two"
        assert users.alter(tx, users.get(tx, "ana"), role="member").passhash == "two"
        assert users.get(tx, "ana").role == "member"
        with pytest.raises(Unknown, match="role"):
            users.alter(tx, user, role="boss")


def test_an_owner_of_the_store_remains(book: Book) -> None:
    with book.begin_transaction() as tx:
        root = users.get(tx, "root")
        users.define(tx, "spaced", "owner", "h", space="shop")
        users.define(tx, "ana", "editor", "h")
        with pytest.raises(LastOwner, match="root"):
            users.drop(tx, root)
        with pytest.raises(LastOwner):
            users.alter(tx, root, role="editor")
        with pytest.raises(LastOwner):
            users.define(tx, "root", "viewer", "h", overwrite=True)
        assert users.alter(tx, root, passhash="new").passhash == "new"
        assert users.alter(tx, root, role="owner").role == "owner"
        users.alter(tx, users.get(tx, "ana"), role="owner")
        users.drop(tx, users.get(tx, "root"))
        with pytest.raises(LastOwner):
            users.drop(tx, users.get(tx, "ana"))
        users.drop(tx, users.get(tx, "spaced"))
        assert [user.name for user in users.everyone(tx)] == ["ana"]
        book.commit(tx)


def test_two_owners_can_t_leave_at_once(book: Book) -> None:
    """Each would be allowed alone; side by side one of them has to lose."""
    with book.begin_transaction() as tx:
        users.define(tx, "ana", "owner", "h")
        book.commit(tx)
    one = book.begin_transaction()
    users.drop(one, users.get(one, "ana"))
    one.pause()
    with book.begin_transaction() as two:
        users.drop(two, users.get(two, "root"))
        book.commit(two)
    with pytest.raises(Exception, match="another commit changed") as refusal:
        book.commit(one)
    assert refusal.type.__name__ == "Conflict"
    with book.begin_transaction() as tx:
        assert [user.name for user in users.everyone(tx)] == ["ana"]


def test_whoever_looks_through_all_users_gives_way_at_each(book: Book) -> None:
    """There may be very many: an owner of a place declares as many as it likes."""
    told = list[None]()

    def tick() -> None:
        told.append(None)

    def ticks() -> int:
        before = len(told)
        told.clear()
        return before

    with book.begin_transaction() as tx:
        for number in range(20):
            users.define(tx, f"a{number}", "member", "h", space="shop")
        users.define(tx, "zoe", "owner", "h")
        assert len(list(users.everyone(tx, tick))) == ticks() == 22
        users.alter(tx, users.get(tx, "root"), role="viewer", tick=tick)
        assert ticks() == 22
        with pytest.raises(LastOwner):
            users.drop(tx, users.get(tx, "zoe"), tick)
        assert ticks() == 22
        users.drop_of_spaces(tx, {"shop"}, tick)
        assert ticks() >= 22
        assert [user.name for user in users.everyone(tx)] == ["root", "zoe"]
