"""Command line: turns words and environment variables into one validated command.

Everything is checked before a file or a socket is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from protocol import limits
from protocol.errors import Refusal
from protocol.text import check_name, parse_duration, parse_size
from surfaces.command import addresses, commands, flags, keys
from surfaces.command.addresses import Address
from surfaces.command.flags import UsageRefused
from surfaces.command.keys import NO_KEYS, KeyFiles
from surfaces.logs import LEVELS

_DURATION: Final = re.compile(r"-?[0-9]+[a-z]")
_MADE: Final = "STORE"
"""File that every store has from its first start on, as in `storage/files/directory.py`."""
UNSEAL_FOR: Final = timedelta(minutes=10)
"""Default lifetime of an unseal."""
SLOW: Final = timedelta(seconds=limits.SLOW_STATEMENT_SECONDS)


@dataclass(frozen=True, slots=True)
class FirstOwner:
    """User that a store without users starts with, and the password."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Opening:
    """Permissions and keys to open a store that is refused without them."""

    accept_clock_jump: bool = False
    rebuild_state: bool = False
    keys: KeyFiles = NO_KEYS
    """Key files that the store is sealed with."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Listen address for the other nodes of the cluster, and the certificate presented to them."""

    address: Address
    cert: str | None = None
    """Certificate file; None: the node issues its own certificate."""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """Credentials for etcd. Its addresses are in the failover policy."""

    ca: str | None = None
    """Authority that signs etcd's certificate; None: an authority that the system trusts."""
    cert: str | None = None
    key: str | None = None
    login: str | None = None
    """File with an etcd user and the password."""
    credential: tuple[str, str] | None = field(default=None, repr=False)
    """User and password from the environment."""
    in_clear: bool = False
    """True if these may be sent over plain http to other machines."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Source of a join token."""

    file: str | None = None
    """File that holds the token; None: not given as a file."""
    token: str | None = field(default=None, repr=False)
    """Token from the environment; None: not set."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve the store in `directory`. One of `http` and `wire` may be None."""

    directory: str
    http: Address | None
    wire: Address | None
    cert: str | None
    cert_key: str | None
    backup_dir: str | None
    unseal_for: timedelta
    first_owner: FirstOwner | None
    keep_log: timedelta | int | None = None
    """Log retention by age or by bytes; None: the default number of frames (protocol/limits.py)."""
    keep_statements: int = limits.ENTRIES_KEPT
    opening: Opening = Opening()
    log_level: str = "info"
    slow: timedelta = SLOW
    peers: Peers | None = None
    """None: this node links with no other node."""
    invitation: Invitation = Invitation()
    """Join token, used if the directory holds no store yet."""
    etcd: EtcdOptions = EtcdOptions()


@dataclass(frozen=True, slots=True)
class Join:
    """Copy the store of other nodes into `directory`."""

    directory: str
    invitation: Invitation
    opening: Opening = Opening()


@dataclass(frozen=True, slots=True)
class CheckHealth:
    """Open and check the store in `directory`, and report its health."""

    directory: str
    opening: Opening = Opening()


@dataclass(frozen=True, slots=True)
class RunFile:
    """Run the script in the file `script` on the store in `directory`."""

    directory: str
    script: str
    opening: Opening = Opening()


@dataclass(frozen=True, slots=True)
class Dump:
    """Write the store in `directory` as a script into the new file `file`."""

    directory: str
    file: str
    opening: Opening = Opening()
    despite_damage: bool = False
    """True to dump a store whose log is damaged, too."""


@dataclass(frozen=True, slots=True)
class BackUp:
    """Write the store in `directory` into the new file `file`: a snapshot of it, or its log."""

    directory: str
    file: str
    first: int | None
    """First sequence of a log backup; None: take a snapshot instead."""
    opening: Opening = Opening()
    despite_damage: bool = False
    """True to take a snapshot of a store whose log is damaged, too."""


@dataclass(frozen=True, slots=True)
class Verify:
    """Read the backup `file` and check it."""

    file: str
    keys: KeyFiles = NO_KEYS


