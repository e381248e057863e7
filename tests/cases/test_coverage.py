"""Every statement, clause, type, operator, function and refusal of the language stands in a case.

What must be covered is read from where it is defined: the nodes of the tree and their fields, the
words of the grammar, the table of functions, the catalogue of errors. What no case file can show
is named here, with the reason.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import pytest

from language import tree
from language.functions import TABLE
from language.keywords import KEYWORDS, RESERVED, STATEMENTS
from language.lexer import NAME, all_tokens
from language.parser import parse
from protocol.errors import CATALOGUE, Refusal
from protocol.values import type_name
from tests.cases.format import Case, CaseFile, read
from tests.cases.test_cases import FILES

NODES: Final = {
    name: found
    for name, found in vars(tree).items()
    if dataclasses.is_dataclass(found) and name != "Script"
}
ELSEWHERE: Final = {
    "AnswerTooLarge": "of the wire: tests/surfaces/wire",
    "BackupCorrupt": "of backups, to come",
    "BackupCut": "of backups, to come",
    "BackupExists": "of a folder: tests/actors/backups/test_taking.py",
    "RestoreTargetExists": "of backups, to come",
    "LogPruned": "of a log that was pruned: tests/actors/backups/test_taking.py",
    "WrongKey": "of sealed files: tests/actors/backups/test_sealed.py",
    "AuditRefused": "of a full disk: tests/actors/test_vault_trails.py",
    "NotEnoughReplicas": "of clusters, to come",
    "NotHeldHere": "of clusters, to come",
    "NotAllowed": "of grants, to come",
    "Busy": "of a full node: tests/actors, tests/surfaces",
    "Draining": "of a node that stops: tests/reliability/test_drain.py",
    "NotWritable": "of a node without the role: tests/actors/test_roles.py",
    "DiskFull": "of the disk: tests/reliability/test_disk_full.py",
    "UnknownOutcome": "of the log's end: tests/reliability/test_sync_failure.py",
    "Failed": "of a bug: tests/surfaces",
    "Cancelled": "of another caller: tests/actors/scripts/test_running.py",
    "Conflict": "of other writers: tests/actors/scripts/test_transactions.py",
    "RequestTimeout": "of HTTP: tests/surfaces/http",
    "Diverged": "of feeds: tests/actors/test_feeds.py",
    "Stranded": "of a cluster: tests/actors/test_following.py",
    "TooSlow": "of feeds: tests/actors/test_feeds.py",
    "UpgradeRequired": "of HTTP: tests/surfaces/http/test_sockets.py",
    "ForeignOrigin": "of HTTP: tests/surfaces/http/test_sessions.py",
    "HeadTooLarge": "of HTTP: tests/surfaces/http",
    "MisdirectedRequest": "of HTTP: tests/surfaces/http",
    "NoKey": "of HTTP: tests/surfaces/http/test_spaces.py; GET in a script answers NONE",
    "NotASpace": "of HTTP: tests/surfaces/http/test_spaces.py",
    "NoSuchRoute": "of HTTP: tests/surfaces/http",
    "VersionNotSupported": "of the wire: tests/surfaces/wire",
    "WrongMethod": "of HTTP: tests/surfaces/http",
    "SessionEnded": "of sessions: tests/actors/test_sessions.py",
    "SignInRefused": "of sessions: tests/actors/test_sessions.py",
    "TooManyTries": "of sessions: tests/actors/test_sign_in_throttle.py",
}
"""Errors that no script on a node of its own can be refused with, and where they are shown."""


@cache
def files() -> list[CaseFile]:
    """All case files."""
    return [read(path) for path in FILES]


def cases() -> Iterator[Case]:
    """All cases."""
    for file in files():
        yield from file.cases


def texts() -> Iterator[str]:
    """The scripts of all cases and set-ups."""
    for file in files():
        yield file.setup
        yield from (case.script for case in file.cases)


@cache
def trees() -> list[tree.Script]:
    """Those that parse."""
    found = []
    for text in texts():
        try:
            found.append(parse(text))
        except Refusal:
            continue
    return found


def nodes(value: Any) -> Iterator[Any]:
    """Every node of a tree, and what its fields hold."""
    yield value
    if type(value) in NODES.values() or isinstance(value, tree.Script):
        for field in dataclasses.fields(value):
            yield from nodes(getattr(value, field.name))
    elif isinstance(value, tuple):
        for part in value:
            yield from nodes(part)


@cache
def seen() -> dict[str, list[Any]]:
    """The nodes in all cases, by the names of their classes."""
    found: dict[str, list[Any]] = {name: [] for name in NODES}
    for script in trees():
        for node in nodes(script):
            if type(node).__name__ in found:
                found[type(node).__name__].append(node)
    return found


def choices(hint: Any) -> list[Any]:
    """The values that a field of this type may take, where they are few and named."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)
    if hint is bool:
        return [False, True]
    if get_origin(hint) is tuple:
        return []
    return [choice for part in get_args(hint) for choice in choices(part)]


