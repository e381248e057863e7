"""Statements on the node itself and on what it is running."""

from __future__ import annotations

from collections.abc import Callable

from actors.scripts import places, users
from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from language import tree
from protocol.errors import NotInTransaction, Unknown
from protocol.values import NONE, Value
from storage.state_hash import hash_in_slices


@handles(tree.DefineNode, "none")
def define_node(run: Execution, statement: tree.DefineNode) -> Value:
    """Set the node's roles or endpoints. Not a write: accepted in every role, kept beside the
    log, so it can't be part of a transaction that might be cancelled."""
    run.authorise("ADMINISTER")
    if run.in_block:
        raise NotInTransaction("DEFINE NODE is no part of a transaction")
    run.turn.wait(run.services.roles.define(statement.roles, statement.endpoints))
    return NONE


@handles(tree.Kill, "none")
def kill(run: Execution, statement: tree.Kill) -> Value:
    """End a running script at its next slice. :raises Unknown: none has that id"""
    run.authorise("ADMINISTER")
    if not run.services.running.cancel(statement.id):
        raise Unknown(f"no script {statement.id} is running", id=statement.id)
    return NONE


@handles(tree.Info, "info")
def info(run: Execution, statement: tree.Info) -> Value:
    """INFO FOR …, by its subject."""
    if statement.subject not in ("USER", "USERS"):
        run.authorise("INFO")
    return _SUBJECTS[statement.subject](run, statement.names)


def info_for_node(run: Execution, names: tuple[str, ...]) -> Value:
    """Identity, settings, roles, endpoints, and the hash of the state at a sequence."""
    return {**run.services.roles.info(), "state": _state(run)}


def info_for_running(run: Execution, names: tuple[str, ...]) -> Value:
    """Scripts being run, longest first."""
    return run.services.running.info(run.services.clock.monotonic_us())


def _state(run: Execution) -> Value:
    """The hash of the durable state and the sequence it stands at, taken slice by slice."""
    ledger = run.services.committer.ledger
    sequence, view = ledger.durable_upto, ledger.engine.snapshot()
    try:
        slices = hash_in_slices(view)
        while True:
            try:
                next(slices)
            except StopIteration as done:
                return {"sequence": sequence, "hash": str(done.value)}
            run.tick()
    finally:
        view.close()


_SUBJECTS: dict[str, Callable[[Execution, tuple[str, ...]], Value]] = {
    "STORE": places.info_for_store,
    "NAMESPACE": places.info_for_namespace,
    "DATABASE": places.info_for_database,
    "TABLE": places.info_for_table,
    "USERS": users.info_for_users,
    "USER": users.info_for_user,
    "NODE": info_for_node,
    "RUNNING": info_for_running,
}