@dataclass(frozen=True, slots=True)
class Restore:
    """Create a store in `directory` from the backup `file`."""

    directory: str
    file: str
    upto: int | None = None
    """Last sequence to restore from a log backup; None: all of it."""
    reading: bool = False
    """True if the node that serves the restored store starts read-only, until an operator allows
    writes."""
    opening: Opening = Opening()


@dataclass(frozen=True, slots=True)
class MakeKey:
    """Write a new key into the new file `file`."""

    file: str


@dataclass(frozen=True, slots=True)
class ShowHelp:
    """Print the help, of one command or of the program."""

    word: str | None = None


@dataclass(frozen=True, slots=True)
class ShowVersion:
    """Print the version."""


Command = (
    Serve
    | CheckHealth
    | RunFile
    | Dump
    | BackUp
    | Verify
    | Restore
    | Join
    | MakeKey
    | ShowHelp
    | ShowVersion
)
JOIN: Final = "--join"
"""Flag that serves nothing by itself; it may be combined with flags that serve."""
FORMS: Final = ("--health", "--backup", "--dump", "--verify", "--restore", "-f")
"""Flags of the forms that serve nothing."""


def understand(words: Sequence[str], environment: Mapping[str, str]) -> Command:
    """Return the command that the command line asks for.

    :param words: without the program's name
    :raises UsageRefused: it asks for nothing, for two things at once, or with a bad value
    """
    word = commands.named(words)
    if "--help" in words or "-h" in words:
        return ShowHelp(word)
    if word is None:
        return _command(flags.read(words), environment)
    try:
        return _command(commands.read(word, words[1:]), environment)
    except UsageRefused as refused:
        raise UsageRefused(f"{word}: {refused}") from refused


def _command(given: flags.ParsedFlags, environment: Mapping[str, str]) -> Command:
    if "--version" in given:
        return ShowVersion()
    if "--make-key" in given:
        return _make_key(given)
    given = keys.with_variable(given, environment)
    form = _form(given)
    if form == "--verify":
        if given.directory is not None:
            raise UsageRefused(f"{given.directory} contradicts --verify: it needs no store")
        return Verify(given.flags[form], keys.files(given))
    if given.directory is None:
        raise UsageRefused("no data directory: storenode <data_dir> ...; see --help")
    if form == JOIN:
        return Join(given.directory, Invitation(given.flags[form]), _opening(given))
    if form in FORMS:
        return _serving_nothing(form, given.directory, given)
    return _serve(given, given.directory, environment)


def _serving_nothing(form: str, directory: str, given: flags.ParsedFlags) -> Command:
    opening, despite = _opening(given), "--despite-damage" in given
    if form == "--health":
        return CheckHealth(directory, opening)
    file = given.flags[form]
    if form == "--backup":
        if "--from" in given and "--snapshot" in given:
            raise UsageRefused("--from contradicts --snapshot: a file is a log or a snapshot")
        if "--from" in given and despite:
            raise UsageRefused("--from contradicts --despite-damage: a damaged log is not copied")
        return BackUp(directory, file, _sequence(given, "--from", 1), opening, despite)
    if form == "--restore":
        upto = _sequence(given, "--upto", 0)
        return Restore(directory, file, upto, "--reading" in given, opening)
    if form == "--dump":
        return Dump(directory, file, opening, despite)
    return RunFile(directory, file, opening)


def _make_key(given: flags.ParsedFlags) -> MakeKey:
    others = [*given.positions, *(name for name in given.flags if name != "--make-key")]
    if others:
        raise UsageRefused(f"--make-key contradicts {others[0]}: it takes no other arguments")
    return MakeKey(given.flags["--make-key"])


def _form(given: flags.ParsedFlags) -> str:
    """Return the flag that names the form of the command. Refuse flags of any other form beside
    it."""
    forms = [name for name in FORMS if name in given]
    surfaces = [name for name in ("--serve", "--http") if name in given]
    if len(forms) > 1:
        raise UsageRefused(f"{forms[0]} contradicts {forms[1]}: give one of them")
    if forms and JOIN in given:
        raise UsageRefused(f"{forms[0]} contradicts {JOIN}: give one of them")
    if forms and surfaces:
        raise UsageRefused(f"{forms[0]} contradicts {surfaces[0]}: it does not serve")
    if not surfaces:
        stray = [flag.name for flag in flags.FLAGS if flag.serving_only and flag.name in given]
        if stray:
            raise UsageRefused(
                f"{stray[0]} applies to a serving node: it needs --serve or --http"
                + (f", which {forms[0]} contradicts" if forms else "")
            )
    for flag in flags.FLAGS:
        if flag.beside and flag.name in given and not any(form in given for form in flag.beside):
            raise UsageRefused(f"{flag.name} needs {' or '.join(flag.beside)}")
    if JOIN in given and not surfaces:
        return JOIN
    if not forms and not surfaces:
        raise UsageRefused(
            f"nothing to do: give --http, --serve, {_either((*FORMS, JOIN))}; see --help"
        )
    return forms[0] if forms else surfaces[0]


