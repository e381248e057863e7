"""Command line of `storenode backup --at host:port <file>`: a snapshot of a running node. Its flag
form is `storenode --at host:port --backup <file>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from surfaces.command import flags
from surfaces.command.flags import Flag, UsageRefused
from surfaces.shell.arguments import ACCESS_FLAGS, ENVIRONMENT, Help, NodeAccess, access
from surfaces.shell.outcomes import EXIT_CODES

AT: Final = "--at"
FILE: Final = "--backup"
OWN_FLAGS: Final = (
    Flag(AT, "<host:port>", "address of the node's wire port"),
    Flag(FILE, "<file>", "file for the snapshot; it must not exist"),
    Flag("--snapshot", None, "the only form, so optional"),
    *ACCESS_FLAGS,
    Flag("--help", None, "show this help"),
)
REFUSED_FLAGS: Final = ("--from", "--dump")
"""Flags of backups that a process takes of a store it opens itself."""
WORD: Final = "backup"
USAGE: Final = """\
storenode backup --at <host:port> <file>     write a snapshot of a running node
storenode --at <host:port> --backup <file>   likewise
"""


@dataclass(frozen=True, slots=True)
class BackUp:
    """Take a snapshot of a node into a file."""

    access: NodeAccess
    path: str


def understand(words: Sequence[str], environment: Mapping[str, str]) -> BackUp | Help:
    """Parse the command line.

    :raises UsageRefused: contradicting or missing flags
    """
    for refused in REFUSED_FLAGS:
        if any(word.partition("=")[0] == refused for word in words):
            raise UsageRefused(
                f"{refused} contradicts {AT}: a running node gives a snapshot; for its log or"
                " script use GET /backup, or BACKUP … TO 'name'"
            )
    named = words[0] == WORD
    given = flags.take_apart(words[1:] if named else words, OWN_FLAGS, None)
    if "--help" in given:
        return Help(flags.table_text(USAGE, OWN_FLAGS, ENVIRONMENT, EXIT_CODES))
    *surplus, path = [*given.positions, given.get(FILE)]
    if named and surplus and path is None:
        path = surplus.pop()
    if surplus:
        raise UsageRefused(
            f"{surplus[0]} contradicts {AT}: give no directory, the node has its own"
        )
    address = given.get(AT)
    if not address or not path:
        raise UsageRefused(f"expected a node and a file: {USAGE.partition('  ')[0]}")
    return BackUp(access(given, address, environment), path)
