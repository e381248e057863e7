"""Statements on cache spaces and their keys.

A statement on a key becomes the same operation as a route or wire message on it, and is done by the
same rules, in the transaction at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from actors.access import Action, authorise
from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from actors.scripts.places import described_space
from actors.scripts.taken import TAKEN
from actors.spaces import listed, perform
from language import tree
from protocol import limits
from protocol.errors import TypeRefused
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
from storage import catalog
from storage.catalog import Space
from storage.spaces import Keys


@handles(tree.DefineSpace, "none", writes=True)
def define_space(run: Execution, statement: tree.DefineSpace) -> Value:
    """:raises AlreadyExists: the name is taken and the statement does not say what then"""
    run.authorise("DEFINE")
    expire = statement.expire
    catalog.define_space(
        run.transaction,
        run.database(),
        statement.name,
        expire_us=None if expire is None else expire // MICROSECOND,
        comment=statement.comment,
        taken=TAKEN[statement.exists],
    )
    return NONE


@handles(tree.DropSpace, "none", writes=True)
def drop_space(run: Execution, statement: tree.DropSpace) -> Value:
    """The space and its keys."""
    run.authorise("DEFINE")
    run.reason = statement.reason
    catalog.drop_space(run.transaction, _space(run, statement.name))
    run.afterwards.append(run.services.spaces.look)
    return NONE


@handles(tree.DropKeys, "value", writes=True)
def drop_keys(run: Execution, statement: tree.DropKeys) -> Value:
    """Every key that begins with PREFIX."""
    space = _may(run, statement.space, writes=True)
    run.reason = statement.reason
    prefix = check_prefix(run.evaluate(statement.prefix), "PREFIX")
    deleted = 0
    for part in Keys(run.transaction, space).drop(prefix):
        deleted += part
        run.tick()
    return {"deleted": deleted}


@handles(tree.ListKeys, "value")
def list_keys(run: Execution, statement: tree.ListKeys) -> Value:
    """Keys in the order of their bytes."""
    space = _may(run, statement.space, writes=False)
    keys = Keys(run.transaction, space)
    operation = ListKeys(
        "" if statement.prefix is None else run.evaluate(statement.prefix),
        "" if statement.after is None else run.evaluate(statement.after),
        limits.KEYS_LISTED if statement.limit is None else run.evaluate(statement.limit),
    )
    found: list[Value] = []
    for part in listed(keys, operation):
        found += part
        run.tick()
    _afterwards(run, space, keys)
    return {"keys": found}


def _operation(
    kind: type, made: Callable[[Execution, Any], KeyOperation]
) -> Callable[[Execution, Any], Value]:
    """A handler of statements on one key."""

    @handles(kind, "value", writes=kind is not tree.GetKey)
    def on_key(run: Execution, statement: Any) -> Value:
        operation = made(run, statement)
        space = _may(run, statement.space, operation.writes)
        keys = Keys(run.transaction, space)
        answer: Value = perform(keys, operation)
        _afterwards(run, space, keys)
        return answer

    return on_key


get_key = _operation(tree.GetKey, lambda run, st: GetKey(run.evaluate(st.key)))
set_key = _operation(
    tree.SetKey,
    lambda run, st: SetKey(
        run.evaluate(st.key), run.evaluate(st.value), _expire(run, st.expire), st.keep, st.when
    ),
)
swap_key = _operation(
    tree.SwapKey,
    lambda run, st: SwapKey(
        run.evaluate(st.key),
        run.evaluate(st.expect),
        run.evaluate(st.value),
        _expire(run, st.expire),
    ),
)
incr_key = _operation(
    tree.IncrKey,
    lambda run, st: IncrKey(run.evaluate(st.key), 1 if st.by is None else run.evaluate(st.by)),
)
delete_key = _operation(tree.DeleteKey, lambda run, st: DeleteKey(run.evaluate(st.key)))
expire_key = _operation(
    tree.ExpireKey, lambda run, st: ExpireKey(run.evaluate(st.key), _lasting(run, st.expire))
)
persist_key = _operation(tree.PersistKey, lambda run, st: PersistKey(run.evaluate(st.key)))
lock_key = _operation(
    tree.LockKey,
    lambda run, st: LockKey(
        run.evaluate(st.key), run.evaluate(st.holder), _lasting(run, st.expire)
    ),
)
unlock_key = _operation(
    tree.UnlockKey, lambda run, st: UnlockKey(run.evaluate(st.key), run.evaluate(st.holder))
)


def info_for_space(run: Execution, names: tuple[str, ...]) -> Value:
    """A space, and how many keys it holds that have not expired."""
    space = _space(run, names[0])
    count = 0
    for part in Keys(run.transaction, space).count():
        count += part
        run.tick()
    return {**described_space(space), "keys": count}


def _space(run: Execution, name: str) -> Space:
    return catalog.space(run.transaction, run.database(), name)


def _may(run: Execution, name: str, writes: bool) -> Space:
    space = _space(run, name)
    authorise(run.caller, Action("WRITE" if writes else "READ", f"SPACE {space.path}"))
    return space


def _expire(run: Execution, expression: tree.Expression | None) -> int | None:
    return None if expression is None else _lasting(run, expression)


def _lasting(run: Execution, expression: tree.Expression) -> int:
    """An expiry in microseconds; whether it may be that long is for the rules to say."""
    value = run.evaluate(expression)
    if not isinstance(value, timedelta):
        raise TypeRefused(
            f"EXPIRE takes a duration, not {type_name(value)}", found=type_name(value)
        )
    return value // MICROSECOND


def _afterwards(run: Execution, space: Space, keys: Keys) -> None:
    """What has to be done once the transaction has committed."""
    if not (keys.locked or keys.lapsed or keys.soonest_us):
        return
    spaces = run.services.spaces

    def follow_up() -> None:
        for answer in keys.locked:
            answer["fence"] = run.written
        if keys.soonest_us:
            spaces.expiring(space, keys.soonest_us)
        if keys.lapsed:
            run.depends_on(spaces.bury(space, keys.lapsed))

    run.afterwards.append(follow_up)
