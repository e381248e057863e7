"""Outcomes of a client command: exit codes that scripts can rely on."""

from __future__ import annotations

from typing import Final

WELL: Final = 0
REFUSED: Final = 1
"""The node refused a statement or a row. Earlier statements outside a transaction stay committed.
"""
USAGE: Final = 2
"""The command line, or a file it names, is invalid. Nothing was sent."""
NOT_CONNECTED: Final = 3
"""No connection, or the sign-in was refused. Nothing was run."""
UNKNOWN: Final = 4
"""The connection broke while a script ran: it may have run, in part or whole, or not."""
INTERRUPTED: Final = 130
"""Ctrl-C; the running statement was cancelled at the node first."""

EXIT_CODES: Final = """\
exit codes: 0 success, 1 refused, 2 usage, 3 no connection, or sign-in refused,
            4 connection lost during a script, which may have run, 130 Ctrl-C
"""


class CommandEnded(Exception):
    """End of a command. The message is for people, on standard error.

    :ivar code: the exit code
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
