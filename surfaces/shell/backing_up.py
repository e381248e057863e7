"""Snapshot of a running node, written to a file of this machine."""

from __future__ import annotations

import asyncio
import sys

from storeclient import Backup, OutcomeUnknown, StoreError
from surfaces.command.console import Console
from surfaces.command.progress import shown
from surfaces.shell.backups import BackUp
from surfaces.shell.connecting import client_of
from surfaces.shell.outcomes import INTERRUPTED, REFUSED, UNKNOWN, CommandEnded
from surfaces.shell.refusals import explain
from surfaces.shell.scripts import connect
from surfaces.shell.session import ShellSession
from surfaces.shell.work import handling


async def back_up(asked: BackUp) -> None:
    """Take the snapshot. Progress goes to standard error, the result to standard output.

    :raises Ended: it was refused, the file can't be written, or there was no connection
    """
    client = client_of(asked.access)
    console = Console(_say, sys.stderr.isatty())
    try:
        await connect(ShellSession(lambda _leader: client, _say))
        with shown(f"taking {asked.path}, bytes", console) as report:
            work = asyncio.create_task(client.backup(asked.path, progress=report))
            with handling(work.cancel, work.cancel):
                taken = await work
    except asyncio.CancelledError:
        raise CommandEnded("interrupted; nothing was left behind", INTERRUPTED) from None
    except StoreError as error:
        code = UNKNOWN if isinstance(error, OutcomeUnknown) else REFUSED
        raise CommandEnded(explain(error, ""), code) from error
    except OSError as error:
        # Errors of the client name the file, and have no errno.
        why = f"{asked.path}: {error.strerror}" if error.strerror else str(error)
        raise CommandEnded(why, REFUSED) from error
    finally:
        await client.close()
    sys.stdout.write(_summary(taken))


def _summary(taken: Backup) -> str:
    return f"{taken.path}: {taken.form} of {taken.bytes} bytes, {taken.records} records\n"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
