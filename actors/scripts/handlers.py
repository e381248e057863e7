"""Which function runs which statement, and what that needs. Each module of statements adds its own.

A statement is run by a function of the execution and its node, `@handles`, or is *compiled*: what
`@compiles` decorates is called once for a node, and answers the function that runs it each time.
The second is for statements on records, which come by the thousand with the same text.

What a statement needs is declared as data beside its function, `needs=`, and judged by
`actors/rights.py` before the function runs. The function gets what the statement names from there,
as arguments in the order of `needs`, and has no other way to come by it: a name alone opens
nothing. Records are named by expressions, so their tables are judged when they are known:
`Execution.table` asks for the verbs that `OnRecords` declares.
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
from protocol.rights import NOTHING, Kind, Verbs
from protocol.values import Value

Run = TypeVar("Run", bound=Callable[..., Value])

Work = Callable[..., Value]
"""Runs one statement: called with the execution and the things that its needs name."""
Make = Callable[[Any], Work]
"""Answers the work of one statement's node."""
Compiler = TypeVar("Compiler", bound=Make)

# --- what is needed -------------------------------------------------------------------------------


class When(Enum):
    """What a statement must ask for to need something."""

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


@dataclass(frozen=True, slots=True)
class Need:
    """Verbs on something that a statement names, or stands in.

    :ivar fields: of the statement's node, which hold its names, from the outside in; an int: that
        item of `names`. None of a place: the one in use. One that is not given needs nothing.
    """

    verbs: Verbs
    kind: Kind
    fields: tuple[str | int, ...] = ()
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class OnRecords:
    """Verbs on the tables of the records that a statement names, whatever names them."""

    verbs: Verbs
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class OnNoun:
    """Verbs on the place of the noun that a statement names, or on that place itself; on the store
    where it names none. Its function gets the noun.

    :ivar field: of the statement's node, a `tree.NounRef` or None
    """

    verbs: Verbs
    field: str = "noun"


@dataclass(frozen=True, slots=True)
class OnParts:
    """Verbs on the places that a statement names, each of them, and on the store where what it does
    is more than theirs. Its function gets nothing: it looks at another moment of the store.

    :ivar field: of the statement's node, a tuple of `tree.NounRef`
    :ivar beyond: of a statement's node, whether it is more
    """

    verbs: Verbs
    field: str
    beyond: Callable[[Any], bool]


Needs = Sequence[Need | OnRecords | OnNoun | OnParts]


def _answers(statement: Any) -> bool:
    returning = statement.returning
    return returning is not None and returning.kind != "NONE"


_ASKS: Final[dict[When, Callable[[Any], bool]]] = {
    When.ALWAYS: lambda statement: True,
    When.ANSWERS: _answers,
    When.FILTERS: lambda statement: statement.where is not None,
    When.LOOKS: lambda statement: shape_of(statement.data) is not NO_FIELDS,
    When.MEETS: lambda statement: statement.ignore or statement.on_duplicate is not None,
    When.BARE: lambda statement: statement.reader is None,
    When.AS_READER: lambda statement: statement.reader is not None,
    When.TELLS: lambda statement: statement.topic is not None,
    When.BRINGS: lambda statement: _named(statement, "dead_letter") is not None,
    When.UNNAMED: lambda statement: statement.vault is None,
}


@dataclass(frozen=True, slots=True)
class Claim:
    """What one statement needs of one thing. `names` are as in the statement; None: as given."""

    kind: Kind
    names: tuple[str | None, ...]
    verbs: Verbs
    as_noun: bool = False
    """Whether its function gets the noun itself."""
    is_handed: bool = True
    """Whether its function gets anything."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What one statement needs."""

    things: tuple[Claim, ...]
    """In the order in which the handler gets them."""
    records: Verbs
    """Of the tables of the records it names."""


def claims_of(statement: Any) -> Claims:
    """What a statement needs, by what its handler declares."""
    things: dict[tuple[Kind, tuple[str | int, ...]], Verbs] = {}
    nouns: list[Claim] = []
    parts: list[Claim] = []
    records: Verbs = NOTHING
    for need in handler_of(statement).needs:
        if isinstance(need, OnNoun):
            nouns.append(_of_noun(getattr(statement, need.field), need.verbs))
            continue
        if isinstance(need, OnParts):
            parts += _of_parts(statement, need)
            continue
        verbs = need.verbs if _ASKS[need.when](statement) else NOTHING
        if isinstance(need, OnRecords):
            records |= verbs
        else:
            key = (need.kind, need.fields)
            things[key] = things.get(key, NOTHING) | verbs
    return Claims(
        tuple(
            Claim(kind, tuple(_named(statement, field) for field in fields), verbs)
            for (kind, fields), verbs in things.items()
        )
        + tuple(nouns)
        + tuple(parts),
        records,
    )


