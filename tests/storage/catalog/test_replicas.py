"""The rules of the cluster's rows, of revoked certificates and of join tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from protocol import binary, limits
from protocol.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    ExpireRefused,
    NameRefused,
    SignInRefused,
    TooLarge,
    Unknown,
)
from storage.backups import place_copy
from storage.catalog import join_tokens, places, replicas
from storage.catalog.join_tokens import TokenLocation
from storage.catalog.places import IfExists
from storage.catalog.replicas import Replica
from storage.formats import keys
from storage.formats.container import BackupScope
from storage.txn.transaction import Transaction
from tests.simulation.environment import SeededRng
from tests.storage.books import Book

ID: Final = "6f3a0000-0000-4000-8000-000000000001"
PRINT: Final = "ab" * 32
STORE: Final = "11111111-2222-4333-8444-555555555555"
ROW: Final = Replica("n1", "n1.example:8002")


@pytest.fixture
def book() -> Book:
    made = Book()
    declare(made, ROW)
    return made


def declare(book: Book, *rows: Replica, taken: IfExists = IfExists.REFUSE) -> None:
    with book.begin_transaction() as tx:
        for row in rows:
            replicas.define(tx, row, taken)
        book.commit(tx)


def row(tx: Transaction, name: str = "n1") -> Replica:
    found = replicas.find(tx, name)
    assert found is not None
    return found


# --- rows -----------------------------------------------------------------------------------------


def test_declared_in_its_one_form(book: Book) -> None:
    made = Replica(
        "n2", "N2.Example:08002", ("a:1", "b", "a:1"), ID.upper(), roles=("writable", "serving"),
        comment="c",
    )  # fmt: skip
    declare(book, made, Replica("n3", "[0:0::1]:1", certificate=":".join(["AB"] * 32)))
    for _ in range(2):
        with book.begin_transaction() as tx:
            second, third = row(tx, "n2"), row(tx, "n3")
            assert (second.peer, second.endpoints) == ("n2.example:8002", ("a:1", "b"))
            assert (second.node, second.roles) == (ID, ("serving", "writable"))
            assert second.comment == "c" and second.created is not None
            assert (third.peer, third.certificate, third.roles) == ("[::1]:1", PRINT, None)
            assert [one.name for one in replicas.every(tx) if one.waits] == ["n1"]
            assert replicas.find(tx, "n4") is None
        book.durable()


def test_declared_again(book: Book) -> None:
    with book.begin_transaction() as tx:
        created = row(tx).created
        with pytest.raises(AlreadyExists, match="n1 exists"):
            replicas.define(tx, ROW)
        replicas.define(tx, replace(ROW, peer="other:1"), IfExists.SKIP)
        assert row(tx).peer == ROW.peer
        join_tokens.create(tx, STORE, row(tx), None, SeededRng(1))
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert row(tx).token is not None
        replicas.define(tx, replace(ROW, roles=()), IfExists.OVERWRITE)
        assert (row(tx).roles, row(tx).token, row(tx).created) == ((), None, created)


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"name": "no name"}, NameRefused), ({"name": ""}, NameRefused),
        ({"name": "n" * 65}, NameRefused), ({"name": "../n"}, NameRefused),
        ({"peer": "n"}, BadRequest), ({"peer": "n:0"}, BadRequest),
        ({"peer": "n:65536"}, BadRequest), ({"peer": "n:1\n"}, BadRequest),
        ({"peer": "[::1"}, BadRequest), ({"peer": "[12]:1"}, BadRequest),
        ({"peer": "ü:1"}, BadRequest), ({"peer": "u:p@n:1"}, BadRequest),
        ({"peer": ""}, BadRequest), ({"endpoints": ("n:1", "n 2")}, BadRequest),
        ({"endpoints": tuple(f"n:{n}" for n in range(1, 18))}, TooLarge),
        ({"node": "n"}, BadRequest), ({"node": ID + "0"}, BadRequest),
        ({"node": ID.replace("-", "")}, BadRequest), ({"node": f"{{{ID}}}"}, BadRequest),
        ({"node": ID.replace("000001", "000_01")}, BadRequest),
        ({"node": ID.replace("1", "١")}, BadRequest), ({"certificate": PRINT[:-1]}, BadRequest),
        ({"certificate": PRINT + "\n"}, BadRequest), ({"certificate": "٣" * 64}, BadRequest),
        ({"roles": ("leading",)}, Unknown),
        ({"comment": "c" * (limits.COMMENT_CHARACTERS + 1)}, TooLarge),
    ],
)  # fmt: skip
def test_refused(book: Book, wrong: dict[str, Any], refusal: type[Exception]) -> None:
    with book.begin_transaction() as tx:
        with pytest.raises(refusal):
            replicas.define(tx, replace(Replica("n2", "n2:1"), **wrong))
        assert [one.name for one in replicas.every(tx)] == ["n1"]


ALIKE: Final = pytest.mark.parametrize(
    "alike",
    [{"peer": "N1.example.:08002"}, {"node": ID.upper()}, {"certificate": PRINT.upper()}],
    ids=["peer", "node", "certificate"],
)


@ALIKE
def test_no_two_have_the_same(book: Book, alike: dict[str, Any]) -> None:
    first = replace(ROW, **alike)
    declare(book, first, taken=IfExists.OVERWRITE)
    with book.begin_transaction() as tx:
        with pytest.raises(AlreadyExists, match="n1 has the"):
            replicas.define(tx, replace(Replica("n2", "n2:1"), **alike))
        replicas.alter(tx, row(tx), peer=ROW.peer)  # what it has itself is in nobody's way
    declare(book, first, taken=IfExists.OVERWRITE)


@ALIKE
def test_of_two_that_meet_one_loses(book: Book, alike: dict[str, Any]) -> None:
    """Also where neither sees the other's row."""
    alike = {"peer": "new:1"} if "peer" in alike else alike
    with book.begin_transaction() as first, book.begin_transaction() as second:
        for tx, name in ((first, "n2"), (second, "n3")):
            replicas.define(tx, replace(Replica(name, f"{name}:1"), **alike))
            tx.pause()
        book.commit(first)
        with pytest.raises(Conflict):
            book.commit(second)


