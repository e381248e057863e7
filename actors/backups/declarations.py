"""Declarations of a store, as statements of a script that declare them again.

The statements are built as trees and printed, so each parses back to the same tree. No privileges
are checked here: the requester of the script was authorized for the namespaces and databases in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Final

from language import tree
from language.names import called
from language.parser import parse_expression, parse_type
from protocol import limits
from protocol.rights import Grant, Securable, SecurableKind, Verb
from protocol.values import MICROSECOND
from storage.catalog.functions import Function
from storage.catalog.on_change import OnChange
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.catalog.tables import Field, Table
from storage.catalog.users import User
from storage.indexes.entries import Index
from storage.topics.groups import Group
from storage.topics.topics import Topic

SKIP: Final = tree.Exists.SKIP
OVERWRITE: Final = tree.Exists.OVERWRITE


def namespace(thing: Namespace) -> tree.DefineNamespace:
    """Return the statement that declares a namespace."""
    return tree.DefineNamespace(thing.name, SKIP, thing.comment)


def database(thing: Database) -> tree.DefineDatabase:
    """Return the statement that declares a database."""
    return tree.DefineDatabase(thing.namespace.name, thing.name, SKIP, thing.comment)


# --- tables ---------------------------------------------------------------------------------------


def table(thing: Table) -> tree.DefineTable:
    """Return a table for loading: it accepts any record and publishes no change."""
    return tree.DefineTable(thing.name, SKIP, comment=thing.comment)


def table_as_it_is(thing: Table) -> tree.DefineTable | None:
    """Return the statement that gives a loaded table its final options; None if it has them
    already."""
    if not thing.schemafull and thing.on_change is None:
        return None
    return tree.DefineTable(
        thing.name, OVERWRITE, thing.schemafull, thing.comment, _on_change(thing.on_change)
    )


def _on_change(told: OnChange | None) -> tree.OnChange | None:
    return None if told is None else tree.OnChange(told.topic, told.fields)


def field(of: Table, thing: Field) -> tree.DefineField:
    """Return a field. Loaded records are not checked against it: they may have violated it
    before."""
    return tree.DefineField(
        thing.path,
        of.name,
        parse_type(thing.type),
        SKIP,
        _expression(thing.default),
        _expression(thing.value),
        _expression(thing.assertion),
        thing.readonly,
        thing.comment,
        unchecked=True,
    )


def _expression(text: str | None) -> tree.Expression | None:
    return None if text is None else parse_expression(text)


def index(of: Table, thing: Index) -> tree.DefineIndex:
    """Return the statement that declares an index."""
    return tree.DefineIndex(thing.name, of.name, thing.paths, thing.unique, SKIP, thing.comment)


# --- functions ------------------------------------------------------------------------------------


def functions(things: Iterable[Function]) -> Iterator[tree.DefineFunction]:
    """Yield functions, each after the functions that it calls.

    Functions that call each other are first declared with an empty body, then overwritten.
    """
    waiting = {one.name: _function(one) for one in things}
    order: TopologicalSorter[str] = TopologicalSorter()
    for one in waiting.values():
        order.add(one.name, *(called(one.body) - {one.name}) & waiting.keys())
    with suppress(CycleError):
        order.prepare()
    while ready := order.get_ready():
        for name in sorted(ready):
            yield waiting.pop(name)
        order.done(*ready)
    for one in waiting.values():
        yield tree.DefineFunction(one.name, one.parameters, tree.Constant(None), exists=SKIP)
    for one in waiting.values():
        yield tree.DefineFunction(
            one.name, one.parameters, one.body, one.returns, OVERWRITE, one.comment
        )


def _function(thing: Function) -> tree.DefineFunction:
    return tree.DefineFunction(
        thing.name,
        tuple(tree.FunctionParameter(name, parse_type(of)) for name, of in thing.parameters),
        parse_expression(thing.body),
        None if thing.returns is None else parse_type(thing.returns),
        SKIP,
        thing.comment,
    )


# --- topics and spaces ----------------------------------------------------------------------------


def topic(thing: Topic) -> tree.DefineTopic:
    """Return a topic for loading, without bounds: no message is refused, trimmed or
    deduplicated."""
    return tree.DefineTopic(thing.name, SKIP, comment=thing.comment)


def topic_as_it_is(thing: Topic, *, bounded: bool) -> tree.DefineTopic | None:
    """Return the statement that gives a loaded topic its final options; None if it has them
    already.

    :param bounded: False if BYTES is smaller than the newest message: the bound would be refused
    """
    made = tree.DefineTopic(
        thing.name,
        OVERWRITE,
        _span(thing.keep_us),
        thing.max_bytes if bounded else None,
        None if thing.largest == limits.MESSAGE_BYTES else thing.largest,
        _span(thing.dedup_us),
        thing.full,
        thing.comment,
    )
    return None if made == tree.DefineTopic(thing.name, OVERWRITE, comment=thing.comment) else made


def reader(of: Topic, name: str, position: int) -> tree.DefineReader:
    """Return a reader whose cursor is `position`, counted in the messages of the script."""
    return tree.DefineReader(name, of.name, SKIP, _after(position))


def group(of: Topic, thing: Group, position: int) -> tree.DefineGroup:
    """Return a group whose cursor is `position`, counted in the messages of the script."""
    return tree.DefineGroup(
        thing.name,
        of.name,
        timedelta(microseconds=thing.deadline_us),
        SKIP,
        thing.in_flight,
        thing.deliveries,
        thing.dead_letter,
        tuple(timedelta(microseconds=step) for step in thing.backoff_us),
        thing.ordered,
        _after(position),
    )


def _after(position: int) -> tree.Position:
    return tree.Position("NUMBER", tree.Constant(position))


def space(thing: Space) -> tree.DefineSpace:
    """Return a cache space for loading: its keys do not expire."""
    return tree.DefineSpace(thing.name, SKIP, comment=thing.comment)


def space_as_it_is(thing: Space) -> tree.DefineSpace | None:
    """Return the statement that gives a loaded space its final options; None if it has them
    already."""
    if thing.expire_us is None:
        return None
    return tree.DefineSpace(thing.name, OVERWRITE, _span(thing.expire_us), thing.comment)


def _span(span_us: int | None) -> timedelta | None:
    return None if span_us is None else span_us * MICROSECOND


# --- users ----------------------------------------------------------------------------------------


def user(thing: User) -> tree.DefineUser:
    """Return a user, with the hash of its password."""
    space = None
    if thing.space is not None:
        names = tuple(thing.space.split("."))
        space = tree.NounRef("NAMESPACE" if len(names) == 1 else "DATABASE", names)
    return tree.DefineUser(thing.name, thing.role, None, thing.passhash, SKIP, thing.comment, space)


def grants(thing: User, held: Iterable[Grant]) -> Iterator[tree.Grant]:
    """Yield a user's grants in the order in which they were made, one statement for each
    securable."""
    verbs: dict[Securable, list[Verb]] = {}
    for one in held:
        if one.noun.kind is SecurableKind.VAULT:
            continue  # scripts don't carry vaults
        verbs.setdefault(one.noun, []).append(one.verb)
    for noun, some in verbs.items():
        names = tuple(noun.path.split(".")) if noun.path else ()
        words = tuple(verb.value for verb in some)
        yield tree.Grant(words, tree.NounRef(noun.kind.value, names), thing.name)
