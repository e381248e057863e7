"""Scripts that are one look-up, answered without a turn.

`SELECT * FROM $id` and `SELECT * FROM t WHERE name = $name`, by a UNIQUE index, are over long
before a slice would be. They need nothing of what makes long work stoppable: no greenlet, no place
among the running, no budget. Half of what such a read took was that.

Only what goes well is answered here. Whatever doesn't, a refusal, a large record, a commit in
flight that the answer would have to wait for, is left to `execution.py`, which begins anew and says
the same of everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from actors.access import Action, authorise
from actors.scripts.services import Services
from language import tree
from language.compile import MISSING, constant
from language.select import plan_select
from protocol import limits, order
from protocol.binary import unpack_object
from protocol.errors import Refusal
from protocol.requests import Result, RunScript, ScriptAnswer
from protocol.values import RecordId, Value
from storage import catalog, indexes, keys
from storage.catalog import Table
from storage.effects import SEQUENCE_BYTES
from storage.engine import EngineFailed
from storage.indexes import Index
from storage.transactions import Transaction

if TYPE_CHECKING:
    from actors.scripts.prepared import PreparedScripts

LIGHT_BYTES: Final = 4 * limits.KIB
"""Of a record that is answered here: decoded and encoded in some tens of microseconds."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value that stands in the script, or comes with the request."""

    parameter: str | None
    value: Value = None

    def among(self, parameters: Mapping[str, Value]) -> Any:
        """The value. `MISSING`: the request has no such parameter."""
        return self.value if self.parameter is None else parameters.get(self.parameter, MISSING)


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a script looks up.

    :param table: None: that of the record, which `given` is
    :param field: None: the record of that id
    """

    given: Given
    table: str | None = None
    field: str | None = None


def lookup(script: tree.Script) -> Lookup | None:
    """What a script looks up, if it is nothing but a look-up of one record, whole."""
    if len(script.statements) != 1:
        return None
    (select,) = script.statements
    if type(select) is not tree.Select or len(select.sources) != 1:
        return None
    (source,) = select.sources
    if _entire(select, source) == select and type(source) is tree.ExpressionTarget:
        given = value_of(source.expression)
        return None if given is None else Lookup(given)
    if _entire(select, source, select.where) == select and type(source) is tree.TableTarget:
        return _by_field(select, source.table)
    return None


def _entire(
    select: tree.Select, source: tree.Target, where: tree.Expression | None = None
) -> tree.Select:
    """A SELECT that asks for whole records and nothing else."""
    return tree.Select(
        value=False, everything=True, columns=(), omit=(), sources=(source,), where=where
    )


def _by_field(select: tree.Select, table: str) -> Lookup | None:
    question = plan_select(select).question
    if len(question.terms) != 1 or len(question.conditions) != 1:
        return None
    (term,) = question.terms
    given = value_of(term.value)
    if term.operator != "=" or len(term.path) != 1 or given is None:
        return None
    return Lookup(given, table, str(term.path[0]))


def value_of(node: tree.Expression) -> Given | None:
    """What an expression gives that needs no looking up; None: it needs more."""
    if type(node) is tree.Parameter:
        return Given(node.name)
    try:
        value = constant(node)
    except Refusal:
        return None
    return None if value is MISSING else Given(None, value)


class Lookups:
    """Answers look-ups on one node.

    :param prepared: texts that have come before; one that comes for the first time is run
    """

    def __init__(self, services: Services, prepared: PreparedScripts) -> None:
        self._services = services
        self._prepared = prepared

    def answer(self, request: RunScript) -> ScriptAnswer | None:
        """The answer of a script that is a look-up; None: it has to be run."""
        lookup = self._prepared.lookup(request.script)
        return None if lookup is None else answer(self._services, request, lookup)


def answer(services: Services, request: RunScript, lookup: Lookup) -> ScriptAnswer | None:
    """The answer of a script that is a look-up; None: it has to be run."""
    value = lookup.given.among(request.parameters)
    if value is MISSING or len(request.parameters) > limits.VARIABLES:
        return None
    began_us = services.clock.monotonic_us()
    committer = services.committer
    with committer.begin() as tx:
        try:
            services.roles.check_serving()
            found = _found(tx, request, lookup, value)
        except (Refusal, EngineFailed):
            return None
        if found is None or not committer.is_durable(tx.saw, committer.generation):
            return None
    took_us = services.clock.monotonic_us() - began_us
    return ScriptAnswer(
        (Result(found, "rows", len(found), took_us),),
        min(tx.sequence, committer.sequence),
        request.namespace,
        request.database,
    )


def _found(
    tx: Transaction, request: RunScript, lookup: Lookup, value: Any
) -> list[dict[str, Any]] | None:
    """The record that is looked up, or none; None where it can't be told here.

    :raises Refusal: it may not be looked up
    """
    if lookup.field is None:
        if type(value) is not RecordId:
            return None
        table, _ = find_table(tx, request, value.table, None)
        key = keys.record(table.prefix, value.id)
    else:
        assert lookup.table is not None, "a field is that of a table"
        table, index = find_table(tx, request, lookup.table, lookup.field)
        authorise(request.caller, Action("READ", f"TABLE {table.path}"))
        if index is None or type(value) in _PARTED or not indexes.can_claim(value):
            return None
        encoded = order.encode(value)
        if len(encoded) > order.kept_bytes(index.most):
            return None
        holder = tx.get(index.entries + indexes.WHOLE + encoded)
        if holder is None:
            return []
        key = table.prefix + holder
        value = RecordId(table.name, order.decode_id(holder))
    stored = tx.get(key)
    if stored is None:
        return []
    if len(stored) > LIGHT_BYTES:
        return None
    return [{"id": value, **unpack_object(stored[SEQUENCE_BYTES:])}]


_PARTED: Final = frozenset({list, dict})


def find_table(
    tx: Transaction, request: RunScript, name: str, field: str | None
) -> tuple[Table, Index | None]:
    """A table, and its UNIQUE index over a field if it has one; remembered until a declaration
    changes. :raises Refusal: there is no such place"""
    entries = tx.catalog.entries
    # By what is declared, never by what was asked for: of fields one may ask for any number.
    at = ("brief", request.namespace, request.database, name)
    known: tuple[Table, dict[str, Index]] | None = entries.get(at)
    if known is None:
        namespace = catalog.namespace(tx, request.namespace or "")
        database = catalog.database(tx, namespace, request.database or "")
        table = catalog.table(tx, database, name)
        known = entries[at] = (table, _unique(table))
    table, unique = known
    return table, None if field is None else unique.get(field)


def _unique(table: Table) -> dict[str, Index]:
    """The UNIQUE indexes over one field, by that field."""
    found: dict[str, Index] = {}
    for index in reversed(table.indexes):
        if index.unique and index.usable and len(index.paths) == 1 and len(index.paths[0]) == 1:
            found[str(index.paths[0][0])] = index
    return found
