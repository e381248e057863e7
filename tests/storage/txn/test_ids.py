"""Ids of declarations that were rolled back."""

from __future__ import annotations

from storage.catalog import places, restores, spaces, tables
from storage.catalog.restores import RestoreMark
from storage.formats import keys
from storage.records import index_builds
from storage.topics import groups, topics
from storage.topics.topics import Topic
from storage.txn import ids
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from tests.storage.queues import SECOND, Queues


def declare_all(tx: Transaction, topic: Topic) -> dict[str, int]:
    """One declaration of each kind that has an id; their ids."""
    place = places.define_namespace(tx, "m")
    within = places.define_database(tx, place, "d")
    table = tables.define_table(tx, within, "t")
    index = index_builds.define_index(tx, table, "i", [("a",)])
    return {
        "namespace": place.id,
        "database": within.id,
        "table": table.id,
        "index": index.id,
        "space": spaces.define_space(tx, within, "s").id,
        "topic": topics.define_topic(tx, within, "q").id,
        "vault": vaults.define(tx, within, "v").id,
        "group": groups.define_group(tx, topic, "g", deadline_us=SECOND).id,
    }


def test_an_id_that_was_rolled_back_is_not_given_again() -> None:
    queues = Queues()
    book, topic = queues.book, queues.topic()

    def declared(keep: bool) -> dict[str, int]:
        with book.begin_transaction() as tx:
            found = declare_all(tx, topic)
            book.commit(tx)
        if keep:
            book.durable()
        else:
            book.ledger.roll_back()
        return found

    first, second, third = declared(False), declared(False), declared(True)
    assert first.keys() == second.keys()
    for kind, id in first.items():
        assert id < second[kind] < third[kind], kind


def test_a_mark_of_a_restore_is_of_its_own_place_alone() -> None:
    """Another leader may have given the ids of one that was rolled back."""
    book = Queues().book
    with book.begin_transaction() as tx:
        restores.mark(tx, place := places.define_namespace(tx, "theirs"))
        assert restores.undo(tx, [RestoreMark(place.id, 0, ("mine",))], lambda _database: None) == (
            [],
            [],
        )
        assert [mark.names for mark in restores.marks(tx)] == [("theirs",)]
        assert restores.undo(tx, restores.marks(tx), lambda _database: None) == ([place], [])
        assert restores.marks(tx) == []


def test_counters_are_all_those_of_the_store() -> None:
    every = {
        value
        for name, value in vars(keys).items()
        if name.endswith("_IDS") and isinstance(value, bytes)
    }
    assert every - set(ids.COUNTERS) == {keys.ALL_GROUP_IDS}
