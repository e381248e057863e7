"""Functions of databases: DEFINE, DROP and INFO."""

from __future__ import annotations

from actors.scripts.calling import compiled
from actors.scripts.execution import Execution
from actors.scripts.handlers import Requires, handles, informs
from actors.scripts.name_clashes import IF_TAKEN
from actors.scripts.schema import functions_of_field
from language import tree
from language.defined import check_function
from language.names import called
from language.parser import parse_expression
from language.printing import print_expression, print_type
from protocol.errors import StillHeld
from protocol.rights import DEFINE, INFO, NOTHING, SecurableKind
from protocol.values import NONE, Value
from storage.catalog import functions, tables
from storage.catalog.functions import Function
from storage.catalog.places import Database

_SHOWN = 10
"""Most callers of a function that a message names."""


@handles(tree.DefineFunction, "none", writes=True, needs=[Requires(DEFINE, SecurableKind.DATABASE)])
def define_function(run: Execution, statement: tree.DefineFunction, database: Database) -> Value:
    """Define a function of a database.

    :raises AlreadyExists: the name is taken, and the statement has neither IF NOT EXISTS nor
        OVERWRITE
    :raises BadRequest: its body uses names that it may not see
    :raises Unknown: it calls a function that does not exist
    """
    check_function(statement)
    # Its own name is left out: recursion is allowed, and bounded at the call.
    # Sorted, so that the same missing function is named each time.
    for name in sorted(called(statement.body) - {statement.name}):
        run.authorizer.function(name, NOTHING)
    # Kept as text: the catalog does not depend on the form of the tree.
    made = Function(
        database,
        statement.name,
        tuple((one.name, print_type(one.type)) for one in statement.parameters),
        None if statement.returns is None else print_type(statement.returns),
        print_expression(statement.body),
        statement.comment,
    )
    functions.define(run.transaction, made, IF_TAKEN[statement.exists])
    # Compile it as stored, to refuse it now: the printed text may nest deeper than the given one.
    compiled(run.transaction, run.authorizer.function(statement.name, NOTHING))
    return NONE


@handles(
    tree.DropFunction,
    "none",
    writes=True,
    needs=[
        Requires(DEFINE, SecurableKind.DATABASE),
        Requires(NOTHING, SecurableKind.FUNCTION, ("name",)),
    ],
)
def drop_function(
    run: Execution, statement: tree.DropFunction, database: Database, function: Function
) -> Value:
    """Drop a function.

    :raises StillHeld: fields or other functions of the database call it; names them
    """
    run.reason = statement.reason
    users = _users(run, function)
    if users:
        listed = ", ".join(users[:_SHOWN]) + (", …" if len(users) > _SHOWN else "")
        raise StillHeld(
            f"function {function.path} is called by {listed}: change these callers first",
            kind="function",
            name=function.path,
            used_by=users,
        )
    functions.drop(run.transaction, function)
    return NONE


def _users(run: Execution, function: Function) -> list[str]:
    """Return the fields and functions of its database that call a function, itself excepted."""
    # All definitions are searched: DROP is rare, and no index of callers is kept.
    found = []
    for table in tables.tables(run.transaction, function.database, run.tick):
        for field in table.fields:
            run.tick()
            if function.name in functions_of_field(field):
                found.append(f"field {field.name} of table {table.name}")
    for other in functions.each(run.transaction, function.database, run.tick):
        # A function may go although it calls itself.
        if other.name != function.name and function.name in called(parse_expression(other.body)):
            found.append(f"function {other.name}")
    return found


@informs("FUNCTION", needs=[Requires(INFO, SecurableKind.FUNCTION, (0,))])
def info_for_function(run: Execution, statement: tree.Info, function: Function) -> Value:
    """Describe a function."""
    return described_function(function)


def described_function(function: Function) -> dict[str, Value]:
    """Return the description of a function for INFO."""
    return {
        "name": function.name,
        "comment": function.comment,
        "parameters": [{"name": name, "type": of} for name, of in function.parameters],
        "returns": function.returns,
        "body": function.body,
    }