def missing(wanted: set[str], found: set[str]) -> list[str]:
    """What no case shows."""
    return sorted(wanted - found)


def clauses(name: str, found: list[Any]) -> Iterator[str]:
    """The fields of a node that no case sets, or that no case leaves out, and the words among which
    one may choose that no case chooses."""
    kind = NODES[name]
    hints = get_type_hints(kind, {**vars(sys.modules[kind.__module__]), **vars(tree)})
    for field in dataclasses.fields(kind):
        values = [getattr(node, field.name) for node in found]
        if not field.compare:
            continue
        for choice in choices(hints[field.name]):
            if not any(value == choice and type(value) is type(choice) for value in values):
                yield f"{name}.{field.name} = {getattr(choice, 'value', choice)!r}"
        if field.default is None or field.default == ():
            if all(value == field.default for value in values):
                yield f"{name}.{field.name}"
            if all(value != field.default for value in values):
                yield f"{name} without {field.name}"


def test_every_node_of_the_tree_stands_in_a_case() -> None:
    assert missing(set(NODES), {name for name, found in seen().items() if found}) == []


def test_every_clause_stands_in_a_case_and_is_left_out_in_one() -> None:
    lacking = [gap for name, found in seen().items() for gap in clauses(name, found)]
    assert lacking == []


def test_every_word_of_the_language_stands_in_a_case() -> None:
    found: set[str] = set()
    for text in texts():
        tokens = all_tokens(text)
        words = zip(tokens.kinds, tokens.texts, strict=True)
        found |= {word.upper() for kind, word in words if kind == NAME}
    assert missing(set(STATEMENTS | KEYWORDS | RESERVED), found) == []


def test_every_function_stands_in_a_case() -> None:
    assert missing(set(TABLE), {node.name for node in seen()["Call"]}) == []


def test_every_type_of_values_is_answered_in_a_case() -> None:
    script = [
        parse(f"RETURN {line[2:]}")
        for case in cases()
        for line in case.expected
        if line[0] == "=" and "…" not in line
    ]
    found = {
        type_name(node.value)
        for one in script
        for node in nodes(one)
        if isinstance(node, tree.Constant)
    }
    for kind, word in (
        (tree.Array, "array"),
        (tree.Object, "object"),
        (tree.RecordLiteral, "record"),
    ):
        if any(isinstance(node, kind) for one in script for node in nodes(one)):
            found.add(word)
    wanted = set(get_args(tree.Kind)) - {"any", "number"} | {"none", "null", "array", "record"}
    assert missing(wanted, found) == []


def test_every_refusal_stands_in_a_case_or_is_shown_elsewhere() -> None:
    found = {line[2:].split(":")[0] for case in cases() for line in case.expected if line[0] == "!"}
    assert missing(set(CATALOGUE) - set(ELSEWHERE), found) == []
    assert sorted(found & set(ELSEWHERE)) == [], "a case shows it after all"
    assert missing(set(ELSEWHERE), set(CATALOGUE)) == []


@pytest.mark.parametrize("name", ["Select", "Insert"])
def test_a_clause_that_no_case_shows_is_found(name: str) -> None:
    found = seen()[name]
    field = "split" if name == "Select" else "on_duplicate"
    without = [node for node in found if getattr(node, field) is None]
    assert f"{name}.{field}" in list(clauses(name, without))
    assert list(clauses(name, found)) == []
