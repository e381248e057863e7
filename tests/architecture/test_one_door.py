"""Everything is changed through one door: nobody else commits, says by whom, or judges whether the
node takes changes.

What stands in that door stands in every path: rights, the statement log, feeds, replication.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import ROOMS, Source, called, files, imported

DOOR = "actors/commits/"

BEHIND_IT = re.compile(
    r"(.*\.)?_?ledger\.(commit|follow|lead|release|mark_durable|settle|roll_back)"
)
"""What only the door does to the ledger."""

ATTRIBUTES = re.compile(r"(.*\.)?Attribution")
HOME = "storage/formats/effects.py"
"""Where it is defined, and read back from a frame."""

JUDGES = re.compile(r"(.*\.)?check_writable")
ASK_BEFORE = {
    "actors/scripts/execution.py": 1,  # a statement that writes, before it reads or waits
    "actors/messages/engine.py": 1,  # one operation of several on messages, likewise
    "actors/vaults/actor.py": 2,  # an unseal and a passphrase, before anything is hashed
    "actors/spaces/request.py": 1,  # one operation of several on keys, so that the others are done
    "actors/cluster/role.py": 1,  # what the door asks of a node in a cluster
}
"""Who asks the door whether it takes changes before it has any, and in how many places."""


SCRIPTS = "actors/scripts/"
BEGINS = re.compile(r".*\b_?(committer|ledger)\.begin\w*")
BEGIN_OF_SCRIPTS = "actors/scripts/execution.py"
"""Where scripts begin their transactions: `reading_beside` gives a statement one of its own, and
has the answer rest on what that has read."""

TICKETS = re.compile(r"(.*\.)?CommitTicket")
MAKE_TICKETS = {
    "actors/commits/tickets.py": 2,
    "actors/scripts/backups.py": 1,  # of all that a backup may hold, whatever was read
}
"""Where a ticket is put together outside storage, and in how many places: a sequence and a
generation that were not noted at once may be of two commits."""


def _of_scripts(source: Source) -> list[str]:
    """The transactions that a statement begins past its script."""
    if not source.path.startswith(SCRIPTS) or source.path == BEGIN_OF_SCRIPTS:
        return []
    return [
        f"{source.path}:{line} begins a transaction that nobody asks whether it was rolled back"
        for line, name in called(source)
        if BEGINS.fullmatch(name)
    ]


def _tickets(source: Source) -> list[str]:
    """Tickets that a file makes of a sequence and a generation."""
    if source.room == "storage":
        return []
    made = [line for line, name in called(source) if TICKETS.fullmatch(name)]
    known = MAKE_TICKETS.get(source.path, 0)
    return [f"{source.path}:{line} makes a ticket of its parts" for line in made[known:]]


def violations(source: Source) -> list[str]:
    """What a file does that is the door's."""
    of_tickets = _tickets(source)
    if of_tickets:
        return of_tickets
    if source.path.startswith(DOOR):
        return []
    found, asks = _of_scripts(source), 0
    for line, name in called(source):
        if BEHIND_IT.fullmatch(name) and not source.path.startswith("storage/"):
            found.append(f"{source.path}:{line} calls {name}")
        if ATTRIBUTES.fullmatch(name) and source.path != HOME:
            found.append(f"{source.path}:{line} says by whom a change is")
        if JUDGES.fullmatch(name):
            asks += 1
            if asks > ASK_BEFORE.get(source.path, 0):
                found.append(f"{source.path}:{line} judges whether the node takes changes")
    found += [
        f"{source.path}:{line} has the role that lets a node take changes"
        for line in _reads_role(source)
    ]
    if source.room != "storage":
        found += [
            f"{source.path}:{line} imports what says by whom a change is"
            for line, module in imported(source)
            if module == "storage.formats.effects" and "Attribution" in _names(source, line)
        ]
    return found


def _names(source: Source, line: int) -> set[str]:
    return {
        alias.name
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.lineno == line
        for alias in node.names
    }


def _reads_role(source: Source) -> list[int]:
    """Where the role is compared by its name, past the door."""
    if source.path == "actors/roles.py":
        return []
    return [
        node.lineno
        for node in source.nodes
        if isinstance(node, ast.Compare) and "WRITABLE" in ast.dump(node)
    ]


def test_nobody_goes_past_the_door() -> None:
    found = [line for source in files(*ROOMS) for line in violations(source)]
    assert not found, "\n".join(found)


def test_who_asks_before_still_does() -> None:
    for source in files("actors"):
        asks = sum(1 for _, name in called(source) if JUDGES.fullmatch(name))
        if not source.path.startswith(DOOR) and source.path != "actors/roles.py":
            assert asks == ASK_BEFORE.get(source.path, 0), source.path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("actors/planted.py", "self._committer.ledger.commit(tx, by)"),
        ("actors/planted.py", "ledger.release(7)"),
        ("surfaces/http/planted.py", "node.committer.ledger.mark_durable(7)"),
        ("actors/planted.py", "by = Attribution(caller.user, 'wire')"),
        ("storage/planted.py", "by = effects.Attribution('ana', 'wire')"),
        ("actors/planted.py", "from storage.formats.effects import SEQUENCE_BYTES, Attribution"),
        ("actors/planted.py", "self._roles.check_writable()"),
        ("actors/spaces/request.py", "committer.check_writable()\ncommitter.check_writable()"),
        ("actors/planted.py", "if WRITABLE in roles.words: pass"),
        ("actors/scripts/planted.py", "with run.services.committer.begin() as tx: pass"),
        ("actors/scripts/planted.py", "tx = self._committer.begin_read_only()"),
        ("actors/planted.py", "ticket = CommitTicket(saw, committer.generation)"),
    ],
)
def test_planted_way_past_it_is_caught(path: str, text: str) -> None:
    assert len(violations(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("actors/commits/planted.py", "self.ledger.commit(tx, Attribution('ana', 'wire'))"),
        ("actors/planted.py", "committer.commit(tx, NODE, reason='due')"),
        ("actors/planted.py", "with committer.begin() as tx:\n    tx.release()"),
        ("actors/spaces/request.py", "committer.check_writable()"),
        ("storage/planted.py", "self.settle()"),
        ("actors/scripts/planted.py", "with run.reading_beside() as tx: pass"),
        ("actors/scripts/execution.py", "return committer.begin_released_read()"),
        ("storage/planted.py", "return CommitTicket(self.saw, self.generation)"),
    ],
)
def test_honest_use_is_not(path: str, text: str) -> None:
    assert violations(Source(path, text)) == []