def _of_parts(statement: Any, need: OnParts) -> list[Claim]:
    beyond = [Claim(Kind.STORE, (), need.verbs)] if need.beyond(statement) else []
    named = [
        Claim(Kind(place.kind), place.names, need.verbs, as_noun=True, is_handed=False)
        for place in getattr(statement, need.field)
    ]
    return beyond + named


def _of_noun(named: tree.NounRef | None, verbs: Verbs) -> Claim:
    if named is None:
        return Claim(Kind.STORE, (), verbs, as_noun=True)
    return Claim(Kind(named.kind), named.names, verbs, as_noun=True)


def _named(statement: Any, field: str | int) -> str | None:
    """What a field of a statement's node names; None where it is not given."""
    found: str | None
    if isinstance(field, int):
        names = statement.names
        found = names[field] if -len(names) <= field < len(names) else None
    elif hasattr(statement, field):
        found = getattr(statement, field)
    else:
        found = dict(statement.changes).get(field)
    return found


# --- the table ------------------------------------------------------------------------------------


class Audited(IntEnum):
    """Cases in which the audit trail keeps a statement. A refused right is kept of each."""

    NEVER = 0
    CHANGES = 1
    """It changed something."""
    ALWAYS = 2
    """It changed something or nothing, or was refused."""


_DECLARES: Final = ("Alter", "Define", "Drop", "Rebuild", "Redrive", "Trim")
"""Beginnings of the names of statements on what is declared, and on all that stands in it."""


def _is_declaration(statement: type) -> bool:
    return statement.__name__.startswith(_DECLARES)


@dataclass(frozen=True, slots=True)
class Handler:
    """How one kind of statement is run, what its answer is called, and what it needs."""

    make: Make
    kind: ResultKind
    writes: bool
    """Whether it needs a node that is writable."""
    needs: tuple[Need | OnRecords | OnNoun | OnParts, ...]
    audited: Audited = Audited.NEVER
    """Cases in which the audit trail keeps it, beside the statement log."""


HANDLERS: Final[dict[type, Handler]] = {}
"""By the class of the statement's node; of all but INFO."""
SUBJECTS: Final[dict[str, Handler]] = {}
"""INFO FOR …, by its subject."""

UNNAMED: Final = frozenset({Kind.STORE, Kind.NODE})
"""What there is one of: it is judged, and there is nothing to hand over."""


def handler_of(statement: Any) -> Handler:
    """What runs a statement."""
    if type(statement) is tree.Info:
        return SUBJECTS[statement.subject]
    return HANDLERS[type(statement)]


def handles(
    statement: type, kind: ResultKind, *, writes: bool, needs: Needs, audited: bool = False
) -> Callable[[Run], Run]:
    """Let the decorated function run one kind of statement.

    :param audited: the audit trail keeps it also where it changes nothing
    """

    def register(run: Run) -> Run:
        declares = Audited.CHANGES if _is_declaration(statement) else Audited.NEVER
        kept = Audited.ALWAYS if audited else declares
        _register(statement, Handler(_bound(run, needs), kind, writes, tuple(needs), kept))
        return run

    return register


def compiles(
    statement: type, kind: ResultKind, *, writes: bool, needs: Needs
) -> Callable[[Compiler], Compiler]:
    """Let the decorated function compile one kind of statement, which names nothing but records."""

    def register(make: Compiler) -> Compiler:
        assert not _things(needs), f"{make.__name__}: what is compiled is handed no things"
        _register(statement, Handler(make, kind, writes, tuple(needs)))
        return make

    return register


def _register(statement: type, handler: Handler) -> None:
    assert statement not in HANDLERS, f"{statement.__name__} has two handlers"
    HANDLERS[statement] = handler


def informs(subject: str, *, needs: Needs) -> Callable[[Run], Run]:
    """Let the decorated function answer INFO FOR one subject."""

    def register(run: Run) -> Run:
        assert subject not in SUBJECTS, f"{subject} is answered twice"
        SUBJECTS[subject] = Handler(_bound(run, needs), "info", False, tuple(needs))
        return run

    return register


def _bound(run: Callable[..., Value], needs: Needs) -> Make:
    """Calls a function with the node of its statement."""
    things = _things(needs)
    takes = len(inspect.signature(run).parameters) - 2
    assert takes == things, f"{run.__name__} takes {takes} things, its needs name {things}"

    def make(statement: Any) -> Work:
        return lambda execution, *found: run(execution, statement, *found)

    return make


def _things(needs: Iterable[Need | OnRecords | OnNoun | OnParts]) -> int:
    named = {
        (need.kind, need.fields)
        for need in needs
        if isinstance(need, Need) and need.kind not in UNNAMED
    }
    return len(named) + sum(isinstance(need, OnNoun) for need in needs)
