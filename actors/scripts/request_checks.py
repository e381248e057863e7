"""Checks of a request before its script begins, independent of the script's effect."""

from __future__ import annotations

from collections.abc import Sequence

from language import tree
from protocol import limits
from protocol.errors import BadRequest
from protocol.requests import RunScript


def check_handed_over(script: tree.Script, forms: Sequence[str]) -> None:
    """Check a script whose result is handed over as a file.

    :raises BadRequest: it is no single backup of one of these forms, or has a name for it
    """
    statements = script.statements
    # With TO the backup goes to the backup folder: no file would be left to hand over.
    backup = statements[0] if len(statements) == 1 else None
    if not isinstance(backup, tree.Backup) or backup.form not in forms or backup.to is not None:
        raise BadRequest(
            f"the request must be one statement, BACKUP {' or '.join(forms)}, without TO"
        )


def check_keep(request: RunScript) -> None:
    """Check the requested time to keep a pinned snapshot.

    :raises BadRequest: there is no snapshot to keep, or the time is too long
    """
    most = limits.MOMENT_KEEP_SECONDS
    if request.moment is None:
        raise BadRequest("`keep` needs a moment to keep: name one, or 'new'")
    if not 0 <= (request.keep_us or 0) <= most * 1_000_000:
        raise BadRequest(f"`keep` takes 0 to {most} seconds", limit=most)
