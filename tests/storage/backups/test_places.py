"""Snapshots of one place: what it holds, and of the others what is declared there."""

from __future__ import annotations

import pytest

from protocol.errors import Unknown
from protocol.values import unpaced
from storage.backups import place_copy
from storage.catalog import places, spaces, tables, users
from storage.catalog.places import Database
from storage.formats import keys
from storage.formats.container import BackupScope
from storage.keyspace.keyspace import SpaceKeys
from storage.records import records
from storage.topics import groups, topics
from storage.topics.message_rows import TopicContents
from storage.topics.messages import TopicMessages
from storage.txn.transaction import Transaction
from tests.storage.backups.stores import CommitHistory, StoreMachine, everything
from tests.storage.queue_story import check_topic


def database(tx: Transaction, name: str) -> Database:
    return places.database(tx, places.namespace(tx, "shop"), name)


def figures(tx: Transaction, at: Database) -> dict[str, object]:
    """What a place shows of what it holds."""
    mail = topics.topic(tx, at, "mail")
    found = TopicMessages(tx, mail)
    return {
        "records": [len(list(each(tx, table))) for table in tables.tables(tx, at, unpaced)],
        "counts": [records.count(tx, table) for table in tables.tables(tx, at, unpaced)],
        "keys": sum(SpaceKeys(tx, spaces.space(tx, at, "cache")).count()),
        "messages": (found.first, found.held),
        "readers": list(found.readers(unpaced)),
        "hand-outs": [groups.state_of(tx, each)[0].hand_outs for each in groups.groups(tx, mail)],
        "committed": [groups.state_of(tx, each)[0].committed for each in groups.groups(tx, mail)],
    }


def each(tx: Transaction, table: tables.Table) -> list[object]:
    return [pair for pairs in tx.scan(*keys.within(table.prefix)) for pair in pairs]


def test_a_database_is_whole_and_its_siblings_are_declared(history: CommitHistory) -> None:
    with history.book.begin_transaction() as tx:
        before = {name: figures(tx, database(tx, name)) for name in ("main", "other")}
    machine = StoreMachine(clock=history.clock_at_end())
    done = machine.restore(history.snapshot(history.last, place=BackupScope("shop", "main")))
    assert done.origin.place == "shop.main"
    store = machine.opened()
    with store.ledger.begin_transaction() as tx:
        assert figures(tx, database(tx, "main")) == before["main"]
        last = TopicMessages(tx, topics.topic(tx, database(tx, "other"), "mail")).last
        assert last > 0
        assert figures(tx, database(tx, "other")) == {
            "records": [0, 0], "counts": [0, 0], "keys": 0,
            "messages": (last + 1, TopicContents(0, last, 0)), "readers": [("r", last)],
            "hand-outs": [0, 0], "committed": [last, last],
        }  # fmt: skip
        assert [user.name for user in users.everyone(tx)] == ["ana"]
        assert places.find_namespace(tx, "empty") is not None
        for name in ("main", "other"):
            for topic in topics.each_topic(tx, database(tx, name), unpaced):
                check_topic(tx, topic)
    assert store.differences() == []
    store.close()


def test_ids_and_positions_go_on_where_they_were(history: CommitHistory) -> None:
    """So that nothing that a user, a grant or a receipt names is ever another thing."""
    found = []
    for place in (None, BackupScope("shop", "main")):
        machine = StoreMachine(clock=history.clock_at_end())
        machine.restore(history.snapshot(history.last, place=place))
        store = machine.opened()
        with store.ledger.begin_transaction() as tx:
            other = database(tx, "other")
            table = tables.define_table(tx, other, "new")
            mail = topics.topic(tx, other, "mail")
            group = groups.define_group(tx, mail, "new", deadline_us=1_000_000)
            published = TopicMessages(tx, mail).publish([1])
            found.append((table.id, group.id, published.first))
        store.close()
    assert found[0] == found[1]


def test_a_namespace_is_all_of_its_databases(history: CommitHistory) -> None:
    machine = StoreMachine(clock=history.clock_at_end())
    machine.restore(history.snapshot(history.last, place=BackupScope("shop")))
    store = machine.opened()
    kept = [key[keys.TAG_AT] for key, _ in everything(history.views[history.last])]
    assert {keys.STATEMENT, keys.AUDIT}.isdisjoint(kept)  # or this would not be all
    assert store.everything() == everything(history.views[history.last])
    store.close()


def test_of_an_empty_place_nothing_but_what_is_declared(history: CommitHistory) -> None:
    pairs = [
        pair
        for some in place_copy.pairs(history.views[history.last], BackupScope("empty"))
        for pair in some
    ]
    assert pairs == sorted(pairs)
    held = {key[keys.TAG_AT] for key, _ in pairs}
    assert held.isdisjoint({keys.RECORD, keys.ENTRY, keys.CONTENT, keys.MESSAGE, keys.HAND_OUT})
    assert {keys.TABLE, keys.USER, keys.TOPIC_LAST, keys.TOPIC_TRIMMED} <= held


@pytest.mark.parametrize(
    "place", [BackupScope("none"), BackupScope("shop", "none"), BackupScope("empty", "main")]
)
def test_a_place_that_is_not_there_is_unknown(history: CommitHistory, place: BackupScope) -> None:
    with pytest.raises(Unknown):
        list(place_copy.pairs(history.views[history.last], place))


def test_the_share_of_places(history: CommitHistory) -> None:
    """By what they hold: nothing, half each, all."""
    view = history.views[history.last]

    def share(*some: BackupScope) -> float:
        return place_copy.share(view, some, unpaced)

    main, other = BackupScope("shop", "main"), BackupScope("shop", "other")
    assert share(BackupScope("empty")) == 0
    assert 0.3 < share(main) < 0.7
    assert share(main) + share(other) == share(main, other) == share(BackupScope("shop")) == 1
    assert place_copy.share(history.views[1], (main,), unpaced) == 1  # nothing is there
    with pytest.raises(Unknown):
        share(BackupScope("shop", "none"))
