"""Flags of the command line, as one table for the parser and `--help`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
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
    Flag("--cert", "<file>", "certificate chain (PEM): TLS on both surfaces; SIGHUP renews", True),
    Flag("--cert-key", "<file>", "its private key (PEM)", True),
    Flag("--peer", "<addr>", "link with the other nodes of the cluster, on such an address", True),
    Flag("--peer-cert", "<file>", "what it shows them (PEM), not a certificate of its own", True),
    Flag("--peer-key", "<file>", "its private key (PEM)", True),
    Flag(
        "--etcd-ca", "<file>", "who signs etcd's certificate (PEM); those the system trusts", True
    ),
    Flag("--etcd-cert", "<file>", "what this node shows etcd (PEM); SIGHUP renews all four", True),
    Flag("--etcd-key", "<file>", "its private key (PEM)", True),
    Flag(
        "--etcd-login", "<file>", "a user of etcd and the password: one line, user:password", True
    ),
    Flag("--etcd-login-in-clear", None, "it goes over plain http to other machines, too", True),
    Flag("--backup-dir", "<folder>", "folder for backup files: BACKUP ... TO 'name'", True),
    Flag("--keep-log", "<duration|size>", "log kept, as 7d or 20GiB, not 100 000 frames", True),
    Flag("--keep-statements", "<number>", "entries of the statement log kept; 100000", True),
    Flag("--unseal-for", "<duration>", "how long an unseal of vaults lasts; 10m", True),
    Flag("--log-level", "<level>", "least that is logged: debug, info, warning or error", True),
    Flag("--slow", "<duration>", "from when on a statement is logged as slow; 1s", True),
    Flag(
        "--accept-clock-jump", None, "start though the clock is a year or more past the log's end"
    ),
    Flag("--rebuild-state", None, "throw state/ away and make it anew from the log", True),
    Flag("--key-file", "<file>", "seals the store, from its first start or never, and all backups"),
    Flag("--backup-key-file", "<file>", "opens a backup that was sealed with another key"),
    Flag("--health", None, "check a store that nobody serves; says well, sequence, hash"),
    Flag("--backup", "<file>", "write a snapshot of a store that nobody serves, into a new file"),
    Flag(
        "--snapshot",
        None,
        "a snapshot, by its own name: --backup writes one",
        beside=("--backup",),
    ),
    Flag("--from", "<n>", "write the log from that sequence on instead", beside=("--backup",)),
    Flag("--dump", "<file>", "write a store that nobody serves as a script, into a new file"),
    Flag(
        "--despite-damage",
        None,
        "of a damaged log: names the damage",
        beside=("--backup", "--dump"),
    ),
    Flag("--verify", "<file>", "read a backup through and say what it holds; needs no store"),
    Flag("--restore", "<file>", "make a store of a backup, or put a log on top of a restored one"),
    Flag("--upto", "<seq>", "restore a log up to that sequence", beside=("--restore",)),
    Flag(
        "--reading", None, "what is restored only reads until told to write", beside=("--restore",)
    ),
    Flag("--join", "<file>", "copy the store of other nodes into a new directory: a join token"),
    Flag("-f", "<script>", "run a script file in a new directory, or in a store without users"),
    Flag(
        "--make-key",
        "<file>",
        "a new key in a new file; without it nothing that it seals opens again",
    ),
    Flag("--help", None, "this text"),
    Flag("--version", None, "the version"),
)
USAGE: Final = """\
storenode <data_dir> [--http <addr>] [--serve <addr>]   serve
storenode <data_dir> --health                           check
storenode <data_dir> --backup <file> [--from <n>]       write a snapshot, or the log
storenode <data_dir> --dump <file>                      write all of it as a script
storenode --verify <file>                               is a backup whole?
storenode <new_dir> --restore <file> [--upto <seq>]     make a store of a backup
storenode <new_dir> --join <file> [--serve <addr> ...]  copy the store of other nodes, and serve
storenode <new_dir> -f <script>                         run a script file
storenode --make-key <file>                             a new key
storenode --at <host:port> --backup <file>              a snapshot of a node: --at :8001 --help
storenode shell [host:port]                             statements at a prompt; shell --help
storenode import|export <ns.db.table> <file>            JSON lines, CSV; import --help
"""

ENVIRONMENT: Final = """\
STORE_USER, STORE_PASSWORD   the first owner of a store that has no users
STORE_BACKUP_DIR             as --backup-dir, which wins
STORE_PEER                   as --peer, which wins
STORE_ETCD_USER, STORE_ETCD_PASSWORD   as --etcd-login, which wins
STORE_UNSEAL_FOR             as --unseal-for, which wins
STORE_KEY_FILE               as --key-file, which wins
STORE_JOIN_TOKEN             a join token, for an empty directory; --join <file>, which wins
STORE_LOG_LEVEL, STORE_SLOW  as --log-level and --slow, which win
NOTIFY_SOCKET                told READY=1 and STOPPING=1
"""

EXIT_CODES: Final = """\
exit codes: 0 well, 1 refused or not well, 2 usage; of --at also 3: no connection or sign-in
            refused, 4: the connection broke, 130: Ctrl-C
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
        raise UsageRefused(f"{name} is set, and empty: leave it out, or say what it is for")
    return text


