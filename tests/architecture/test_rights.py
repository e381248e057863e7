"""Only `actors/rights.py` judges, and what a name stands for is learned from there alone.

Read off the calls of the rooms that answer callers. What works without a caller, the node itself,
its sweepers and builders, is named below with the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Source, called, files

GATE = "actors/rights.py"
ROOMS = ("actors", "surfaces")

JUDGES = re.compile(r"(.*\.)?NotAllowed")
FINDS = re.compile(
    r"""
      catalog\.(find_)?(namespace|database|table|space)s?
    | (topics\.|catalog\.)?(find_)?topic
    | (topics\.)?each_topic
    | functions\.(find|each)
    | vaults\.(find|each)
    | users\.(get|find|everyone)
    | replicas\.(find|every)
    | revocations\.(find|every)
    """,
    re.VERBOSE,
)
READS = re.compile(
    r"(.*\.)?(tx|transaction)\.(get|scan|rows|hint)|(.*\.)?_?state\.(engine|flight)\.\w+"
)

WITHOUT_A_CALLER = {
    "actors/sessions.py": r"users\.find",  # who a caller is comes before what it may do
    "actors/sign_ins.py": r"users\..*",  # likewise
    "actors/node.py": r"users\.everyone",  # whether a store has an owner yet
    # who is a node comes before all; and of a node, by the certificate it has shown
    "actors/cluster/membership.py": r"(replicas|revocations)\.every|replicas\.find",
    "actors/cluster/role.py": r"replicas\.every",  # its own row, and where others are
    "actors/cluster/identity.py": r"replicas\.every",  # its own row
    "actors/cluster/state_check.py": r".*\.engine\.stored_bytes",  # how large it is, for nobody
    "actors/restores.py": r"vaults\.each",  # of a database that it drops, for nobody
    "actors/spaces/sweeping.py": r"catalog\..*",  # it looks after keys, for nobody
    "actors/topics/due.py": r"catalog\..*|find_topic",  # a topic's actor likewise
    "actors/topics/service.py": r"catalog\..*|each_topic",  # what starts them
    "actors/topics/waiting.py": r"find_topic",  # what its takers wait for, for the same
}
INSIDE = {
    # OWN, judged
    "actors/backups/scripts.py": r"catalog\..*|(functions|vaults|topics)\.each.*|users\.everyone",
    "actors/scripts/ddl.py": r"catalog\.(databases|tables|spaces)|functions\.each",
    "actors/scripts/topics.py": r"topics\.each_topic",  # likewise
    "actors/scripts/vaults.py": r"vaults\.each",  # of a database that is dropped, OWN, judged
    "actors/scripts/functions.py": r"catalog\.tables|functions\.each",  # who calls one
    "actors/scripts/cluster.py": r"(replicas|revocations)\.every",  # of the store, INFO or OWN
    "actors/scripts/node.py": r"replicas\.every",  # INFO on the node
}
"""Listings of a place that was handed over by the gate, which judged INFO on it."""


def violations(source: Source) -> list[str]:
    """Calls and comparisons of a file by which it judges, or reads what nobody has judged."""
    if source.path == GATE:
        return []
    excepted = [
        re.compile(table[source.path])
        for table in (WITHOUT_A_CALLER, INSIDE)
        if source.path in table
    ]
    found = []
    for line, name in called(source):
        if any(one.fullmatch(name) for one in excepted):
            continue
        for what, pattern in (("judges", JUDGES), ("looks up", FINDS), ("reads", READS)):
            if pattern.fullmatch(name):
                found.append(f"{source.path}:{line} {what} past the gate: {name}")
    found += [f"{source.path}:{line} judges by a role" for line in _by_role(source)]
    return found


def _by_role(source: Source) -> Iterator[int]:
    """Lines that compare a role with a word."""
    for node in source.nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = [side for side in sides if not _is_no_word(side)]
            if words and any(
                isinstance(one, ast.Attribute) and one.attr == "role" for one in sides
            ):
                yield node.lineno
        if isinstance(node, ast.Attribute) and node.attr == "owns_store":
            yield node.lineno


def _is_no_word(side: ast.expr) -> bool:
    """Another attribute, or None: whether it is the same role, or given at all."""
    return isinstance(side, ast.Attribute) or (
        isinstance(side, ast.Constant) and side.value is None
    )


def test_nobody_but_the_gate_judges_or_looks_up() -> None:
    found = [line for source in files(*ROOMS) for line in violations(source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("actors/scripts/planted.py", "raise NotAllowed('no', needs='READ')"),
        ("surfaces/http/planted.py", "if who.role == 'owner' and who.space is None: pass"),
        ("actors/planted.py", "may = user.role in ('owner', 'editor')"),
        ("actors/planted.py", "may = user.owns_store"),
        ("actors/scripts/planted.py", "catalog.table(run.transaction, database, name)"),
        ("actors/scripts/planted.py", "catalog.find_table(tx, database, name)"),
        ("actors/scripts/planted.py", "catalog.namespaces(tx)"),
        ("actors/scripts/planted.py", "topics.topic(tx, database, name)"),
        ("actors/scripts/calling.py", "functions.find(tx, database, name)"),
        ("actors/scripts/planted.py", "functions.each(tx, database)"),
        ("actors/scripts/topics.py", "find_topic(tx, database, name)"),
        ("actors/scripts/users.py", "users.get(run.transaction, name)"),
        ("actors/scripts/cluster.py", "replicas.find(run.transaction, name)"),
        ("actors/scripts/planted.py", "revocations.every(run.transaction)"),
        ("actors/scripts/planted.py", "run.transaction.get(key)"),
        ("actors/scripts/reading.py", "tx.get(keys.record(prefix, id))"),
        ("actors/scripts/ways.py", "self._run.transaction.scan(start, end)"),
        ("actors/topics/metrics.py", "tx.rows(start, end, tick)"),
        ("surfaces/http/planted.py", "node.committer.ledger.state.engine.get(key)"),
        ("actors/scripts/ddl.py", "catalog.table(tx, database, name)"),
        ("actors/node.py", "users.get(tx, name)"),
    ],
)
def test_planted_way_past_the_gate_is_caught(path: str, text: str) -> None:
    assert len(violations(Source(path, text))) == 1
    assert violations(Source(GATE, text)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("actors/scripts/planted.py", "run.table(name, READ)"),
        ("actors/scripts/planted.py", "records.read(run.transaction, table, id)"),
        ("actors/scripts/ddl.py", "catalog.tables(tx, database)"),
        ("actors/scripts/planted.py", "catalog.index(table, name)"),
        ("actors/sessions.py", "same = user.role == session.caller.role"),
        ("actors/scripts/planted.py", "except NotAllowed: pass"),
        ("actors/scripts/planted.py", "rights.topics(tx, caller, READ, tick)"),
    ],
)
def test_honest_line_is_not(path: str, text: str) -> None:
    text = f"try: pass\n{text}" if text.startswith("except") else text
    assert violations(Source(path, text)) == []
