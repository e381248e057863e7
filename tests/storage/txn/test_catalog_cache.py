"""Look-ups are what a transaction would find itself, and rest on what they found and on no more."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import storage.txn.read_set
from protocol.errors import Conflict, Refusal
from storage.catalog import places, spaces, tables, users
from storage.catalog.places import IfExists
from storage.catalog.tables import Field
from storage.formats import keys
from storage.topics import groups, topics
from storage.txn.catalog_cache import CatalogCache
from storage.txn.transaction import Transaction
from tests.storage.books import Book, digests

Thing = tuple[str, ...]
"""`kind` and names: of a namespace, a database in it, what is in that."""

PLACES = [(ns, db) for ns in "mn" for db in "ab"]
THINGS: list[Thing] = [
    *(("namespace", ns) for ns in "mn"), *(("database", *place) for place in PLACES),
    *(("table", *place, name) for place in PLACES for name in "tu"),
    *(("space", *place, "s") for place in PLACES), *(("topic", *place, "q") for place in PLACES),
    *(("group", *place, "q", name) for place in PLACES for name in "gh"),
    *(("groups", *place, "q") for place in PLACES), *(("user", name) for name in ("ana", "bob")),
]  # fmt: skip


def above(thing: Thing) -> list[Thing]:
    """What is looked up before it, and is rested on with it."""
    kind, *names = thing
    if kind in ("namespace", "user"):
        return []
    found: list[Thing] = [("namespace", names[0])]
    if kind != "database":
        found.append(("database", *names[:2]))
    if kind in ("group", "groups"):
        found.append(("topic", *names[:3]))
    return found


def look(tx: Transaction, thing: Thing) -> tuple[Any, set[Thing]]:
    """What a thing is, None when it is not there, and what that rests on."""
    kind, *names = thing
    if kind == "user":
        return users.find(tx, names[0]), {thing}
    place = places.find_namespace(tx, names[0])
    if kind == "namespace" or place is None:
        return place, {("namespace", names[0])}
    rests_on: set[Thing] = {("namespace", names[0]), ("database", *names[:2])}
    within = places.find_database(tx, place, names[1])
    if kind == "database" or within is None:
        return within, rests_on
    if kind in ("group", "groups"):
        rests_on.add(("topic", *names[:3]))
        topic = topics.find_topic(tx, within, names[2])
        if topic is None:
            return None, rests_on
        rests_on.add(thing)
        if kind == "groups":
            return groups.groups(tx, topic), rests_on
        return groups.find_group(tx, topic, names[3]), rests_on
    rests_on.add(thing)
    find: Callable[..., Any] = {
        "table": tables.find_table, "space": spaces.find_space, "topic": topics.find_topic,
    }[kind]  # fmt: skip
    return find(tx, within, names[2]), rests_on


@contextmanager
def nothing_remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Transaction, "known", lambda tx, at: None)
        patched.setattr(Transaction, "remember", lambda tx, at, value, *rests_on: value)
        yield


class Open:
    def __init__(self, tx: Transaction, expected: dict[Thing, Any], began: int) -> None:
        self.tx = tx
        self.expected = expected
        self.began = began
        self.rests_on: set[Thing] = set()


class LookupStory:
    """Declarations and look-ups in any order, against look-ups that remember nothing."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.book = Book()
        self.open: list[Open] = []
        self.touched: list[set[Thing]] = [set()]
        """Of each commit, by its sequence."""
        self.lost = self.kept = self.remembered = 0

    def run(self, steps: int) -> None:
        """Do anything, then end what is open."""
        for _ in range(steps):
            self.random.choice(
                (self._declare, self._begin, self._look, self._look, self._look, self._end,
                 self._durable, self._withdraw)
            )()  # fmt: skip
        while self.open:
            self._end()

    def _begin(self) -> None:
        if len(self.open) > 4:
            return
        with nothing_remembered(), self.book.begin_transaction() as fresh:
            expected = {thing: look(fresh, thing)[0] for thing in THINGS}
        tx = self.book.begin_transaction()
        tx.pause()
        self.open.append(Open(tx, expected, self.book.ledger.state.committed))

    def _look(self) -> None:
        """Anybody looks, somebody new among them."""
        thing = self.random.choice(THINGS)
        if self.open and self.random.random() < 0.7:
            one = self.random.choice(self.open)
            found, rests_on = look(one.tx, thing)
            one.rests_on |= rests_on
            assert found == one.expected[thing], f"{thing} at {one.began}"
            return
        with self.book.begin_transaction() as tx:
            found, _ = look(tx, thing)
            with nothing_remembered(), self.book.begin_transaction() as fresh:
                assert found == look(fresh, thing)[0], f"{thing} now"
            in_flight = tx.sequence > self.book.ledger.state.commit_index
            assert tx.saw <= tx.sequence and (in_flight or tx.saw == 0)
        self.remembered += len(self.book.ledger.state.catalog_cache)

    def _declare(self) -> None:
        """A commit that changes one thing or two, and looks at things before and after that."""
        with self.book.begin_transaction() as tx:
            touched = self._change(tx)
            if self.random.random() < 0.3:
                touched |= self._change(tx)
            for _ in range(self.random.randrange(4)):
                thing = self.random.choice(THINGS)
                found, _ = look(tx, thing)
                with nothing_remembered():
                    assert found == look(tx, thing)[0], f"{thing} within its transaction"
            if not tx.own.writes and not tx.own.ranges:
                return
            sequence = self.book.commit(tx)
        assert sequence == len(self.touched)
        self.touched.append(touched)

    def _change(self, tx: Transaction) -> set[Thing]:
        thing = self.random.choice(THINGS)
        kind, *names = thing
        touched = {upper for upper in above(thing) if look(tx, upper)[0] is None}
        for upper in above(thing):
            self._define(tx, upper, IfExists.SKIP)
        present, _ = look(tx, thing)
        if kind == "groups":
            return touched
        if present is not None and self.random.random() < 0.3:
            self._drop(tx, thing, present)
        else:
            self._define(tx, thing, IfExists.OVERWRITE)
        if kind == "group":
            touched.add(("groups", *names[:3]))
        return {*touched, thing}

    def _define(self, tx: Transaction, thing: Thing, taken: IfExists) -> None:
        kind, *names = thing
        comment = f"c{self.random.randrange(1_000)}"
        if kind == "user":
            users.define(tx, names[0], "owner", comment, overwrite=True)
            return
        if kind == "namespace":
            places.define_namespace(tx, names[0], comment, taken)
            return
        place = places.namespace(tx, names[0])
        if kind == "database":
            places.define_database(tx, place, names[1], comment, taken)
            return
        within = places.database(tx, place, names[1])
        if kind == "table":
            table = tables.define_table(tx, within, names[2], comment=comment, taken=taken)
            if taken is IfExists.OVERWRITE and self.random.random() < 0.5:
                table = tables.table(tx, within, names[2])
                field = Field((comment,), comment, "int")
                tables.define_field(tx, table, field, IfExists.OVERWRITE)
        elif kind == "space":
            spaces.define_space(tx, within, names[2], comment=comment, taken=taken)
        elif kind == "topic":
            topics.define_topic(tx, within, names[2], comment=comment, taken=taken)
        else:
            topic = topics.topic(tx, within, names[2])
            deadline_us = self.random.randrange(1, 1_000_000)
            groups.define_group(tx, topic, names[3], deadline_us=deadline_us, taken=taken)

    def _drop(self, tx: Transaction, thing: Thing, present: Any) -> None:
        drop: dict[str, Callable[..., Any]] = {
            "namespace": places.drop_namespace, "database": places.drop_database,
            "table": tables.drop_table, "space": spaces.drop_space, "topic": topics.drop_topic,
            "group": groups.drop_group,
        }  # fmt: skip
        if thing[0] == "user":
            tx.delete(keys.user(present.name))  # the last owner too
        else:
            drop[thing[0]](tx, present)

    def _end(self) -> None:
        """A commit that writes what nobody reads: only its look-ups can make it lose."""
        if not self.open:
            return
        one = self.open.pop(self.random.randrange(len(self.open)))
        if one.tx.reads.rolled_back:
            one.tx.release()
            return
        changed = set().union(*self.touched[one.began + 1 :])
        one.tx.put(keys.STORE_RANGE + b"\xf0private", b"")
        if one.rests_on & changed:
            with pytest.raises(Conflict):
                self.book.commit(one.tx)
            self.lost += 1
        else:
            self.book.commit(one.tx)
            self.touched.append(set())
            self.kept += bool(changed)

    def _durable(self) -> None:
        ledger = self.book.ledger
        upto = self.random.randint(ledger.synced_seq, ledger.state.committed)
        ledger.mark_durable(upto, digests(self.book.frames, upto))
        ledger.release(self.random.randint(ledger.state.commit_index, upto))
        ledger.apply_next()

    def _withdraw(self) -> None:
        if self.random.random() < 0.2:
            self.book.ledger.roll_back()
            del self.touched[self.book.ledger.state.committed + 1 :]
            del self.book.frames[self.book.ledger.state.committed :]


