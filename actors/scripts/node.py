"""Statements on the node itself and on what it is running."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from actors.scripts import indexes, places, spaces, topics, users
from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from language import tree
from protocol.errors import Conflict, NotInTransaction, TypeRefused, Unknown
from protocol.values import NONE, Value, type_name
from storage.state_hash import hash_in_slices

ID_CHARACTERS: Final = 128
"""Shown of an id that names nothing."""


@handles(tree.DefineNode, "none")
def define_node(run: Execution, statement: tree.DefineNode) -> Value:
    """Set the node's roles or endpoints. Not a write: accepted in every role, kept beside the
    log, so it can't be part of a transaction that might be cancelled."""
    run.authorise("ADMINISTER")
    if run.in_block:
        raise NotInTransaction("DEFINE NODE is no part of a transaction")
    run.turn.wait(run.services.roles.define(statement.roles, statement.endpoints))
    run.services.topics.roles_changed()
    return NONE


@handles(tree.Kill, "none")
def kill(run: Execution, statement: tree.Kill) -> Value:
    """End a running script at its next slice.

    :raises Unknown: none has that id
    :raises TypeRefused: it is no string
    """
    run.authorise("ADMINISTER")
    run.enlist()
    id = run.evaluate(statement.id)
    if not isinstance(id, str):
        raise TypeRefused(f"KILL takes the id of a script, a string, not {type_name(id)}")
    if not run.services.running.cancel(id, f"the script was killed by {run.caller.user}"):
        shown = id[:ID_CHARACTERS]
        raise Unknown(f"no script {shown} is running", id=shown)
    return NONE


@handles(tree.Info, "info")
def info(run: Execution, statement: tree.Info) -> Value:
    """INFO FOR …, by its subject."""
    if statement.subject not in _THEIR_OWN:
        run.authorise("INFO")
    return _SUBJECTS[statement.subject](run, statement.names)


def info_for_node(run: Execution, names: tuple[str, ...]) -> Value:
    """Identity, settings, roles, endpoints, and the hash of the state at a sequence."""
    return {**run.services.roles.info(), "state": _state(run)}


def info_for_running(run: Execution, names: tuple[str, ...]) -> Value:
    """Scripts being run, longest first."""
    run.enlist()
    return run.services.running.info(run.services.clock.monotonic_us())


def _state(run: Execution) -> Value:
    """The hash of the committed state and the sequence it stands at, taken slice by slice.

    A transaction of its own reads it: the engine alone may hold a part of a commit, and the
    script's own may have changes that nobody has committed.
    """
    with run.services.committer.begin() as transaction:
        transaction.pause()
        digest = _ticking(run, hash_in_slices(transaction))
        if transaction.withdrawn:
            raise Conflict("a commit that this had seen was taken back: disk full")
        run.depends_on(transaction.saw)
        return {"sequence": transaction.sequence, "hash": digest}


def _ticking(run: Execution, slices: Generator[None, None, str]) -> str:
    """What a generator returns, with others' turns between its steps."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)
        run.tick()


_SUBJECTS: dict[str, Callable[[Execution, tuple[str, ...]], Value]] = {
    "STORE": places.info_for_store,
    "NAMESPACE": places.info_for_namespace,
    "DATABASE": places.info_for_database,
    "TABLE": places.info_for_table,
    "SPACE": spaces.info_for_space,
    "TOPIC": topics.info_for_topic,
    "GROUP": topics.info_for_group,
    "INDEX": indexes.info_for_index,
    "USERS": users.info_for_users,
    "USER": users.info_for_user,
    "NODE": info_for_node,
    "RUNNING": info_for_running,
}
_THEIR_OWN = ("USER", "USERS", "TOPIC", "GROUP")
"""Subjects that decide by themselves who may ask."""
