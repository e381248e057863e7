"""Registry of statement handlers, with the privileges that each requires.

A statement is run by a function of the execution and its node (`@handles`), or is *compiled*. A
function decorated with `@compiles` is called once for a node, and returns the function that runs it
each time. The second is for statements on records, which come by the thousand with the same text.

Required privileges are declared as data beside the function, `needs=`. `actors/rights.py` checks
them before the function runs (authorization). The function gets the named things from there, as
arguments in the order of `needs`, and has no other way to them: a name alone gives no access.
Records are named by expressions, so their tables are authorized at run time: `Execution.table`
requires the privileges that `RequiresOnRecords` declares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, TypeVar

from language import tree
from language.names import shape_of
from language.rows import NO_FIELDS
from protocol.requests import ResultKind
from protocol.rights import NOTHING, SecurableKind, Verbs
from protocol.values import Value

Run = TypeVar("Run", bound=Callable[..., Value])

StatementFunction = Callable[..., Value]
"""Runs one statement: called with the execution and the things that its needs name."""
Make = Callable[[Any], StatementFunction]
"""Returns the function that runs one statement's node."""
Compiler = TypeVar("Compiler", bound=Make)

# --- required privileges --------------------------------------------------------------------------


class RequiredWhen(Enum):
    """Condition under which a statement requires a privilege."""

    ALWAYS = "always"
    ANSWERS = "with RETURN other than NONE"
    FILTERS = "with WHERE"
    LOOKS = "where an expression names a field"
    MEETS = "with IGNORE or ON DUPLICATE"
    BARE = "without a reader"
    AS_READER = "as a reader"
    TELLS = "with ON CHANGE into a topic"
    BRINGS = "with DEAD LETTER"
    UNNAMED = "where it names no vault"
    MEASURES_FILTER = "with WHERE of MEASURE"


@dataclass(frozen=True, slots=True)
class Requires:
    """Required privileges on a securable that a statement names, or on the current database.

    :ivar fields: fields of the statement's node with its names, from the outside in; an int: that
        item of `names`. Empty: the current namespace or database. A name that is not given
        requires nothing.
    """

    verbs: Verbs
    kind: SecurableKind
    fields: tuple[str | int, ...] = ()
    when: RequiredWhen = RequiredWhen.ALWAYS


@dataclass(frozen=True, slots=True)
class RequiresOnRecords:
    """Required privileges on the tables of the records that a statement names, by whatever
    expression."""

    verbs: Verbs
    when: RequiredWhen = RequiredWhen.ALWAYS


@dataclass(frozen=True, slots=True)
class RequiresOnSecurable:
    """Required privileges on a named securable, or on its namespace or database; on the store if
    none is named. The function gets the securable.

    :ivar field: field of the statement's node, a `tree.SecurableRef` or None
    """

    verbs: Verbs
    field: str = "securable"


@dataclass(frozen=True, slots=True)
class RequiresOnPlaces:
    """Required privileges on each namespace and database that a statement names, and on the store
    if it covers more than these. The function gets nothing: it reads another snapshot of the store.

    :ivar field: field of the statement's node, a tuple of `tree.SecurableRef`
    :ivar beyond: of a statement's node; True if it covers more
    """

    verbs: Verbs
    field: str
    beyond: Callable[[Any], bool]


Requirements = Sequence[Requires | RequiresOnRecords | RequiresOnSecurable | RequiresOnPlaces]


def _answers(statement: Any) -> bool:
    returning = statement.returning
    return returning is not None and returning.kind != "NONE"


