"""Life of a shell, from its first connection to its end."""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import IO

from surfaces.command.console import Console
from surfaces.command.progress import shown
from surfaces.shell import exporting, importing, scripts
from surfaces.shell.arguments import Shell
from surfaces.shell.cells import Harmless, harmless
from surfaces.shell.connecting import client_of, with_password
from surfaces.shell.forms import Csv, JsonLines, OutputFormat, Tables
from surfaces.shell.outcomes import INTERRUPTED, CommandEnded
from surfaces.shell.patience import RetryingClient
from surfaces.shell.scripts import connect
from surfaces.shell.session import ShellSession
from surfaces.shell.transfers import Export, Import


async def shell(
    asked: Shell, script: scripts.ScriptText | None, environment: Mapping[str, str]
) -> None:
    """Run a script; without one, an interactive prompt.

    :raises Ended: it failed
    """
    access = with_password(asked.access)
    session = ShellSession(
        partial(client_of, access, asked.namespace, asked.database), _print_notice, asked.timeout
    )
    form = form_of(asked)
    try:
        if script is None:
            await _prompt(session, form, environment, asked.leader)
            return
        work = asyncio.create_task(scripts.run(session, form, script, asked.leader))

        def end() -> None:
            if not session.interrupt():
                work.cancel()

        with handling(end, end):
            await work
    except asyncio.CancelledError:
        raise CommandEnded(
            "interrupted; the running statement may have been executed", INTERRUPTED
        ) from None
    finally:
        await session.close()


async def transfer(asked: Import | Export, file: IO[bytes] | None) -> None:
    """Import or export, and print a summary.

    :param file: the file to import
    :raises Ended: it is incomplete; the same command resumes it
    """
    client = client_of(asked.access, asked.table.namespace, asked.table.database)
    title = f"{type(asked).__name__.lower()}ing {asked.path}"
    unit = "KiB" if isinstance(asked, Import) else "records"
    console = Console(_say, sys.stderr.isatty())
    try:
        await connect(ShellSession(lambda _leader: client, _print_notice))
        patient = RetryingClient(client, _print_notice)
        with shown(f"{title}, {unit}", console) as report:
            if isinstance(asked, Import):
                assert file is not None
                doing = importing.run(asked, file, patient, report)
            else:
                doing = exporting.run(asked, patient, report)
            work = asyncio.create_task(doing)
            with handling(work.cancel, work.cancel):
                done = await work
        _say(done)
    except asyncio.CancelledError:
        raise CommandEnded(
            "interrupted; run the same command again to continue", INTERRUPTED
        ) from None
    finally:
        await client.close()


def by_hand(asked: Shell) -> bool:
    """Return True if statements are typed interactively."""
    given = asked.command is not None or asked.script is not None
    return not given and sys.stdin.isatty() and sys.stdout.isatty()


async def _prompt(
    session: ShellSession, form: OutputFormat, environment: Mapping[str, str], leader: bool
) -> None:
    from surfaces.shell.prompt import Prompt  # here: a script does not need prompt_toolkit

    prompt = Prompt(session, form, environment)
    connecting = asyncio.create_task(connect(session, leader))
    with handling(connecting.cancel, connecting.cancel):
        prompt.greet(await connecting)
    running = asyncio.create_task(prompt.run())
    with handling(prompt.interrupt, running.cancel):
        await running


def form_of(asked: Shell) -> OutputFormat:
    """Return the output format."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if asked.form == "table":
            sys.stdout.reconfigure(errors="backslashreplace")  # for missing glyphs
        else:
            sys.stdout.reconfigure(encoding="utf-8")  # the encoding of JSON
    if asked.form == "json":
        return JsonLines(sys.stdout)
    if asked.form == "csv":
        return Csv(Harmless(sys.stdout) if sys.stdout.isatty() else sys.stdout)
    return Tables(sys.stdout, terminal=sys.stdout.isatty())


@contextlib.contextmanager
def handling(interrupt: Callable[[], object], terminate: Callable[[], object]) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM inside the block by these callbacks, without ending the process."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def _print_notice(line: str) -> None:
    _say(f"storenode: {line}")


def _say(line: str) -> None:
    sys.stderr.write(f"{harmless(line)}\n")
    sys.stderr.flush()
