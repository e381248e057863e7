"""Command line of `storenode shell`, validated before any connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from protocol.errors import Refusal
from protocol.text import check_name
from surfaces.command import flags
from surfaces.command.flags import Flag, UsageRefused
from surfaces.shell.outcomes import EXIT_CODES

ADDRESS: Final = "127.0.0.1:8001"
"""Default address of the node's wire surface, as with `make run`."""
FIRST_USER: Final = "root"
"""Default user: the owner that a new store gets."""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """Address of the node, and the credential."""

    address: str = ADDRESS
    user: str | None = FIRST_USER
    password: str | None = field(default=None, repr=False)
    """None with a user: prompt for it at the terminal."""
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None
    """File of certificates to trust in place of the system's."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Run statements: those of `command`, of the file `script`, or interactive ones."""

    access: NodeAccess
    namespace: str | None = None
    database: str | None = None
    command: str | None = None
    script: str | None = None
    form: str = "table"
    timeout: timedelta | None = None
    leader: bool = False
    """True to run them at the writable node (the leader)."""


@dataclass(frozen=True, slots=True)
class Help:
    """Print this text."""

    text: str


ACCESS_FLAGS: Final = (
    Flag("--user", "<name>", f"user to sign in as (default STORE_USER, else {FIRST_USER})"),
    Flag("--token", "<token>", "token of POST /session, instead of user and password"),
    Flag("--tls", None, "use TLS, with a certificate that the system trusts"),
    Flag("--ca", "<file>", "use TLS, with a certificate signed by a CA of this file (PEM)"),
)
SHELL_FLAGS: Final = (
    Flag("-c", "<statements>", "run statements or one shortcut, and exit"),
    Flag("-f", "<script>", "run a file as one script, and exit; - is standard input"),
    Flag("--json", None, "print results as JSON, one line per statement with a result"),
    Flag("--csv", None, "print rows as CSV"),
    Flag("--use", "<ns.db>", "initial database, or namespace"),
    Flag("--timeout", "<duration>", "time limit of each script, such as 5s or 1m"),
    Flag("--leader", None, "connect to the leader that the node at the address names"),
    *ACCESS_FLAGS,
    Flag("--help", None, "show this help"),
)
USAGE: Final = """\
storenode shell [host:port]                    statements at a prompt
storenode shell [host:port] -c <statements>    run statements and exit
storenode shell [host:port] -f <script>        run a file and exit
storenode shell [host:port] < script           run standard input and exit
"""
ENVIRONMENT: Final = """\
STORE_USER, STORE_PASSWORD   user to sign in as, unless --user is given; without a password
                             the shell asks for it
STORE_TOKEN                  default of --token
"""


def understand(words: Sequence[str], environment: Mapping[str, str]) -> Shell | Help:
    """Parse the command line of `storenode shell`.

    :param words: those after `shell`
    :raises UsageRefused: contradicting flags, or a bad value
    """
    given = flags.take_apart(words, SHELL_FLAGS, "shell")
    if "--help" in given:
        return Help(flags.table_text(USAGE, SHELL_FLAGS, ENVIRONMENT, EXIT_CODES))
    if len(given.positions) > 1:
        raise UsageRefused(
            f"expected one address, not {len(given.positions)}: see storenode shell --help"
        )
    for one, other in (("-c", "-f"), ("--json", "--csv"), ("--leader", "--token")):
        if one in given and other in given:
            raise UsageRefused(f"{one} contradicts {other}")
    namespace, database = _place(given.get("--use"))
    return Shell(
        access(given, given.positions[0] if given.positions else ADDRESS, environment),
        namespace,
        database,
        given.get("-c"),
        given.get("-f"),
        "json" if "--json" in given else "csv" if "--csv" in given else "table",
        _timeout(given.get("--timeout")),
        "--leader" in given,
    )


def access(given: flags.ParsedFlags, address: str, environment: Mapping[str, str]) -> NodeAccess:
    """Return the address and the credential.

    :raises UsageRefused: both a token and a user are given
    """
    token = given.get("--token")
    if token is not None and "--user" in given:
        raise UsageRefused("--token contradicts --user: a token names its user")
    if token is None and "--user" not in given:
        token = environment.get("STORE_TOKEN") or None
    tls, ca = "--tls" in given, given.get("--ca")
    if token is not None:
        return NodeAccess(address, None, None, token, tls or ca is not None, ca)
    user = given.get("--user") or environment.get("STORE_USER") or FIRST_USER
    password = environment.get("STORE_PASSWORD") or None
    return NodeAccess(address, user, password, None, tls or ca is not None, ca)


def _place(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    namespace, dot, database = text.partition(".")
    try:
        check_name(namespace, "namespace")
        if dot:
            check_name(database, "database")
    except Refusal as error:
        raise UsageRefused(f"--use: {error.message}") from error
    return namespace, database if dot else None


def _timeout(text: str | None) -> timedelta | None:
    return None if text is None else flags.lasting("--timeout", text, "it must be above zero")
