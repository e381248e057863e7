"""The node's own facts: roles and endpoints."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from actors.roles import Roles
from protocol.errors import Draining, NotWritable, Refusal, Unknown
from tests.actors.parts import KINDS, Parts, outcome, parts, play, with_parts
from tests.logbook import Logbook
from tests.simulation.disk import Fault, SimulatedDisk

both = pytest.mark.parametrize("kind", KINDS)


def _refused(check: Callable[[], None]) -> Refusal | None:
    try:
        check()
    except Refusal as refusal:
        return refusal
    return None


@both
def test_roles_are_in_force_once_saved_and_found_again(kind: str) -> None:
    disk = SimulatedDisk()

    async def first() -> str:
        async with parts(kind, disk) as node:
            roles = Roles(node.runtime, node.directory)
            assert list(roles.words) == ["serving", "writable"]
            assert not roles.unready
            roles.check_writable()
            await roles.define(["serving"], ["db.example:4000"])
            assert isinstance(_refused(roles.check_writable), NotWritable)
            roles.check_answering()
            await roles.define([], None)
            assert str(roles.unready) == "no_roles"
            assert isinstance(_refused(roles.check_answering), Draining)
            for word in ("coordinating", "writable", "serving"):
                await roles.define([word], None)
                roles.check_answering()
                assert (roles.unready is None) == (word == "serving")
            await roles.define(["coordinating", "writable"], None)
            assert str(roles.unready) == "not_serving"
            assert roles.info()["roles"] == ["writable", "coordinating"]
            await roles.stop()
            return roles.node_id

    async def second() -> None:
        async with parts(kind, disk) as node:
            roles = Roles(node.runtime, node.directory)
            assert roles.words == ("writable", "coordinating")
            assert roles.info()["endpoints"] == ["db.example:4000"]
            assert roles.node_id == node_id
            await roles.stop()

    node_id = play(kind, first)
    play(kind, second)


@with_parts
async def test_an_unknown_role_word_changes_nothing(node: Parts, /) -> None:
    roles = Roles(node.runtime, node.directory)
    with pytest.raises(Unknown, match="'leading'"):
        roles.define(["serving", "leading"], ["a:1"])
    assert list(roles.words) == ["serving", "writable"]
    assert roles.info()["endpoints"] == []
    await roles.stop()


@with_parts
async def test_facts_that_can_not_be_saved_are_not_in_force(
    node: Parts, /, logbook: Logbook
) -> None:
    logbook.allow("handler failed")
    roles = Roles(node.runtime, node.directory)
    node.disk.plan = lambda operation, path: (
        Fault(errno.EIO) if operation == "sync" and "NODE" in path else None
    )
    assert isinstance(await outcome(roles.define([], None)), OSError)
    assert list(roles.words) == ["serving", "writable"]
    node.disk.plan = None
    await roles.define([], None)
    assert not roles.words
    await roles.stop()
