"""Entries of the statement log that wait for a turn of the loop of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.execution.request import RequestOrigin
from actors.rights import Rights
from actors.statements import Statements
from protocol.errors import DiskFull, NotAllowed
from protocol.requests import Surface
from storage.audit.trail import newest
from storage.catalog import places, spaces
from storage.catalog.spaces import Space
from storage.formats.entries import AUDIT
from storage.txn.transaction import Transaction
from tests.actors.nodes import ANA
from tests.actors.parts import KINDS, SOMEBODY, Parts, with_parts

both = pytest.mark.parametrize("kind", KINDS)

REFUSAL = NotAllowed("no right to read")


def of(node: Parts) -> Statements:
    return Statements(node.runtime, node.committer, Rights(), "here", node.rng)


def declared(node: Parts) -> Space:
    """A space that is on its way to the disk, with all around it."""
    with node.committer.begin_transaction() as tx:
        namespace = places.define_namespace(tx, "n")
        database = places.define_database(tx, namespace, "d")
        space = spaces.define_space(tx, database, "s")
        node.committer.commit(tx, SOMEBODY)
    return space


def take_back(node: Parts) -> None:
    """The disk had no room for what is on its way: its ids are given again."""
    node.committer.roll_back(node.committer.generation, DiskFull("no room"))


def refused_in(node: Parts, space: Space, *, paused: bool) -> Transaction:
    """What a script was run in that was refused in a space."""
    tx = node.committer.begin_transaction()
    tx.touch(space.database)
    if paused:
        assert places.namespace(tx, "n") == space.database.namespace
        tx.pause()
    return tx


async def kept(node: Parts) -> list[Any]:
    """The places of what the audit trail holds, once all of it is there."""
    for _ in range(3):  # turns: one to be heard of, one to be committed
        await asyncio.sleep(0)
    await node.durable(node.committer.committed)
    with node.committer.begin_transaction() as tx:
        return [one.entry.places for some in newest(tx, AUDIT) for one in some]


@pytest.mark.parametrize("gone", [False, True])
@with_parts
async def test_what_waits_for_its_turn_when_its_places_are_taken_back_is_the_stores(
    node: Parts, /, gone: bool
) -> None:
    statements, space = of(node), declared(node)
    tx = refused_in(node, space, paused=False)
    statements.keep(tx, ANA, "r-1", ("n", "d"), "GET 'k' IN s", refusal=REFUSAL)
    tx.release()
    if gone:
        take_back(node)
    own = space.database.namespace.id, space.database.id
    assert await kept(node) == [(((),) if gone else (own,))]


@with_parts
async def test_what_is_kept_of_a_transaction_whose_places_were_taken_back_is_the_stores(
    node: Parts, /
) -> None:
    statements, space = of(node), declared(node)
    tx = refused_in(node, space, paused=True)
    take_back(node)
    statements.keep(tx, ANA, "r-1", ("n", "d"), "GET 'k' IN s", refusal=REFUSAL)
    tx.release()
    assert await kept(node) == [((),)]


class Somebody:
    """Who has asked for keys."""

    surface: Surface = "wire"
    origin = RequestOrigin("r-1", "wire", "192.0.2.1:5000")
    connection = origin.address

    def on_result(self, answer: object, lost: BaseException | None) -> None:
        raise AssertionError("nobody tells")


@pytest.mark.parametrize("gone", [False, True])
@with_parts
async def test_so_is_an_operation_on_keys_that_was_denied(node: Parts, /, gone: bool) -> None:
    statements, space = of(node), declared(node)
    statements.denied("ana", Somebody(), space, "GET 'k' IN s", REFUSAL)
    if gone:
        take_back(node)
    own = space.database.namespace.id, space.database.id
    assert await kept(node) == [(((),) if gone else (own,))]
