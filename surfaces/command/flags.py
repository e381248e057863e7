"""Flags of the command line, as one table for its parsers and `--help`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from protocol.errors import Refusal
from protocol.text import parse_duration


class UsageRefused(Exception):
    """The command line is not valid; the message is one line. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag. `value` is the placeholder of its value in the help; None: the flag takes none."""

    name: str
    value: str | None
    help: str
    serving_only: bool = False
    beside: tuple[str, ...] = ()
    """Flags of the forms that it belongs to; empty: it is a form, or belongs to any."""
    repeats: bool = False
    """True if it may be given several times, each with another value."""


FLAGS: Final = (
    Flag("--http", "<addr>", "serve HTTP on host:port, :port (loopback) or [::1]:port", True),
    Flag("--serve", "<addr>", "serve the wire protocol on such an address", True),
    Flag(
        "--cert",
        "<file>",
        "certificate chain (PEM) for TLS on both surfaces; SIGHUP reloads it",
        True,
    ),
    Flag("--cert-key", "<file>", "private key of --cert (PEM)", True),
    Flag("--peer", "<addr>", "listen for the other nodes of the cluster on such an address", True),
    Flag(
        "--peer-cert",
        "<file>",
        "certificate chain for these (PEM); default: made by the node",
        True,
    ),
    Flag("--peer-key", "<file>", "private key of --peer-cert (PEM)", True),
    Flag(
        "--etcd-ca", "<file>", "CA of etcd's certificate (PEM); default: those of the system", True
    ),
    Flag(
        "--etcd-cert",
        "<file>",
        "client certificate for etcd (PEM); SIGHUP reloads all four files",
        True,
    ),
    Flag("--etcd-key", "<file>", "private key of --etcd-cert (PEM)", True),
    Flag("--etcd-login", "<file>", "file with the login for etcd: one line, user:password", True),
    Flag(
        "--etcd-login-in-clear",
        None,
        "send that login over plain http to other machines, too",
        True,
    ),
    Flag("--backup-dir", "<folder>", "folder for backup files: BACKUP ... TO 'name'", True),
    Flag(
        "--keep-log",
        "<duration|size>",
        "log retention, such as 7d or 20GiB (default 100 000 frames)",
        True,
    ),
    Flag(
        "--keep-statements",
        "<number>",
        "number of statement log entries to keep (default 100000)",
        True,
    ),
    Flag(
        "--unseal-for",
        "<duration>",
        "time until an unsealed vault is sealed again (default 10m)",
        True,
    ),
    Flag(
        "--log-level",
        "<level>",
        "lowest level to log: debug, info, warning or error (default info)",
        True,
    ),
    Flag("--slow", "<duration>", "log statements that take at least this long (default 1s)", True),
    Flag(
        "--accept-clock-jump", None, "start although the clock is a year or more past the log's end"
    ),
    Flag("--rebuild-state", None, "remove state/ and rebuild it from the log", True),
    Flag(
        "--key-file", "<file>", "encrypt the store (only from its first start on) and all backups"
    ),
    Flag("--backup-key-file", "<file>", "key of a backup that was encrypted with another key"),
    Flag("--health", None, "check a store that is not being served"),
    Flag(
        "--backup", "<file>", "write a snapshot of a store that is not being served to a new file"
    ),
    Flag(
        "--snapshot",
        None,
        "write a snapshot, the default",
        beside=("--backup",),
    ),
    Flag(
        "--from",
        "<n>",
        "write the log from that sequence on instead",
        beside=("--backup",),
    ),
    Flag("--dump", "<file>", "write a store that is not being served as a script to a new file"),
    Flag(
        "--despite-damage",
        None,
        "report damage of the log and go on",
        beside=("--backup", "--dump"),
    ),
    Flag("--verify", "<file>", "verify a backup and print its content; needs no store"),
    Flag(
        "--restore",
        "<file>",
        "restore a backup to a new directory, or a log to a restored store",
    ),
    Flag(
        "--upto",
        "<seq>",
        "last sequence of the log to restore",
        beside=("--restore",),
    ),
    Flag(
        "--reading",
        None,
        "the store is read-only until an owner permits writes",
        beside=("--restore",),
    ),
    Flag("--join", "<file>", "join a cluster: copy its store, with the join token in the file"),
    Flag("-f", "<script>", "run a script file in a new directory, or in a store without users"),
    Flag(
        "--make-key",
        "<file>",
        "write a new key to a new file; a lost key means lost data",
    ),
    Flag("--help", None, "show this help"),
    Flag("--version", None, "show the version"),
)
ENVIRONMENT: Final = """\
STORE_USER, STORE_PASSWORD   first owner of a store without users
STORE_BACKUP_DIR             default of --backup-dir
STORE_PEER                   default of --peer
STORE_ETCD_USER, STORE_ETCD_PASSWORD   default of --etcd-login
STORE_UNSEAL_FOR             default of --unseal-for
STORE_KEY_FILE               default of --key-file
STORE_JOIN_TOKEN             join token for an empty directory, unless --join is given
STORE_LOG_LEVEL, STORE_SLOW  defaults of --log-level and --slow
NOTIFY_SOCKET                receives READY=1 and STOPPING=1
"""

EXIT_CODES: Final = """\
exit codes: 0 success, 1 failure, 2 usage; with --at also 3: no connection, or sign-in refused,
            4: connection lost, 130: Ctrl-C