# By the node alone: privileges are known before any value is computed.
_ASKS: Final[dict[RequiredWhen, Callable[[Any], bool]]] = {
    RequiredWhen.ALWAYS: lambda statement: True,
    RequiredWhen.ANSWERS: _answers,
    RequiredWhen.FILTERS: lambda statement: statement.where is not None,
    RequiredWhen.LOOKS: lambda statement: shape_of(statement.data) is not NO_FIELDS,
    RequiredWhen.MEETS: lambda statement: statement.ignore or statement.on_duplicate is not None,
    RequiredWhen.BARE: lambda statement: statement.reader is None,
    RequiredWhen.AS_READER: lambda statement: statement.reader is not None,
    RequiredWhen.TELLS: lambda statement: statement.topic is not None,
    RequiredWhen.BRINGS: lambda statement: _named(statement, "dead_letter") is not None,
    RequiredWhen.MEASURES_FILTER: lambda statement: (
        statement.over is not None and statement.over.where is not None
    ),
    RequiredWhen.UNNAMED: lambda statement: statement.vault is None,
}


@dataclass(frozen=True, slots=True)
class RequiredPrivilege:
    """Privileges that one statement requires on one thing. `names` are as in the statement; None:
    not given."""

    kind: SecurableKind
    names: tuple[str | None, ...]
    verbs: Verbs
    as_securable: bool = False
    """True if its function gets the securable itself."""
    is_handed: bool = True
    """True if its function gets an argument for it."""


@dataclass(frozen=True, slots=True)
class RequiredPrivileges:
    """Privileges that one statement requires."""

    targets: tuple[RequiredPrivilege, ...]
    """In the order of the handler's arguments."""
    records: Verbs
    """On the tables of the records it names."""


def claims_of(statement: Any) -> RequiredPrivileges:
    """Return the privileges that a statement requires, by its handler's declaration."""
    targets: dict[tuple[SecurableKind, tuple[str | int, ...]], Verbs] = {}
    securables: list[RequiredPrivilege] = []
    parts: list[RequiredPrivilege] = []
    records: Verbs = NOTHING
    for need in handler_of(statement).needs:
        if isinstance(need, RequiresOnSecurable):
            securables.append(_of_securable(getattr(statement, need.field), need.verbs))
            continue
        if isinstance(need, RequiresOnPlaces):
            parts += _of_parts(statement, need)
            continue
        # A condition that does not hold leaves the thing: it is resolved, with no verb.
        verbs = need.verbs if _ASKS[need.when](statement) else NOTHING
        if isinstance(need, RequiresOnRecords):
            records |= verbs
        else:
            key = (need.kind, need.fields)
            # Several needs of one thing are one claim: the function gets it once.
            targets[key] = targets.get(key, NOTHING) | verbs
    # Things, then securables: the order of arguments. Places are not passed.
    return RequiredPrivileges(
        tuple(
            RequiredPrivilege(kind, tuple(_named(statement, field) for field in fields), verbs)
            for (kind, fields), verbs in targets.items()
        )
        + tuple(securables)
        + tuple(parts),
        records,
    )


def _of_parts(statement: Any, need: RequiresOnPlaces) -> list[RequiredPrivilege]:
    beyond = (
        [RequiredPrivilege(SecurableKind.STORE, (), need.verbs)] if need.beyond(statement) else []
    )
    named = [
        RequiredPrivilege(
            SecurableKind(place.kind), place.names, need.verbs, as_securable=True, is_handed=False
        )
        for place in getattr(statement, need.field)
    ]
    # The store is judged first: without OWN on it no named place is looked up.
    return beyond + named


def _of_securable(named: tree.SecurableRef | None, verbs: Verbs) -> RequiredPrivilege:
    if named is None:
        return RequiredPrivilege(SecurableKind.STORE, (), verbs, as_securable=True)
    return RequiredPrivilege(SecurableKind(named.kind), named.names, verbs, as_securable=True)


def _named(statement: Any, field: str | int) -> str | None:
    """Return the name in a field of a statement's node; None: it is not given."""
    found: str | None
    if isinstance(field, int):
        names = statement.names
        # INFO may name less than its full path: the rest is the current place.
        found = names[field] if -len(names) <= field < len(names) else None
    elif hasattr(statement, field):
        found = getattr(statement, field)
    else:
        found = dict(statement.changes).get(field)
    return found


# --- the table ------------------------------------------------------------------------------------


class Audited(IntEnum):
    """Cases in which the audit trail keeps a statement. A refused privilege is kept for each."""

    NEVER = 0
    CHANGES = 1
    """If it changed something."""
    ALWAYS = 2
    """Always: if it changed something, nothing, or was refused."""


