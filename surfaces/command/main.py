"""Program `storenode`: parses the command line, runs the command, returns the exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Coroutine, Sequence
from errno import EPIPE
from functools import partial
from types import FrameType
from typing import Any, Final

from protocol.version import BUILD, VERSION
from surfaces import logs
from surfaces.command import commands, descriptors, heap, privacy
from surfaces.command.arguments import (
    BackUp,
    CheckHealth,
    Command,
    Dump,
    Join,
    MakeKey,
    Restore,
    RunFile,
    Serve,
    ShowHelp,
    ShowVersion,
    Verify,
    understand,
)
from surfaces.command.console import Console, say_json
from surfaces.command.descriptors import OutputLost
from surfaces.command.flags import UsageRefused
from surfaces.shell import main as clients

WELL: Final = 0
REFUSED: Final = 1
USAGE: Final = 2

PRIVATE: Final = 0o077
"""File mode mask: files of the process are accessible to its user only."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit code: 0 well, 1 refused or not well, 2 usage.

    :param words: without the program's name; those of the process when not given
    """
    descriptors.keep_standard_streams()
    descriptors.raise_on_lost_output()
    os.umask(PRIVATE)
    words = sys.argv[1:] if words is None else words
    if clients.takes(words):
        return clients.main(words, os.environ)
    privacy.keep_memory_private()
    heap.return_freed_memory()
    heap.start_no_blas_threads()
    heap.collect_less_often()
    writer = logs.LineWriter(logs.STANDARD_ERROR)
    try:
        code = _main(words, writer)
    except OutputLost as lost:
        if lost.errno != EPIPE:  # after EPIPE the reader is gone
            _console(words, writer).complain(f"standard output: {lost.strerror}")
        return REFUSED
    except Exception as error:
        if not _for_programs(words, writer):
            raise  # the interpreter prints the traceback
        say_json(writer, "critical", "".join(traceback.format_exception(error)))
        return REFUSED
    finally:
        writer.close()
    return _again() if code is None else code


def _again() -> int:
    """Replace this process by the same command; only its process id stays."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # an ignored signal would stay ignored there
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _main(words: Sequence[str], writer: logs.LineWriter) -> int | None:
    """Run the command. Return the exit code; None: start the same command again."""
    console = _console(words, writer)
    try:
        command = understand(words, os.environ)
    except UsageRefused as refused:
        console.complain(str(refused))
        return USAGE
    if isinstance(command, ShowHelp):
        console.answer(commands.help_text(command.word).rstrip("\n"))
        return WELL
    if isinstance(command, ShowVersion):
        console.answer(f"storenode {VERSION} ({BUILD})")
        return WELL
    # A command that does not serve reports by itself.
    level = logs.LEVELS[command.log_level] if isinstance(command, Serve) else logging.WARNING
    logs.configure(writer, level)
    return _run(command, console)


def _for_programs(words: Sequence[str], writer: logs.LineWriter) -> bool:
    """True if every line of output is a JSON object. Output of a serving node off a terminal is
    read by programs, including start failures and crashes."""
    serves = any(word.partition("=")[0] in ("--http", "--serve") for word in words)
    return serves and not writer.on_terminal


def _console(words: Sequence[str], writer: logs.LineWriter) -> Console:
    if not _for_programs(words, writer):
        return Console(writer.write, writer.on_terminal)
    print_line, complain = (partial(say_json, writer, level) for level in ("info", "error"))
    return Console(print_line, False, complain)


def _run(command: Command, console: Console) -> int | None:
    from surfaces.command.failures import NotOpened  # here: --help needs none of the node
    from surfaces.command.serving import RestartRequired

    # A command that does not serve also closes the store when it is told to end, and at once: its
    # work may be one long call, so the loop's own handler would run too late. A serving node
    # replaces both with its own handlers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        return WELL if asyncio.run(_work(command, console)) else REFUSED
    except RestartRequired:
        return None
    except NotOpened as refused:
        console.complain(str(refused))
    except KeyboardInterrupt:
        console.complain("interrupted; the store was closed")
    return REFUSED


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _work(command: Command, console: Console) -> Coroutine[Any, Any, bool]:
    """Return the coroutine of a command. Its result is True if all was well."""
    from surfaces.command import (
        backups,
        dumping,
        health,
        joining,
        key_making,
        restoring,
        scripts,
        serving,
        verifying,
    )

    match command:
        case Serve():
            return serving.serve(command, os.environ, console)
        case CheckHealth():
            return health.check(command, console)
        case MakeKey():
            return key_making.make(command, console)
        case BackUp():
            return backups.back_up(command, console)
        case Dump():
            return dumping.dump(command, console)
        case Verify():
            return verifying.verify_file(command, console)
        case Restore():
            return restoring.restore(command, console)
        case Join():
            return joining.join(command, console)
        case RunFile():
            return scripts.run_file(command, console)
        case _:
            raise AssertionError(command)


if __name__ == "__main__":
    sys.exit(main())