def _either(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _serve(given: flags.ParsedFlags, directory: str, environment: Mapping[str, str]) -> Serve:
    http, wire = (_address(given, name) for name in ("--http", "--serve"))
    if http is not None and http == wire and http.port != 0:
        raise UsageRefused(f"--http contradicts --serve: both use {http}")
    if ("--cert" in given) != ("--cert-key" in given):
        there, lacking = ("--cert", "--cert-key") if "--cert" in given else ("--cert-key", "--cert")
        raise UsageRefused(f"{there} needs {lacking}")
    return Serve(
        directory,
        http,
        wire,
        given.get("--cert"),
        given.get("--cert-key"),
        _setting_source(given, environment, "--backup-dir", "STORE_BACKUP_DIR")[1],
        _unseal_for(given, environment),
        _first_owner(environment, directory),
        _keep_log(given),
        _keep_statements(given),
        _opening(given),
        _log_level(given, environment),
        _lasting(given, environment, "--slow", "STORE_SLOW", SLOW, "it must be above zero"),
        _peers(given, environment, (http, wire)),
        _invitation(given, environment),
        _etcd(given, environment),
    )


def _setting_source(
    given: flags.ParsedFlags, environment: Mapping[str, str], flag: str, name: str
) -> tuple[str, str | None]:
    """Return the source and the text of a setting: its flag, else its environment variable.

    The text is None if neither is given.
    """
    text = given.get(flag)
    return (flag, text) if text is not None else (name, environment.get(name) or None)


def _invitation(given: flags.ParsedFlags, environment: Mapping[str, str]) -> Invitation:
    if JOIN in given:
        return Invitation(given.get(JOIN))
    return Invitation(token=flags.variable(environment, "STORE_JOIN_TOKEN"))


def _etcd(given: flags.ParsedFlags, environment: Mapping[str, str]) -> EtcdOptions:
    cert, key = given.get("--etcd-cert"), given.get("--etcd-key")
    if (cert is None) != (key is None):
        there, lacking = ("cert", "key") if key is None else ("key", "cert")
        raise UsageRefused(f"--etcd-{there} needs --etcd-{lacking}")
    user, password = (
        None if "--etcd-login" in given else flags.variable(environment, name)
        for name in ("STORE_ETCD_USER", "STORE_ETCD_PASSWORD")
    )
    if bool(user) != bool(password):
        there, lacking = ("USER", "PASSWORD") if user else ("PASSWORD", "USER")
        raise UsageRefused(f"STORE_ETCD_{there} is set without STORE_ETCD_{lacking}")
    credential = (user, password) if user and password else None
    login, in_clear = given.get("--etcd-login"), "--etcd-login-in-clear" in given
    return EtcdOptions(given.get("--etcd-ca"), cert, key, login, credential, in_clear)


def _peers(
    given: flags.ParsedFlags, environment: Mapping[str, str], taken: Sequence[Address | None]
) -> Peers | None:
    """:param taken: addresses on which the surfaces listen"""
    where, text = "--peer", given.get("--peer")
    if text is None:
        where, text = "STORE_PEER", flags.variable(environment, "STORE_PEER")
    cert, key = given.get("--peer-cert"), given.get("--peer-key")
    if (cert is None) != (key is None):
        there, lacking = ("cert", "key") if key is None else ("key", "cert")
        raise UsageRefused(f"--peer-{there} needs --peer-{lacking}")
    if text is None:
        if cert is not None:
            raise UsageRefused("--peer-cert needs --peer")
        return None
    try:
        address = addresses.parse(text)
    except addresses.AddressRefused as error:
        raise UsageRefused(f"{where}: {error}") from error
    if address in taken and address.port != 0:
        raise UsageRefused(f"{where} contradicts another flag: {address} is used twice")
    return Peers(address, cert, key)


def _unseal_for(given: flags.ParsedFlags, environment: Mapping[str, str]) -> timedelta:
    flag, variable = "--unseal-for", "STORE_UNSEAL_FOR"
    why = "it must be above zero"
    found = _lasting(given, environment, flag, variable, UNSEAL_FOR, why)
    if found > timedelta(seconds=limits.UNSEAL_SECONDS_MAX):
        days = limits.UNSEAL_SECONDS_MAX // 86_400
        where = flag if flag in given else variable
        raise UsageRefused(f"{where} is refused: it must be at most {days} days")
    return found


def _log_level(given: flags.ParsedFlags, environment: Mapping[str, str]) -> str:
    where, text = _setting_source(given, environment, "--log-level", "STORE_LOG_LEVEL")
    if text is None:
        return "info"
    if text not in LEVELS:
        raise UsageRefused(f"{where}: {text} is not a level: expected one of {', '.join(LEVELS)}")
    return text


def _keep_log(given: flags.ParsedFlags) -> timedelta | int | None:
    text = given.get("--keep-log")
    if text is None:
        return None
    try:
        kept = parse_duration(text) if _DURATION.match(text) else parse_size(text)
    except Refusal as error:
        raise UsageRefused(f"--keep-log: {error.message}") from error
    if not kept or text.startswith("-"):
        raise UsageRefused(
            f"--keep-log: {text} is refused: expected a duration or a size above zero"
        )
    return kept


def _keep_statements(given: flags.ParsedFlags) -> int:
    text = given.get("--keep-statements")
    if text is None:
        return limits.ENTRIES_KEPT
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise UsageRefused(
            f"--keep-statements: {text[:40]} is refused: expected a number of entries"
        )
    return int(text)


def _sequence(given: flags.ParsedFlags, name: str, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise UsageRefused(f"{name}: {text[:40]} is refused: expected a sequence, {least} or above")
    return int(text)


def _opening(given: flags.ParsedFlags) -> Opening:
    jump, rebuild = "--accept-clock-jump" in given, "--rebuild-state" in given
    return Opening(jump, rebuild, keys.files(given))


def _address(given: flags.ParsedFlags, name: str) -> Address | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return addresses.parse(text)
    except addresses.AddressRefused as error:
        raise UsageRefused(f"{name}: {error}") from error


def _lasting(
    given: flags.ParsedFlags,
    environment: Mapping[str, str],
    flag: str,
    variable: str,
    default: timedelta,
    why: str,
) -> timedelta:
    """Return the duration of a flag, or of its variable.

    :param why: reason in the refusal of a duration of zero or less
    """
    where, text = _setting_source(given, environment, flag, variable)
    if text is None:
        return default
    return flags.lasting(where, text, why)


def _first_owner(environment: Mapping[str, str], directory: str) -> FirstOwner | None:
    """Return the first owner of a new store, from STORE_USER and STORE_PASSWORD.

    For an existing store the variables are not checked: they may be a client's, which signs in at
    another node. The node refuses them if the store has no users after all.
    """
    user, password = environment.get("STORE_USER"), environment.get("STORE_PASSWORD")
    if not user and not password:
        return None
    if os.path.exists(os.path.join(directory, _MADE)):
        return FirstOwner(user or "", password or "")
    if not user or not password:
        there, lacking = (
            ("STORE_USER", "STORE_PASSWORD") if user else ("STORE_PASSWORD", "STORE_USER")
        )
        raise UsageRefused(f"{there} is set without {lacking}: the first owner needs both")
    try:
        check_name(user, "user")
    except Refusal as error:
        raise UsageRefused(f"STORE_USER: {error.message}") from error
    least, most = limits.PASSWORD_CHARACTERS_MIN, limits.PASSWORD_CHARACTERS_MAX
    if not least <= len(password) <= most:
        raise UsageRefused(f"STORE_PASSWORD: a password must have {least} to {most} characters")
    return FirstOwner(user, password)