SEEDS = range(24)
"""Enough that every fault below is shown."""


def test_any_story_finds_what_is_there_and_loses_only_for_what_it_looked_up(
    figure: Callable[[str, object], None],
) -> None:
    lost = kept = remembered = 0
    for seed in SEEDS:
        story = LookupStory(seed)
        story.run(150)
        lost, kept = lost + story.lost, kept + story.kept
        remembered += story.remembered
    assert lost > 15 and kept > 15 and remembered > 150
    figure("look-ups", f"{lost} lost a race, {kept} kept beside other declarations")


def _whatever_its_age(tx: Transaction, at: Hashable) -> Any:
    found = tx._state.catalog_cache.get(at)
    if found is None:
        return None
    tx._looked.add(found)
    return found.value


def _forgets_nothing(catalog_cache: CatalogCache, sequence: int, *_: object) -> None:
    catalog_cache.since = sequence


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "a look-up of a later state is taken": (Transaction, "known", _whatever_its_age),
    "a declaration makes nothing forgotten": (CatalogCache, "changed", _forgets_nothing),
    "look-ups are not validated": (storage.txn.read_set, "rest_on", lambda *_: False),
    "every declaration refuses everybody": (
        storage.txn.read_set, "rest_on", lambda looked, *_: looked,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, Refusal, pytest.fail.Exception)):
        for seed in SEEDS:
            LookupStory(seed).run(150)