@dataclass(frozen=True, slots=True)
class Given:
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


def read(words: Sequence[str]) -> Given:
    """Parse a command line of the node.

    :param words: without the program's name
    :raises UsageRefused: as `take_apart`; or a second, empty or non-UTF-8 directory
    """
    given = take_apart(words, FLAGS)
    if len(given.positions) > 1:
        listed = ", ".join(map(repr, given.positions))
        raise UsageRefused(f"one data directory, not {len(given.positions)}: {listed}")
    if given.directory == "":
        raise UsageRefused("the data directory's name is empty")
    if given.directory is not None and not _is_unicode(given.directory):
        raise UsageRefused("the data directory's name is no UTF-8: the state engine opens no such")
    return given


def take_apart(words: Sequence[str], table: Sequence[Flag], form: str | None = None) -> Given:
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
            raise UsageRefused(f"unknown flag {name}{_nearest(name, by_name)}{_of(name, form)}")
        if flag.name in flags and not flag.repeats:
            raise UsageRefused(f"{flag.name} stands twice")
        if flag.value is None and equals:
            raise UsageRefused(f"{flag.name} takes no value")
        if flag.value is not None and not equals:
            value = next(rest, "")
        if flag.value is not None and (not value or (not equals and _is_flag(value))):
            raise UsageRefused(f"{flag.name} needs a value: {flag.name} {flag.value}")
        if form is None and flag.value in _FILES and value == _STREAM:
            raise UsageRefused(
                f"{flag.name} - is refused: it takes the name of a file, and no standard input or"
                " output; ./- is a file of that name"
            )
        flags[flag.name] = value
        if flag.repeats:
            repeated.setdefault(flag.name, []).append(value)
    return Given(tuple(positions), flags, repeated)


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


def help_text() -> str:
    """Return the text of `--help`."""
    return table_text(USAGE, FLAGS, ENVIRONMENT, EXIT_CODES)


def table_text(usage: str, table: Sequence[Flag], environment: str, exit_codes: str) -> str:
    """Return the text of `--help` for one form."""
    rows = [(f"{flag.name} {flag.value or ''}".rstrip(), flag.help) for flag in table]
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


def _nearest(name: str, by_name: Mapping[str, Flag]) -> str:
    near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.7)
    return f" (did you mean {near[0]}?)" if near else ""


def _of(name: str, form: str | None) -> str:
    """Explain a flag of the node after a client's word: the word was meant as a directory's
    name."""
    if form is None or all(flag.name != name for flag in FLAGS):
        return ""
    return f" of storenode {form}; a directory of that name is written ./{form}"
