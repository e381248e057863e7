"""Scripts that are one CREATE of given values, run without a turn, as `brief.py` looks one up.

`CREATE t CONTENT $v` and `CREATE t:7 SET a = 1, b = $b`, into a table without fields. What does not
go well, a refusal, a large record, an id among the fields, is left to `execution.py`: up to the
commit nothing has happened, so it begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from actors.access import Action, authorise
from actors.scripts.brief import Given, find_table, value_of
from actors.scripts.services import Services
from language import tree
from language.compile import MISSING
from protocol import limits
from protocol.errors import Refusal
from protocol.requests import Result, RunScript, ScriptAnswer
from protocol.values import NONE, RecordId, check, is_large, without_none
from storage import records
from storage.effects import Attribution

PARTS: Final = 256
CHARACTERS: Final = 1_024
"""Of a record that is made here, and of each of its strings: a millisecond at most."""


@dataclass(frozen=True, slots=True)
class Creation:
    """What a script creates.

    :param named: the record, or None and a new id in the table
    :param content: what it holds, or None and `fields`
    :param answered: whether the record is answered
    """

    table: str | None
    named: Given | None
    content: Given | None
    fields: tuple[tuple[str, Given], ...]
    answered: bool


class Created(NamedTuple):
    """A commit on its way, and what is answered once it is durable."""

    sequence: int
    generation: int
    answer: ScriptAnswer


def creation(script: tree.Script) -> Creation | None:
    """What a script creates, if it is nothing but a CREATE of given values."""
    if len(script.statements) != 1:
        return None
    (create,) = script.statements
    if type(create) is not tree.Create or create.timeout is not None:
        return None
    returning = create.returning
    if returning is not None and returning.kind not in ("NONE", "AFTER"):
        return None
    table, named = None, None
    if type(create.target) is tree.TableTarget:
        table = create.target.table
    elif type(create.target) is tree.ExpressionTarget:
        named = value_of(create.target.expression)
    if table is None and named is None:
        return None
    content, fields = None, _fields(create.data)
    if type(create.data) is tree.Content:
        content = value_of(create.data.value)
    if content is None and fields is None:
        return None
    answered = returning is None or returning.kind == "AFTER"
    return Creation(table, named, content, fields or (), answered)


def _fields(data: tree.Data | None) -> tuple[tuple[str, Given], ...] | None:
    """The fields of a SET of given values; none where there is no data at all."""
    if data is None:
        return ()
    if type(data) is not tree.Set:
        return None
    found: list[tuple[str, Given]] = []
    for path, expression in data.assignments:
        given = value_of(expression)
        if given is None or len(path) != 1 or type(path[0]) is not str:
            return None
        found.append((path[0], given))
    return tuple(found)


def create(
    services: Services, request: RunScript, creation: Creation, statement: str
) -> Created | None:
    """Make the record and commit it; None: nothing has happened, the script has to be run.

    :param statement: the script's text for the log
    """
    parameters = request.parameters
    if request.timeout_us is not None or len(parameters) > limits.VARIABLES:
        return None
    began_us = services.clock.monotonic_us()
    fields = _given_fields(creation, parameters)
    if fields is None:
        return None
    named: RecordId | None = None
    if creation.named is not None:
        named = creation.named.among(parameters)
        if type(named) is not RecordId:
            return None
    committer = services.committer
    generation = committer.generation
    try:
        services.roles.check_serving()
        services.roles.check_writable()
        with committer.begin() as tx:
            table, _ = find_table(tx, request, _table_of(creation, named), None)
            authorise(request.caller, Action("WRITE", f"TABLE {table.path}"))
            if table.fields or table.schemafull:
                return None
            check(fields)
            kept = without_none(fields)
            record = named or RecordId(table.name, records.new_id(tx, 1))
            records.create(tx, table, record.id, kept)
            caller = request.caller
            attribution = Attribution(caller.user, caller.surface, statement, request.reason)
            read_at = tx.sequence
            sequence = committer.commit(tx, attribution)
    except Refusal:
        return None
    assert sequence > read_at, "a record was created without a commit"
    rows: list[Any] = [{"id": record, **kept}] if creation.answered else []
    took_us = services.clock.monotonic_us() - began_us
    result = Result(rows, "rows", len(rows), took_us)
    place = request.namespace, request.database
    return Created(sequence, generation, ScriptAnswer((result,), sequence, *place))


def _given_fields(creation: Creation, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the record is to hold; None where it is not for this module."""
    if creation.content is not None:
        fields = creation.content.among(parameters)
        if type(fields) is not dict:
            return None
    else:
        fields = {}
        for name, given in creation.fields:
            value = fields[name] = given.among(parameters)
            if value is MISSING:
                return None
    if fields.get("id", NONE) is not NONE or is_large(fields, PARTS, CHARACTERS):
        return None
    return fields


def _table_of(creation: Creation, named: RecordId | None) -> str:
    if named is not None:
        return named.table
    assert creation.table is not None, "a creation names a table or a record"
    return creation.table
