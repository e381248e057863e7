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
from language.printing import print_path
from language.search.nodes import filter_nodes
from protocol import limits
from protocol.rights import Grant, Securable, SecurableKind, Verb
from protocol.values import MICROSECOND
from storage.catalog.analyzers import Analyzer
from storage.catalog.functions import Function
from storage.catalog.on_change import OnChange
from storage.catalog.places import Database, Namespace
from storage.catalog.spaces import Space
from storage.catalog.tables import Field, Table
from storage.catalog.users import User
from storage.indexes.entries import Index
from storage.indexes.text_options import TextOptions
from storage.indexes.vector_options import VectorOptions
from storage.topics.groups import Group
from storage.topics.topics import Topic

SKIP: Final = tree.Exists.SKIP
OVERWRITE: Final = tree.Exists.OVERWRITE


def namespace(declared: Namespace) -> tree.DefineNamespace:
    """Return the statement that declares a namespace."""
    return tree.DefineNamespace(declared.name, SKIP, declared.comment)


def database(declared: Database) -> tree.DefineDatabase:
    """Return the statement that declares a database."""
    return tree.DefineDatabase(declared.namespace.name, declared.name, SKIP, declared.comment)


# --- tables ---------------------------------------------------------------------------------------


def table(declared: Table) -> tree.DefineTable:
    """Return a table for loading: it accepts any record and publishes no change."""
    return tree.DefineTable(declared.name, SKIP, comment=declared.comment)


def table_as_it_is(declared: Table) -> tree.DefineTable | None:
    """Return the statement that gives a loaded table its final options; None if it has them
    already."""
    if not declared.schemafull and declared.on_change is None:
        return None
    return tree.DefineTable(
        declared.name,
        OVERWRITE,
        declared.schemafull,
        declared.comment,
        _on_change(declared.on_change),
    )


def _on_change(told: OnChange | None) -> tree.OnChange | None:
    return None if told is None else tree.OnChange(told.topic, told.fields)


def field(of: Table, declared: Field) -> tree.DefineField:
    """Return a field. Loaded records are not checked against it: they may have violated it
    before."""
    return tree.DefineField(
        declared.path,
        of.name,
        parse_type(declared.type),
        SKIP,
        _expression(declared.default),
        _expression(declared.value),
        _expression(declared.assertion),
        declared.readonly,
        declared.comment,
        unchecked=True,
    )


def _expression(text: str | None) -> tree.Expression | None:
    return None if text is None else parse_expression(text)


def index(of: Table, declared: Index) -> tree.DefineIndex:
    """Return the statement that declares an index."""
    return tree.DefineIndex(
        declared.name,
        of.name,
        declared.paths,
        declared.unique,
        SKIP,
        declared.comment,
        text=None if declared.text is None else _full_text(declared, declared.text),
        vector=None if declared.vector is None else _vector(declared.vector),
    )


def _vector(options: VectorOptions) -> tree.VectorIndex:
    return tree.VectorIndex(options.dimension, options.distance, options.type, options.recall)


def _full_text(of: Index, text: TextOptions) -> tree.FullText:
    boosts = tuple(zip(map(print_path, of.paths), text.boosts, strict=False))
    return tree.FullText(text.analyzer, text.saturation, text.length, boosts)


# --- analyzers and functions ----------------------------------------------------------------------


def analyzer(declared: Analyzer) -> tree.DefineAnalyzer:
    """Return the statement that declares an analyzer."""
    return tree.DefineAnalyzer(
        declared.name, declared.tokenizers, filter_nodes(declared.filters), SKIP, declared.comment
    )


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


def _function(declared: Function) -> tree.DefineFunction:
    return tree.DefineFunction(
        declared.name,
        tuple(tree.FunctionParameter(name, parse_type(of)) for name, of in declared.parameters),
        parse_expression(declared.body),
        None if declared.returns is None else parse_type(declared.returns),
        SKIP,
        declared.comment,
    )


# --- topics and spaces ----------------------------------------------------------------------------


def topic(declared: Topic) -> tree.DefineTopic:
    """Return a topic for loading, without bounds: no message is refused, trimmed or
    deduplicated."""
    return tree.DefineTopic(declared.name, SKIP, comment=declared.comment)


def topic_as_it_is(declared: Topic, *, bounded: bool) -> tree.DefineTopic | None:
    """Return the statement that gives a loaded topic its final options; None if it has them
    already.

    :param bounded: False if BYTES is smaller than the newest message: the bound would be refused
    """
    made = tree.DefineTopic(
        declared.name,
        OVERWRITE,
        _span(declared.keep_us),
        declared.max_bytes if bounded else None,
        None if declared.largest == limits.MESSAGE_BYTES else declared.largest,
        _span(declared.dedup_us),
        declared.full,
        declared.comment,
    )
    return (
        None
        if made == tree.DefineTopic(declared.name, OVERWRITE, comment=declared.comment)
        else made
    )


def reader(of: Topic, name: str, position: int) -> tree.DefineReader:
    """Return a reader whose cursor is `position`, counted in the messages of the script."""
    return tree.DefineReader(name, of.name, SKIP, _after(position))


def group(of: Topic, declared: Group, position: int) -> tree.DefineGroup:
    """Return a group whose cursor is `position`, counted in the messages of the script."""
    return tree.DefineGroup(
        declared.name,
        of.name,
        timedelta(microseconds=declared.deadline_us),
        SKIP,
        declared.in_flight,
        declared.deliveries,
        declared.dead_letter,
        tuple(timedelta(microseconds=step) for step in declared.backoff_us),
        declared.ordered,
        _after(position),
    )


def _after(position: int) -> tree.Position:
    return tree.Position("NUMBER", tree.Constant(position))


def space(declared: Space) -> tree.DefineSpace:
    """Return a cache space for loading: its keys do not expire."""
    return tree.DefineSpace(declared.name, SKIP, comment=declared.comment)


def space_as_it_is(declared: Space) -> tree.DefineSpace | None:
    """Return the statement that gives a loaded space its final options; None if it has them
    already."""
    if declared.expire_us is None:
        return None
    return tree.DefineSpace(declared.name, OVERWRITE, _span(declared.expire_us), declared.comment)


def _span(span_us: int | None) -> timedelta | None:
    return None if span_us is None else span_us * MICROSECOND


# --- users ----------------------------------------------------------------------------------------


def user(declared: User) -> tree.DefineUser:
    """Return a user, with the hash of its password."""
    space = None
    if declared.space is not None:
        names = tuple(declared.space.split("."))
        space = tree.SecurableRef("NAMESPACE" if len(names) == 1 else "DATABASE", names)
    return tree.DefineUser(
        declared.name, declared.role, None, declared.passhash, SKIP, declared.comment, space
    )


def grants(declared: User, held: Iterable[Grant]) -> Iterator[tree.Grant]:
    """Yield a user's grants in the order in which they were made, one statement for each
    securable."""
    verbs: dict[Securable, list[Verb]] = {}
    for one in held:
        if one.securable.kind is SecurableKind.VAULT:
            continue  # scripts don't carry vaults
        verbs.setdefault(one.securable, []).append(one.verb)
    for securable, some in verbs.items():
        names = tuple(securable.path.split(".")) if securable.path else ()
        words = tuple(verb.value for verb in some)
        yield tree.Grant(words, tree.SecurableRef(securable.kind.value, names), declared.name)
