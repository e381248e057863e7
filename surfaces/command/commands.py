"""Commands of the command line (`storenode restore …`), beside the flag forms.

A command is another spelling of a flag form (`storenode <new_dir> --restore <file>`). Its parser is
made from the same table of flags, and `read` returns the result that `flags.read` returns for the
flag form.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

from surfaces.command import flags
from surfaces.command.flags import FLAGS, Flag, ParsedFlags, UsageRefused

_BY_NAME: Final = {flag.name: flag for flag in FLAGS}
_KEYS: Final = ("--key-file", "--backup-key-file")
_OPENING: Final = ("--accept-clock-jump", *_KEYS)


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """A command that has a flag form."""

    form: str | None
    """Flag of its flag form, whose value is its last argument; None: it serves."""
    directory: str | None
    """Placeholder of its directory; None: it takes none."""
    general: tuple[str, ...] = _OPENING
    """Flags that it shares with other commands."""
    note: str = ""
    """Last line of its help."""

    @property
    def help(self) -> str:
        """Its line in the help."""
        return _BY_NAME[self.form].help if self.form else "serve HTTP, the wire protocol, or both"

    @property
    def arguments(self) -> list[str]:
        """Placeholders of its arguments."""
        value = _BY_NAME[self.form].value if self.form else None
        return [one for one in (self.directory, value) if one is not None]

    @property
    def flags(self) -> list[Flag]:
        """Its flags, its own ones first."""
        serves, general = self.form is None, (*self.general, "--help")
        own = [flag for flag in FLAGS if self.form in flag.beside or (serves and flag.serving_only)]
        return own + [flag for flag in FLAGS if flag.name in general]


COMMANDS: Final = {
    "serve": NodeCommand(None, "<data_dir>", (*_OPENING, "--join")),
    "check": NodeCommand("--health", "<data_dir>"),
    "backup": NodeCommand(
        "--backup",
        "<data_dir>",
        note="of a running node: storenode backup --at <host:port> <file>",
    ),
    "dump": NodeCommand("--dump", "<data_dir>"),
    "verify": NodeCommand("--verify", None, _KEYS),
    "restore": NodeCommand("--restore", "<new_dir>"),
    "join": NodeCommand("--join", "<new_dir>"),
    "run": NodeCommand("-f", "<new_dir>"),
    "make-key": NodeCommand("--make-key", None, ()),
}
CLIENTS: Final = {
    "backup --at <host:port> <file>": "write a snapshot of a running node to a new file",
    "shell [host:port]": "run statements on a running node",
    "import <ns.db.table> <file>": "import JSON or CSV into a table of a running node",
    "export <ns.db.table> <file>": "export a table of a running node",
}
"""Commands of a client, with their lines in the help; `surfaces.shell` runs them."""


def named(words: Sequence[str]) -> str | None:
    """Return the command that a command line names; None for a flag form. A directory of such a
    name is written `./check`."""
    return words[0] if words and words[0] in COMMANDS else None


def read(word: str, words: Sequence[str]) -> ParsedFlags:
    """Parse the command line of a command.

    :param words: those after the command
    :raises UsageRefused: an unknown, repeated or incomplete flag; missing or surplus arguments
    """
    command = COMMANDS[word]
    try:
        parsed, unknown = _parser(word).parse_known_args(words)
    except argparse.ArgumentError as error:
        if error.argument_name is not None:
            raise UsageRefused(f"{error.argument_name}: {error.message}") from error
        raise UsageRefused(
            f"{error.message}; a directory named {word} is written ./{word}"
        ) from error
    for name in unknown:
        if name.startswith("-"):
            raise flags.unknown_flag(name, [flag.name for flag in command.flags], word)
        raise UsageRefused(f"unexpected argument {name!r}")
    given: dict[str, str] = vars(parsed)
    if command.form is None and "--http" not in given and "--serve" not in given:
        raise UsageRefused("give --http, --serve or both")
    directory = [given.pop(command.directory)] if command.directory else []
    if command.form is not None:
        given.setdefault(command.form, "")
    return flags.checked(ParsedFlags(tuple(directory), given))


def help_text(word: str | None = None) -> str:
    """Return the text of `--help`, of a command or of the program."""
    if word is not None:
        return _parser(word).format_help()
    usage = (
        "storenode <command> ...; storenode <command> --help shows its flags\n\n"
        f"{''.join(_rows())}\n"
        "A directory with the name of a command is written ./serve.\n\n"
        f"The same commands as flags:\n\n{''.join(_forms())}"
    )
    return flags.table_text(usage, FLAGS, flags.ENVIRONMENT, flags.EXIT_CODES)


def _rows() -> Iterator[str]:
    own = {" ".join((word, *one.arguments)): one.help for word, one in COMMANDS.items()}
    rows = {**own, **CLIENTS}
    width = max(map(len, rows)) + 3
    for left, right in rows.items():
        yield f"{left:{width}}{right}\n"


def _forms() -> Iterator[str]:
    for command in COMMANDS.values():
        words = ["storenode", *command.arguments]
        if command.form is None:
            words.append("[--http <addr>] [--serve <addr>] ...")
        else:
            words.insert(2 if command.directory else 1, command.form)
        yield " ".join(words) + "\n"
    yield "storenode --at <host:port> --backup <file>\n"


class _Parser(argparse.ArgumentParser):
    """Parser that refuses instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


class _Once(argparse.Action):
    """Stores the value of a flag that may be given once; empty for a flag without a value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if self.dest in namespace:
            raise UsageRefused(f"{self.dest} is given twice")
        setattr(namespace, self.dest, values or "")


def _parser(word: str) -> argparse.ArgumentParser:
    command = COMMANDS[word]
    parser = _Parser(
        f"storenode {word}",
        description=command.help,
        epilog=command.note,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=36, width=100),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
        exit_on_error=False,
    )
    if command.directory is not None:
        parser.add_argument(command.directory)
    if command.form is not None and (value := _BY_NAME[command.form].value) is not None:
        parser.add_argument(dest=command.form, metavar=value, type=_checked(value, value))
    for flag in command.flags:
        if flag.value is None:
            parser.add_argument(flag.name, dest=flag.name, action=_Once, nargs=0, help=flag.help)
        else:
            parser.add_argument(
                flag.name,
                dest=flag.name,
                action=_Once,
                type=_checked(flag.name, flag.value),
                metavar=flag.value,
                help=flag.help,
            )
    return parser


def _checked(name: str, value: str) -> Callable[[str], str]:
    """Return a reader of a value that refuses as the flag form does."""

    def read_value(text: str) -> str:
        if not text:
            raise UsageRefused(f"{name} needs a value")
        flags.check_file(name, value, text)
        return text

    return read_value