# By name: a new statement of this kind cannot miss the audit trail.
_DECLARES: Final = ("Alter", "Define", "Drop", "Rebuild", "Redrive", "Trim")
"""Prefixes of the names of statements on declarations, and on all of their content."""


def _is_declaration(statement: type) -> bool:
    return statement.__name__.startswith(_DECLARES)


@dataclass(frozen=True, slots=True)
class Handler:
    """Handler of one kind of statement: its function, the kind of its answer, its required
    privileges."""

    make: Make
    kind: ResultKind
    writes: bool
    """True if it requires a writable node."""
    needs: tuple[Requires | RequiresOnRecords | RequiresOnSecurable | RequiresOnPlaces, ...]
    audited: Audited = Audited.NEVER
    """Cases in which the audit trail keeps it, beside the statement log."""


HANDLERS: Final[dict[type, Handler]] = {}
"""Handlers by the class of the statement's node; all but INFO."""
SUBJECTS: Final[dict[str, Handler]] = {}
"""Handlers of INFO FOR …, by its subject."""

UNNAMED: Final = frozenset({SecurableKind.STORE, SecurableKind.NODE})
"""Kinds with a single instance: they are authorized, and no argument is passed for them."""


def handler_of(statement: Any) -> Handler:
    """Return the handler of a statement."""
    if type(statement) is tree.Info:
        return SUBJECTS[statement.subject]
    return HANDLERS[type(statement)]


def handles(
    statement: type, kind: ResultKind, *, writes: bool, needs: Requirements, audited: bool = False
) -> Callable[[Run], Run]:
    """Register the decorated function as the handler of one kind of statement.

    :param audited: True if the audit trail keeps it also where it changes nothing
    """

    def register(run: Run) -> Run:
        declares = Audited.CHANGES if _is_declaration(statement) else Audited.NEVER
        kept = Audited.ALWAYS if audited else declares
        _register(statement, Handler(_bound(run, needs), kind, writes, tuple(needs), kept))
        return run

    return register


def compiles(
    statement: type, kind: ResultKind, *, writes: bool, needs: Requirements
) -> Callable[[Compiler], Compiler]:
    """Register the decorated function as the compiler of one kind of statement, which names nothing
    but records."""

    def register(make: Compiler) -> Compiler:
        assert not _targets(needs), f"{make.__name__}: what is compiled is handed no things"
        _register(statement, Handler(make, kind, writes, tuple(needs)))
        return make

    return register


def _register(statement: type, handler: Handler) -> None:
    # At import: a second handler would silently replace the first.
    assert statement not in HANDLERS, f"{statement.__name__} has two handlers"
    HANDLERS[statement] = handler


def informs(subject: str, *, needs: Requirements) -> Callable[[Run], Run]:
    """Register the decorated function as the handler of INFO FOR one subject."""

    def register(run: Run) -> Run:
        assert subject not in SUBJECTS, f"{subject} is answered twice"
        SUBJECTS[subject] = Handler(_bound(run, needs), "info", False, tuple(needs))
        return run

    return register


def _bound(run: Callable[..., Value], needs: Requirements) -> Make:
    """Return a function that binds a statement's node to its handler."""
    targets = _targets(needs)
    # The execution and the node come first, then one argument for each target.
    takes = len(inspect.signature(run).parameters) - 2
    assert takes == targets, f"{run.__name__} takes {takes} objects, its needs name {targets}"

    def make(statement: Any) -> StatementFunction:
        return lambda execution, *found: run(execution, statement, *found)

    return make


def _targets(
    needs: Iterable[Requires | RequiresOnRecords | RequiresOnSecurable | RequiresOnPlaces],
) -> int:
    # As `claims_of` joins them: one thing for all needs of the same names.
    named = {
        (need.kind, need.fields)
        for need in needs
        if isinstance(need, Requires) and need.kind not in UNNAMED
    }
    return len(named) + sum(isinstance(need, RequiresOnSecurable) for need in needs)
