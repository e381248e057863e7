"""Statements on cache spaces and their keys.

A statement on a key becomes the same operation as a route or wire message on it, by the same rules,
in the current transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from actors.scripts.ddl import described_space
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from actors.spaces import listed, perform, remove_expired
from language import tree
from protocol import limits
from protocol.errors import TypeRefused
from protocol.messages import moment
from protocol.rights import DEFINE, INFO, NOTHING, READ, WRITE, SecurableKind
from protocol.spaces import (
    DeleteKey,
    ExpireKey,
    GetKey,
    IncrKey,
    KeyOperation,
    ListKeys,
    LockKey,
    PersistKey,
    SetKey,
    SwapKey,
    UnlockKey,
    check_prefix,
)
from protocol.values import MICROSECOND, NONE, Value, type_name
from storage.catalog import spaces as catalog_spaces
from storage.catalog.places import Database
from storage.catalog.spaces import Space
from storage.keyspace.keyspace import EXPIRED_NOTED, SpaceKeys


@handles(tree.DefineSpace, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.DATABASE)])
def define_space(run: Execution, statement: tree.DefineSpace, database: Database) -> Value:
    """Define a cache space.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    """
    expire = statement.expire
    catalog_spaces.define_space(
        run.transaction,
        database,
        statement.name,
        expire_us=None if expire is None else expire // MICROSECOND,
        comment=statement.comment,
        taken=IF_TAKEN[statement.exists],
    )
    return NONE


@handles(
    tree.DropSpace,
    "none",
    writes=True,
    needs=[
        # The database decides; the space is looked up, and needs no privilege of its own.
        Requires(DEFINE, SecurableKind.DATABASE),
        Requires(NOTHING, SecurableKind.SPACE, ("name",)),
    ],
)
def drop_space(
    run: Execution, statement: tree.DropSpace, _database: Database, space: Space
) -> Value:
    """Drop a space with its keys."""
    run.reason = statement.reason
    catalog_spaces.drop_space(run.transaction, space)
    run.afterwards.append(partial(run.services.spaces.dropped, space))
    return NONE


@handles(
    tree.DropKeys,
    "value",
    writes=True,
    needs=[Requires(READ | WRITE, SecurableKind.SPACE, ("space",))],
)
def drop_keys(run: Execution, statement: tree.DropKeys, space: Space) -> Value:
    """Delete every key that begins with PREFIX. READ is required too: the count alone would
    disclose the keys, letter by letter."""
    run.reason = statement.reason
    prefix = check_prefix(run.evaluate(statement.prefix), "PREFIX")
    deleted = 0
    for part in SpaceKeys(run.transaction, space).drop(prefix):
        deleted += part
        run.tick()
    return {"deleted": deleted}


@handles(
    tree.ListKeys,
    "value",
    writes=False,
    needs=[Requires(ListKeys.needs, SecurableKind.SPACE, ("space",))],
)
def list_keys(run: Execution, statement: tree.ListKeys, space: Space) -> Value:
    """Return keys in the order of their bytes."""
    keys = SpaceKeys(run.transaction, space)
    operation = ListKeys(
        "" if statement.prefix is None else run.evaluate(statement.prefix),
        "" if statement.after is None else run.evaluate(statement.after),
        limits.KEYS_LISTED if statement.limit is None else run.evaluate(statement.limit),
    )
    found: list[Value] = []
    for part in listed(keys, operation):
        found += part
        run.tick()
    # Keys passed over as expired may not come back: the answer waits for their removal.
    _afterwards(run, space, keys)
    return {"keys": found}


def _operation(
    statement: type, operation: type[KeyOperation], made: Callable[[Execution, Any], KeyOperation]
) -> Callable[[Execution, Any, Space], Value]:
    """Register the handler of a statement on one key; it requires the operation's privileges."""
    needs = [Requires(operation.needs, SecurableKind.SPACE, ("space",))]

    @handles(statement, "value", writes=operation.writes, needs=needs)
    def on_key(run: Execution, statement: Any, space: Space) -> Value:
        keys = SpaceKeys(run.transaction, space, run.tick)
        answer: Value = perform(keys, made(run, statement))
        _afterwards(run, space, keys)
        return answer

    return on_key


