"""Entry point of `storenode shell`, `import`, `export` and `--at`: runs the command, returns the
exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from errno import EPIPE
from typing import Final

from surfaces.command.commands import named
from surfaces.command.descriptors import OutputLost
from surfaces.command.flags import UsageRefused
from surfaces.shell.outcomes import INTERRUPTED, REFUSED, USAGE, WELL, CommandEnded

WORDS: Final = ("shell", "import", "export")
"""First words that name a client command instead of a directory."""
AT: Final = "--at"
MISSING: Final = "the client is not installed: pip install ./clients/python"


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command. Return the exit code, one of `outcomes`.

    :param words: accepted by `takes`
    """
    try:
        code = _done(words, environment)
        sys.stdout.flush()
        return code
    except OutputLost as lost:
        if lost.errno != EPIPE:  # after EPIPE the reader is gone
            _complain(f"standard output: {lost.strerror}")
        return REFUSED


def _done(words: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        if words[0] in WORDS:
            return _main(words[0], words[1:], environment)
        return _back_up(words, environment)
    except UsageRefused as refused:
        _complain(str(refused))
        return USAGE
    except CommandEnded as ended:
        _complain(str(ended))
        return ended.code
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED


def _main(word: str, words: Sequence[str], environment: Mapping[str, str]) -> int:
    from surfaces.shell import arguments, transfers
    from surfaces.shell.arguments import Help, Shell
    from surfaces.shell.transfers import Import

    asked = {
        "shell": arguments.understand,
        "import": transfers.understand_import,
        "export": transfers.understand_export,
    }[word](words, environment)
    if isinstance(asked, Help):
        sys.stdout.write(asked.text)
        return WELL
    _check_installed()
    from surfaces.shell import importing, scripts, work

    if isinstance(asked, Shell):
        script = None if work.by_hand(asked) else scripts.given(asked)
        asyncio.run(work.shell(asked, script, environment))
    elif isinstance(asked, Import):
        with importing.opened(asked) as file:
            asyncio.run(work.transfer(asked, file))
    else:
        asyncio.run(work.transfer(asked, None))
    return WELL


def _back_up(words: Sequence[str], environment: Mapping[str, str]) -> int:
    from surfaces.shell import backups
    from surfaces.shell.arguments import Help

    asked = backups.understand(words, environment)
    if isinstance(asked, Help):
        sys.stdout.write(asked.text)
        return WELL
    _check_installed()
    from surfaces.shell import backing_up

    asyncio.run(backing_up.back_up(asked))
    return WELL


def _check_installed() -> None:
    try:
        import storeclient  # noqa: F401
    except ImportError:
        raise CommandEnded(MISSING, USAGE) from None


def _complain(message: str) -> None:
    from surfaces.shell.cells import harmless  # here: a node's start does not need it

    sys.stdout.flush()
    sys.stderr.write(f"storenode: {harmless(message)}\n")
    sys.stderr.flush()


def takes(words: Sequence[str]) -> bool:
    """Return True for the command line of a client. A directory of such a name is written
    `./shell`; `--at` names a node instead of a directory, also after `backup`."""
    if words and words[0] in WORDS:
        return True
    return named(words) in (None, "backup") and any(_is_at(word) for word in words)


def _is_at(word: str) -> bool:
    return word == AT or word.startswith(f"{AT}=")
