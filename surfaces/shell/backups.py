"""Command line of `storenode --at host:port --backup <file>`: a snapshot of a running node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from surfaces.command import flags
from surfaces.command.flags import Flag, UsageRefused
from surfaces.shell.arguments import ACCESS_FLAGS, ENVIRONMENT, Access, Help, access
from surfaces.shell.outcomes import EXIT_CODES

AT: Final = "--at"
OWN_FLAGS: Final = (
    Flag(AT, "<host:port>", "the node, where it serves the wire"),
    Flag("--backup", "<file>", "where the snapshot goes; nothing is replaced"),
    Flag("--snapshot", None, "a snapshot, by its own name: it is always one"),
    *ACCESS_FLAGS,
    Flag("--help", None, "this text"),
)
REFUSED_FLAGS: Final = ("--from", "--dump")
"""Flags of backups that a process takes of a store it opens itself."""
USAGE: Final = "storenode --at <host:port> --backup <file>   a snapshot of a node that runs\n"


@dataclass(frozen=True, slots=True)
class BackUp:
    """Take a snapshot of a node into a file."""

    access: Access
    path: str


def understand(words: Sequence[str], environment: Mapping[str, str]) -> BackUp | Help:
    """Parse the command line.

    :raises UsageRefused: contradicting or missing flags
    """
    for refused in REFUSED_FLAGS:
        if any(word.partition("=")[0] == refused for word in words):
            raise UsageRefused(
                f"{refused} contradicts {AT}: of a node that runs only a snapshot is taken; its"
                " log and its script come by GET /backup, or by BACKUP … TO 'name'"
            )
    given = flags.take_apart(words, OWN_FLAGS, None)
    if "--help" in given:
        return Help(flags.table_text(USAGE, OWN_FLAGS, ENVIRONMENT, EXIT_CODES))
    if given.positions:
        raise UsageRefused(f"{given.positions[0]} contradicts {AT}: the node has its own directory")
    address, path = given.get(AT), given.get("--backup")
    if not address or not path:
        raise UsageRefused(f"a node and a file are wanted: {USAGE.strip()}")
    return BackUp(access(given, address, environment), path)
