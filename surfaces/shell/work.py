"""A shell from its first connection to its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping

from surfaces.shell import scripts
from surfaces.shell.arguments import Shell
from surfaces.shell.connecting import client_of
from surfaces.shell.forms import Csv, Form, JsonLines, Tables
from surfaces.shell.outcomes import INTERRUPTED, Ended
from surfaces.shell.scripts import connect
from surfaces.shell.session import Session


async def shell(asked: Shell, environment: Mapping[str, str]) -> None:
    """Run what was asked for, or what a person types.

    :raises Ended: it did not come to a good end
    """
    client = client_of(asked.access, asked.namespace, asked.database)
    form = form_of(asked)
    session = Session(client, _tell, asked.timeout)
    try:
        if by_hand(asked):
            await _prompt(session, form, environment)
            return
        work = asyncio.create_task(scripts.run(session, form, asked))

        def end() -> None:
            if not session.interrupt():
                work.cancel()

        with handling(end, end):
            await work
    except asyncio.CancelledError:
        raise Ended("interrupted; what ran when it was may have been done", INTERRUPTED) from None
    finally:
        await session.close()


def by_hand(asked: Shell) -> bool:
    """Whether a person types the statements."""
    given = asked.command is not None or asked.script is not None
    return not given and sys.stdin.isatty() and sys.stdout.isatty()


async def _prompt(session: Session, form: Form, environment: Mapping[str, str]) -> None:
    from surfaces.shell.prompt import Prompt  # here: a script needs none of prompt_toolkit

    prompt = Prompt(session, form, environment)
    connecting = asyncio.create_task(connect(session))
    with handling(connecting.cancel, connecting.cancel):
        prompt.greet(await connecting)
    running = asyncio.create_task(prompt.run())
    with handling(prompt.interrupt, running.cancel):
        await running


def form_of(asked: Shell) -> Form:
    """How answers are shown."""
    if asked.form == "json":
        return JsonLines(sys.stdout)
    if asked.form == "csv":
        return Csv(sys.stdout)
    return Tables(sys.stdout, terminal=sys.stdout.isatty())


@contextlib.contextmanager
def handling(interrupt: Callable[[], object], terminate: Callable[[], object]) -> Iterator[None]:
    """Inside the block Ctrl-C and SIGTERM do these, and end nothing by themselves."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def _tell(line: str) -> None:
    sys.stderr.write(f"storenode: {line}\n")
    sys.stderr.flush()