def test_a_certificate_that_is_revoked_meanwhile_is_in_no_row(book: Book) -> None:
    with book.begin_transaction() as declares, book.begin_transaction() as revokes:
        replicas.define(declares, Replica("n2", "n2:1", certificate=PRINT))
        declares.pause()
        replicas.add_revocation(revokes, PRINT, None)
        book.commit(revokes)
        with pytest.raises(Conflict):
            book.commit(declares)


def test_as_many_rows_as_may_be(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICAS", 3)
    declare(book, Replica("n2", "n2:1"), Replica("n3", "n3:1"))
    with book.begin_transaction() as tx:
        with pytest.raises(TooLarge, match="at most 3 rows"):
            replicas.define(tx, Replica("n4", "n4:1"))
        replicas.define(tx, Replica("n3", "n4:1"), IfExists.OVERWRITE)
        replicas.drop(tx, row(tx))
        replicas.define(tx, Replica("n4", "n5:1"))


# --- certificates ---------------------------------------------------------------------------------


def test_revoked_once_and_for_all(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    with book.begin_transaction() as tx:
        assert replicas.add_revocation(tx, PRINT.upper(), "lost")
        assert not replicas.add_revocation(tx, PRINT, "again")
        book.commit(tx)
    with book.begin_transaction() as tx:
        found = replicas.find_revocation(tx, PRINT)
        assert found is not None and (found.certificate, found.reason) == (PRINT, "lost")
        with pytest.raises(BadRequest, match="revoked"):
            replicas.define(tx, Replica("n2", "n2:1", certificate=PRINT))
        with pytest.raises(BadRequest, match="64"):
            replicas.add_revocation(tx, "ab", None)
        monkeypatch.setattr(limits, "REVOKED_CERTIFICATES", 1)
        with pytest.raises(TooLarge, match="DROP REPLICA"):
            replicas.add_revocation(tx, "cd" * 32, None)


# --- tokens ---------------------------------------------------------------------------------------


def token(book: Book, name: str = "n1", lasting: timedelta | None = None, seed: int = 1) -> str:
    with book.begin_transaction() as tx:
        made, expires = join_tokens.create(tx, STORE, row(tx, name), lasting, SeededRng(seed))
        assert expires == tx.now + (lasting or timedelta(hours=1))
        book.commit(tx)
    return made


def redeem(
    book: Book, given: str, store: str = STORE, node: str = ID, show: str = PRINT
) -> Replica:
    with book.begin_transaction() as tx:
        found = join_tokens.redeem(tx, store, given, node, show, tx.now + timedelta(days=365))
        book.commit(tx)
    return found


def test_a_token_is_used_once(book: Book) -> None:
    given = token(book)
    assert given.startswith("n1.") and len(given) == len("n1.") + 43
    found = redeem(book, given)
    assert (found.node, found.certificate, found.waits, found.token) == (ID, PRINT, False, None)
    with book.begin_transaction() as tx:
        assert row(tx) == found
    with pytest.raises(SignInRefused):
        redeem(book, given)
    with pytest.raises(BadRequest, match="already has a node"):
        token(book)


def test_two_that_bring_the_same_token(book: Book) -> None:
    given = token(book)
    with book.begin_transaction() as first, book.begin_transaction() as second:
        for tx, name in ((first, ID), (second, STORE)):
            join_tokens.redeem(tx, STORE, given, name, PRINT, tx.now)
            tx.pause()
        book.commit(first)
        with pytest.raises(Conflict):
            book.commit(second)
    with book.begin_transaction() as tx:
        assert row(tx).node == ID


def test_a_token_lasts_no_longer_than_it_says(book: Book) -> None:
    given = token(book, lasting=timedelta(minutes=1))
    book.clock.advance(59_000_000)
    with book.begin_transaction() as tx:
        join_tokens.redeem(tx, STORE, given, ID, PRINT, tx.now)
    book.clock.advance(1_000_000)
    with pytest.raises(SignInRefused):
        redeem(book, given)


def test_a_token_that_was_replaced_or_lost_its_row_opens_nothing(book: Book) -> None:
    old, new = token(book), token(book, seed=2)
    with pytest.raises(SignInRefused):
        redeem(book, old)
    with book.begin_transaction() as tx:
        replicas.drop(tx, row(tx))
        replicas.define(tx, ROW)
        book.commit(tx)
    with pytest.raises(SignInRefused):
        redeem(book, new)


@pytest.mark.parametrize(
    "guessed",
    ["", ".", "n1", "n1.", "n2.x", "n1." + "A" * 43, "\ud800", "n1.é", "n1." + "x" * 10_000,
     "../n1.x", "n1\0.x"],
)  # fmt: skip
def test_a_guess_is_told_nothing(book: Book, guessed: str) -> None:
    declare(book, Replica("n2", "n2:1"))
    token(book)
    told = []
    for one in (guessed, "gone." + "A" * 43):
        with pytest.raises(SignInRefused) as refused:
            redeem(book, one)
        told.append((refused.value.message, refused.value.detail))
    assert told[0] == told[1]


def test_no_token_that_is_nearly_right(book: Book) -> None:
    declare(book, Replica("n2", "n2:1"))
    given = token(book)
    other = given.replace("n1.", "n2.")
    changed = [
        given[:at] + ("A" if given[at] != "A" else "B") + given[at + 1 :] for at in range(46)
    ]
    for one in (*changed, other, given + "A", given[:-1], given.upper(), f" {given}", f"{given}\n"):
        with pytest.raises(SignInRefused):
            redeem(book, one)
    with pytest.raises(SignInRefused):
        redeem(book, given, store=ID)  # as one that was restored from this has
    redeem(book, given)


def test_who_joins_is_not_somebody_else(book: Book) -> None:
    declare(book, Replica("n2", "n2:1", node=ID), Replica("n3", "n3:1", certificate=PRINT))
    given = token(book)
    for node, show in ((ID, "cd" * 32), (STORE, PRINT)):
        with pytest.raises(AlreadyExists):
            redeem(book, given, node=node, show=show)
    with book.begin_transaction() as tx:
        replicas.add_revocation(tx, "cd" * 32, None)
        book.commit(tx)
    with pytest.raises(BadRequest, match="revoked"):
        redeem(book, given, node=STORE, show="cd" * 32)
    redeem(book, given, node=STORE, show="ef" * 32)  # nothing of that has used it up


def test_what_a_token_may_last(book: Book) -> None:
    with book.begin_transaction() as tx:
        for lasting in (timedelta(0), timedelta(seconds=-1)):
            with pytest.raises(ExpireRefused):
                join_tokens.create(tx, STORE, row(tx), lasting, SeededRng(1))
        day = timedelta(days=1)
        join_tokens.create(tx, STORE, row(tx), day, SeededRng(1))
        with pytest.raises(TooLarge):
            join_tokens.create(tx, STORE, row(tx), day + timedelta(microseconds=1), SeededRng(1))


def test_nothing_that_is_kept_holds_a_token(book: Book) -> None:
    assert not kept_of(book, token(book))


def kept_of(book: Book, given: str) -> list[str]:
    """Where a token stands that was given for the row."""
    secret = given.removeprefix("n1.").encode()
    book.durable()
    frames = b"".join(frame.body for frame in book.frames)
    state = b"".join(
        key + value for pairs in book.engine.scan(*keys.EVERYTHING) for key, value in pairs
    )
    assert b"n1.example" in frames and b"n1.example" in state
    with book.begin_transaction() as tx:
        assert secret.decode() not in repr(row(tx))
    return [where for where, kept in (("the log", frames), ("the state", state)) if secret in kept]


# --- backups of a place ---------------------------------------------------------------------------


def test_a_snapshot_of_a_place_belongs_to_no_cluster(book: Book) -> None:
    with book.begin_transaction() as tx:
        places.define_database(tx, places.define_namespace(tx, "shop"), "main")
        replicas.add_revocation(tx, PRINT, None)
        book.commit(tx)
    book.durable()
    found = {
        key[keys.TAG_AT]
        for some in place_copy.pairs(book.engine.snapshot(), BackupScope("shop"))
        for key, _ in some
    }
    assert keys.DATABASE in found
    assert found.isdisjoint({keys.FAILOVER, keys.REPLICA, keys.REVOKED})
    everything = {
        key[keys.TAG_AT] for some in book.engine.scan(*keys.EVERYTHING) for key, _ in some
    }
    assert everything >= {keys.REPLICA, keys.REVOKED}


# --- where a token is to be brought ---------------------------------------------------------------

WHERE: Final = TokenLocation(["n1.example:8002", "[::1]:8002"], PRINT)


def test_a_token_says_where_it_is_brought_and_opens_without(book: Book) -> None:
    with book.begin_transaction() as tx:
        token, _ = join_tokens.create(tx, STORE, row(tx), None, SeededRng(1), WHERE)
        book.commit(tx)
    found = join_tokens.read(f"{token}\n")
    assert found.where == WHERE and token.startswith(f"{found.secret}.")
    with book.begin_transaction() as tx:
        join_tokens.redeem(tx, STORE, found.secret, ID, PRINT, tx.now)


@pytest.mark.parametrize(
    "token",
    [
        "", "n1", "n1.", "n1.x", "n1.x.", "n1.x.!", "n1.x.AA", "n1.x.kgGR", "1.x.kgGR", ".x.y",
        "n1.x.ksQgq6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6uQ", "n1.x." + "A" * 5_000, "n1.x.é",
    ],
)  # fmt: skip
def test_what_is_no_token_says_nothing(token: str) -> None:
    with pytest.raises(BadRequest):
        join_tokens.read(token)


# --- a second certificate -------------------------------------------------------------------------

NEXT: Final = "cd" * 32


def known(book: Book) -> None:
    with book.begin_transaction() as tx:
        replicas.define(tx, replace(ROW, certificate=PRINT), IfExists.OVERWRITE)
        book.commit(tx)


def test_one_is_trusted_beside_the_other_until_it_was_shown(book: Book) -> None:
    known(book)
    with book.begin_transaction() as tx:
        ends = tx.now + timedelta(days=365)
        replicas.renew(tx, row(tx), NEXT, ends)
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert row(tx).certificates == {PRINT: None, NEXT: ends}
        replicas.shown(tx, row(tx), ID, PRINT, tx.now)
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert set(row(tx).certificates) == {PRINT, NEXT} and row(tx).node == ID
        replicas.shown(tx, row(tx), ID, NEXT, ends)
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert row(tx).certificates == {NEXT: ends}
        replicas.shown(tx, row(tx), ID, NEXT, ends)
        replicas.renew(tx, row(tx), NEXT, ends)
        assert not tx.size, "what is known is no change"


def test_no_two_rows_have_one(book: Book) -> None:
    known(book)
    declare(book, replace(ROW, name="n2", peer="n2.example:1", certificate=NEXT))
    with book.begin_transaction() as tx, pytest.raises(AlreadyExists):
        replicas.renew(tx, row(tx), NEXT, tx.now)
    with book.begin_transaction() as tx:
        replicas.renew(tx, row(tx), "ef" * 32, tx.now)
        book.commit(tx)
    other = replace(ROW, name="n3", peer="n3.example:1", certificate="ef" * 32)
    with book.begin_transaction() as tx, pytest.raises(AlreadyExists):
        replicas.define(tx, other)


def test_one_that_was_revoked_is_left_out(book: Book) -> None:
    known(book)
    with book.begin_transaction() as tx:
        replicas.add_revocation(tx, PRINT, None)
        replicas.add_revocation(tx, "ef" * 32, None)
        book.commit(tx)
    with book.begin_transaction() as tx:
        with pytest.raises(BadRequest):
            replicas.renew(tx, row(tx), "ef" * 32, tx.now)
        replicas.renew(tx, row(tx), NEXT, tx.now)
        assert set(row(tx).certificates) == {NEXT}


@pytest.mark.parametrize("revoked", [PRINT, NEXT])
def test_either_ends_both_and_the_other_is_declared_anew(book: Book, revoked: str) -> None:
    known(book)
    other = NEXT if revoked == PRINT else PRINT
    with book.begin_transaction() as tx:
        replicas.renew(tx, row(tx), NEXT, tx.now + timedelta(days=365))
        book.commit(tx)
    with book.begin_transaction() as tx:
        replicas.revoke(tx, revoked.upper(), "lost")
        assert set(row(tx).certificates) == {revoked} and replicas.trusted(tx, row(tx)) == []
        size = tx.size
        replicas.revoke(tx, revoked, "again")
        assert tx.size == size
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert replicas.find_revocation(tx, other) is None
        replicas.define(tx, replace(ROW, certificate=other), IfExists.OVERWRITE)
        assert replicas.trusted(tx, row(tx)) == [other]


def test_a_row_of_an_earlier_version_has_no_second_one(book: Book) -> None:
    known(book)
    with book.begin_transaction() as tx:
        key = keys.tagged(keys.REPLICA)[0] + b"n1"
        value = tx.get(key)
        assert value is not None
        fields = binary.unpack_object(value)
        del fields["renewal"]
        tx.put(key, binary.pack(fields))
        assert row(tx).renewal is None
