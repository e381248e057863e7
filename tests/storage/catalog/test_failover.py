"""The record of the failover policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from protocol.failover import Policy
from storage.catalog import failover
from tests.storage.books import Book

STORE: Final = "11111111-2222-4333-8444-555555555555"
POLICY: Final = Policy(
    ("https://a:2379", "https://b:2379"), timedelta(seconds=5), 1, timedelta(seconds=2), "AUTO"
)


def test_it_is_kept_replaced_and_dropped() -> None:
    book = Book()
    other = POLICY._replace(acks=0, promote="MANUAL", behind=timedelta(milliseconds=100))
    for policy in (POLICY, other):
        with book.begin_transaction() as tx:
            failover.define(tx, STORE, policy)
            book.commit(tx)
        book.durable()
        with book.begin_transaction() as tx:
            found = failover.find(tx)
            assert found is not None
            assert (found.policy, found.store) == (policy, STORE)
    with book.begin_transaction() as tx:
        assert failover.drop(tx)
        book.commit(tx)
    with book.begin_transaction() as tx:
        assert failover.find(tx) is None
        assert not failover.drop(tx)