def test_what_is_forgotten_leaves_no_name_behind() -> None:
    """What is made and dropped again and again is looked up each time, and rests on what stays."""
    story = LookupStory(1)
    catalog_cache = story.book.ledger.state.catalog_cache

    def commit(change: Callable[..., object], *told: Any) -> None:
        with story.book.begin_transaction() as tx:
            change(tx, *told)
            story.book.commit(tx)

    def look_for_all() -> int:
        with story.book.begin_transaction() as tx:
            for thing in THINGS:
                look(tx, thing)
        assert _names(catalog_cache) == {
            (declared, at)
            for at, found in catalog_cache._found.items()
            for declared in found.rests_on
        }
        return len(_names(catalog_cache))

    def cycle(thing: Thing) -> int:
        commit(story._define, thing, IfExists.OVERWRITE)
        look_for_all()
        commit(lambda tx: story._drop(tx, thing, look(tx, thing)[0]))
        return look_for_all()

    for thing in THINGS:
        if thing[0] in ("namespace", "database", "topic"):
            commit(story._define, thing, IfExists.OVERWRITE)
    for thing in THINGS:
        if thing[0] in ("group", "space", "user"):
            before = cycle(thing)
            for _ in range(5):
                assert cycle(thing) == before, thing


def _names(catalog_cache: CatalogCache) -> set[tuple[bytes, Hashable]]:
    """Everything that stands as resting on something."""
    assert all(catalog_cache._resting.values()), "an empty set is one that is kept for nothing"
    return {(declared, at) for declared, names in catalog_cache._resting.items() for at in names}
