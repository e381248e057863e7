"""What is kept in memory by the id of a declaration is of that declaration alone.

An id is given by one function, which gives none that was rolled back (`storage/txn/ids.py`). What
only a leader keeps by ids is dropped when it leads no more, since another leader may give such an
id. Every other map by numbers is named here with the reason why it never outlives what it names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import Source, called, files

COUNTERS = re.compile(r"(keys\.)?[A-Z_]*_IDS")
HOMES = ("storage/formats/keys.py", "storage/txn/ids.py", "storage/backups/place_copy.py")
"""Where counters of ids are named otherwise: they are defined, given by, and put into a backup."""
GIVES = "next_id"

BY_NUMBER = re.compile(r"(Ordered|default)?[dD]ict\[(int|tuple\[int\b.*?\]),|set\[int\]")
"""Annotations of what is kept by numbers."""

KEPT = {
    # Dropped at the roll back that takes the lead: `Committer.on_lead_lost`.
    "actors/spaces/sweeping.py sweeps": "ends with the lead",
    "actors/topics/schedules.py _schedules": "ends with the lead",
    "actors/topics/schedules.py _refusals": "ends with the lead",
    "actors/topics/schedules.py _worked_us": "ends with the lead",
    "actors/vaults/keyring.py _open": "sealed with the lead, opened only by what was released",
    "actors/vaults/keyring.py _proven": "goes when anything is sealed; compared with what is read",
    "actors/vaults/keyring.py keys": "goes with what is open; compared with what is stored",
    "actors/vaults/actor.py _ends": "ends with the lead",
    "actors/vaults/actor.py _seals": "a count that only grows, compared over one request",
    "actors/vaults/actor.py _proven": "of a session; how long a wrong passphrase rests, no more",
    # Of something shorter than a declaration.
    "actors/rights.py _at": "of one reading of a user's row, which is compared by identity",
    "actors/topics/due.py _refused": "goes with the topic's actor",
    "actors/topics/waiting.py _lines": "of who waits, who looks again by name when woken",
    "actors/topics/waiting.py _readers": "of who waits, who looks again by name when woken",
    "actors/vaults/trail.py _moved": "said in a log line with the path it had, and forgotten",
    "actors/scripts/spaces.py _soonest": "of one transaction",
    # By numbers that are no ids.
    "actors/backups/files.py _kept": "file descriptors",
    "actors/execution/blocking.py _waits": "sequences",
    "actors/feeds/views.py _encoded": "sequences of what was released",
    "actors/scripts/access_paths.py _known": "nodes of a plan",
    "actors/scripts/plans.py _made": "nodes of a plan",
    "actors/scripts/plans.py _steps": "nodes of a plan",
    "actors/scripts/plans.py _redacted": "places in a text",
    "actors/scripts/script_state.py _before": "variables of a script",
    "actors/scripts/script_state.py _held": "variables of a script",
    "actors/scripts/script_state.py _subqueries": "nodes of a plan",
}


def kept_by_number(source: Source) -> Iterator[str]:
    """Attributes of a file that are maps or sets by numbers."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AnnAssign) and BY_NUMBER.match(ast.unparse(node.annotation)):
            target = node.target
            if isinstance(target, ast.Attribute):
                yield f"{source.path} {target.attr}"
            elif isinstance(target, ast.Name) and node.col_offset == 4 and _is_field(source, node):
                yield f"{source.path} {target.id}"


def _is_field(source: Source, found: ast.AnnAssign) -> bool:
    classes = (node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef))
    return any(found in node.body for node in classes)


def violations(source: Source) -> list[str]:
    """Counters of ids that are used past the function that gives them."""
    if source.path in HOMES:
        return []
    given = {
        id(name)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(GIVES)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
        for name in ast.walk(argument)
    }
    return [
        f"{source.path}:{node.lineno} uses {ast.unparse(node)}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and COUNTERS.fullmatch(ast.unparse(node))
        and id(node) not in given
    ]


def test_ids_are_given_by_one_function() -> None:
    found = [line for source in files("storage", "actors") for line in violations(source)]
    assert not found, "\n".join(found)


def test_what_is_kept_by_numbers_is_named_with_its_reason() -> None:
    found = {each for source in files("actors") for each in kept_by_number(source)}
    assert found == KEPT.keys(), "drop it when this node leads no more, or say why it is safe"


def test_leaders_drop_what_they_keep_by_ids() -> None:
    for source in files("actors/spaces", "actors/topics", "actors/vaults"):
        ends = any(name.endswith("on_lead_lost.append") for _, name in called(source))
        expected = ("spaces/sweeping.py", "topics/service.py", "vaults/service.py")
        assert ends is source.path.endswith(expected), source.path


@pytest.mark.parametrize(
    "text", ["tx.put(keys.TABLE_IDS, number)", "id = keys.unpack_counter(tx.get(keys.SPACE_IDS))"]
)
def test_a_planted_id_of_its_own_is_caught(text: str) -> None:
    assert len(violations(Source("storage/planted.py", text))) == 1


@pytest.mark.parametrize(
    "kind", ["dict[int, Topic]", "OrderedDict[tuple[int, str], None]", "set[int]"]
)
def test_a_planted_map_is_caught(kind: str) -> None:
    text = f"class A:\n    def __init__(self) -> None:\n        self._known: {kind} = x"
    assert list(kept_by_number(Source("actors/planted.py", text))) == ["actors/planted.py _known"]