get_key = _operation(tree.GetKey, GetKey, lambda run, st: GetKey(run.evaluate(st.key)))
set_key = _operation(
    tree.SetKey,
    SetKey,
    lambda run, st: SetKey(
        run.evaluate(st.key),
        run.evaluate(st.value),
        _expire(run, st.expire),
        st.keep,
        st.when,
        None if st.expire_at is None else moment(run.evaluate(st.expire_at), "EXPIRE AT"),
    ),
)
swap_key = _operation(
    tree.SwapKey,
    SwapKey,
    lambda run, st: SwapKey(
        run.evaluate(st.key),
        run.evaluate(st.expect),
        run.evaluate(st.value),
        _expire(run, st.expire),
    ),
)
incr_key = _operation(
    tree.IncrKey,
    IncrKey,
    lambda run, st: IncrKey(run.evaluate(st.key), 1 if st.by is None else run.evaluate(st.by)),
)
delete_key = _operation(tree.DeleteKey, DeleteKey, lambda run, st: DeleteKey(run.evaluate(st.key)))
expire_key = _operation(
    tree.ExpireKey,
    ExpireKey,
    lambda run, st: ExpireKey(run.evaluate(st.key), _lasting(run, st.expire)),
)
persist_key = _operation(
    tree.PersistKey, PersistKey, lambda run, st: PersistKey(run.evaluate(st.key))
)
lock_key = _operation(
    tree.LockKey,
    LockKey,
    lambda run, st: LockKey(
        run.evaluate(st.key), run.evaluate(st.holder), _lasting(run, st.expire)
    ),
)
unlock_key = _operation(
    tree.UnlockKey,
    UnlockKey,
    lambda run, st: UnlockKey(run.evaluate(st.key), run.evaluate(st.holder)),
)


@informs("SPACE", needs=[Requires(INFO, SecurableKind.SPACE, (0,))])
def info_for_space(run: Execution, statement: tree.Info, space: Space) -> Value:
    """Describe a space, with its number of keys that have not expired."""
    count, keys = 0, SpaceKeys(run.transaction, space)
    for part in keys.count():
        count += part
        run.tick()
    _afterwards(run, space, keys)  # keys reported as expired may not come back
    return {**described_space(space), "keys": count}


def _expire(run: Execution, expression: tree.Expression | None) -> int | None:
    return None if expression is None else _lasting(run, expression)


def _lasting(run: Execution, expression: tree.Expression) -> int:
    """Return an expiry in µs; its limits are checked by the operation."""
    value = run.evaluate(expression)
    if not isinstance(value, timedelta):
        raise TypeRefused(
            f"EXPIRE takes a duration, not {type_name(value)}", found=type_name(value)
        )
    return value // MICROSECOND


def _afterwards(run: Execution, space: Space, keys: SpaceKeys) -> None:
    """Register a statement's work for after the transaction's commit."""
    # Most statements leave no work: no callback is made for them.
    if not (keys.locked or keys.lapsed or keys.soonest_us):
        return
    # One callback for the whole transaction, always at the front, where it is found.
    first = run.afterwards[0] if run.afterwards else None
    if not isinstance(first, _AfterCommit):
        first = _AfterCommit(run)
        run.afterwards.insert(0, first)
    first.add(space, keys)


class _AfterCommit:
    """Work after the commit for all statements on keys of one transaction. Done at once, without a
    yield: a loop over a million keys leaves no more than one statement does."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._locked: list[SpaceKeys] = []
        self._soonest: dict[int, tuple[int, Space]] = {}
        """First expiry among the keys written, by the space's id."""
        self._lapsed: list[tuple[Space, list[bytes]]] = []
        self._noted = 0
        """Number of keys in `_lapsed`."""

    def add(self, space: Space, keys: SpaceKeys) -> None:
        """Add the work of one statement."""
        if keys.locked:
            self._locked.append(keys)
        at_us = keys.soonest_us
        if at_us:
            known = self._soonest.get(space.id)
            # The sweep needs the earliest expiry of each space only.
            if known is None or at_us < known[0]:
                self._soonest[space.id] = at_us, space
        # One suffices: its removal moves log time past the expiry of all others.
        # The sweep removes the rest.
        if keys.lapsed and self._noted < EXPIRED_NOTED:
            self._lapsed.append((space, keys.lapsed))
            self._noted += len(keys.lapsed)

    def __call__(self) -> None:
        for keys in self._locked:
            # A fencing token is the log time of the frame, which only the commit assigns.
            keys.fill_fences()
        spaces = self._run.services.spaces
        for at_us, space in self._soonest.values():
            spaces.expiring(space, at_us)
        if self._lapsed:
            # The answer waits: a key shown as expired must not return after a crash.
            self._run.rest_on(remove_expired(self._run.services.committer, self._lapsed))