"""
_FILES: Final = ("<file>", "<script>")
"""Values that name a file."""
_STREAM: Final = "-"


def variable(environment: Mapping[str, str], name: str) -> str | None:
    """Return an environment variable whose absence changes the node: unsealed, say, or in no
    cluster.

    None: it is not set. An empty value is taken for a template that was not filled in.

    :raises UsageRefused: it is set, and empty or blank
    """
    text = environment.get(name)
    if text is not None and not text.strip():
        raise UsageRefused(f"{name} is set but empty: unset it, or give a value")
    return text


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """A parsed command line: values by flag name (empty for flags that take none)."""

    positions: tuple[str, ...] = ()
    """Words that are neither flags nor values of flags."""
    flags: dict[str, str] = field(default_factory=dict)
    """Values by flag name; the last value of a flag that repeats."""
    repeated: dict[str, list[str]] = field(default_factory=dict)
    """All values of the flags that repeat."""

    @property
    def directory(self) -> str | None:
        """The data directory; None: the command line has none."""
        return self.positions[0] if self.positions else None

    def __contains__(self, name: str) -> bool:
        return name in self.flags

    def get(self, name: str) -> str | None:
        """Return the value of a flag, or None if it is not given."""
        return self.flags.get(name)


def read(words: Sequence[str]) -> ParsedFlags:
    """Parse a command line of the node.

    :param words: without the program's name
    :raises UsageRefused: as `take_apart`; or a second, empty or non-UTF-8 directory
    """
    given = take_apart(words, FLAGS)
    if len(given.positions) > 1:
        listed = ", ".join(map(repr, given.positions))
        raise UsageRefused(f"expected one data directory, not {len(given.positions)}: {listed}")
    return checked(given)


def checked(given: ParsedFlags) -> ParsedFlags:
    """Return a command line whose directory has a valid name.

    :raises UsageRefused: it is empty, or not UTF-8
    """
    if given.directory == "":
        raise UsageRefused("the data directory's name is empty")
    if given.directory is not None and not _is_unicode(given.directory):
        raise UsageRefused("the data directory's name is not UTF-8: the state engine can't open it")
    return given


def take_apart(words: Sequence[str], table: Sequence[Flag], form: str | None = None) -> ParsedFlags:
    """Separate the flags of a table from the other words.

    :param words: a value follows its flag or stands after `=`; after `--` nothing is a flag
    :param form: the word that the table belongs to, `shell`; None for the node's own
    :raises UsageRefused: an unknown, repeated or incomplete flag
    """
    by_name = {flag.name: flag for flag in table}
    by_name["-h"] = by_name["--help"]
    positions: list[str] = []
    flags: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            positions += rest
            break
        if not word.startswith("-") or (word == "-" and form is not None):
            positions.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = by_name.get(name)
        if flag is None:
            raise unknown_flag(name, by_name, form)
        if flag.name in flags and not flag.repeats:
            raise UsageRefused(f"{flag.name} is given twice")
        if flag.value is None and equals:
            raise UsageRefused(f"{flag.name} takes no value")
        if flag.value is not None and not equals:
            value = next(rest, "")
        if flag.value is not None and (not value or (not equals and _is_flag(value))):
            raise UsageRefused(f"{flag.name} needs a value: {flag.name} {flag.value}")
        if form is None:
            check_file(flag.name, flag.value, value)
        flags[flag.name] = value
        if flag.repeats:
            repeated.setdefault(flag.name, []).append(value)
    return ParsedFlags(tuple(positions), flags, repeated)


def check_file(name: str, placeholder: str | None, value: str) -> None:
    """Refuse `-` as the name of a file.

    :raises UsageRefused: the placeholder is that of a file, and the value is `-`
    """
    if placeholder in _FILES and value == _STREAM:
        raise UsageRefused(
            f"{name} - is refused: it takes the name of a file, not standard input or"
            " output; write ./- for a file of that name"
        )


def unknown_flag(name: str, known: Iterable[str], form: str | None) -> UsageRefused:
    """Return the refusal of an unknown flag.

    :param form: the command that was given; None for a flag form of the node
    """
    name = name.partition("=")[0]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return UsageRefused(f"unknown flag {name}{hint}{_of(name, form)}")


def lasting(where: str, text: str, why: str) -> timedelta:
    """Parse a duration longer than zero.

    :param where: flag or variable that holds it, for the message
    :param why: reason in the refusal of a duration of zero or less
    :raises UsageRefused: it is no duration, or zero or less
    """
    try:
        found = parse_duration(text)
    except Refusal as error:
        raise UsageRefused(f"{where}: {error.message}") from error
    if found <= timedelta(0):
        raise UsageRefused(f"{where}: {text} is refused: {why}")
    return found


def table_text(usage: str, table: Sequence[Flag], environment: str, exit_codes: str) -> str:
    """Return the text of `--help` for one form."""
    rows = [
        (
            f"{flag.name} {flag.value or ''}".rstrip(),
            f"with {' or '.join(flag.beside)}: {flag.help}" if flag.beside else flag.help,
        )
        for flag in table
    ]
    width = max(len(left) for left, _ in rows) + 3
    flags = "".join(f"{left:{width}}{right}\n" for left, right in rows)
    return f"{usage}\n{flags}\nenvironment:\n{environment}\n{exit_codes}"


def _is_unicode(text: str) -> bool:
    """True if a word of the command line was UTF-8. Python keeps other bytes as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_flag(word: str) -> bool:
    """True if a word in the place of a value is a flag. Two dashes and a space begin a comment of
    the language."""
    return word.startswith("--") and not word[2:3].isspace()


def _of(name: str, form: str | None) -> str:
    """Explain a flag of a flag form after a command: the word was meant as a directory's name."""
    if form is None or all(flag.name != name for flag in FLAGS):
        return ""
    return f" of storenode {form}; a directory of that name is written ./{form}"
