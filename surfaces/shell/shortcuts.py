r"""Shortcuts `\d`, `\t` and so on: each runs an INFO statement, and shows the most useful part of
its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from language.functions import TABLE
from language.keywords import quote
from language.names import DEFINED
from protocol.errors import Refusal
from protocol.text import check_name
from storeclient.errors import NotAllowed, Unknown
from surfaces.shell.forms import OutputFormat, Tables
from surfaces.shell.session import ShellSession
from surfaces.shell.values import from_client

ENTRIES: Final = 20
"""Number of entries shown from the statement log."""


class ShortcutRefused(Exception):
    """Unknown shortcut, or a wrong argument; the message is for people."""


class Quit(Exception):
    """The user leaves the shell."""


@dataclass
class Shortcuts:
    """Context of a shell's shortcuts."""

    session: ShellSession
    form: OutputFormat
    print_notice: Callable[[str], None]
    run_file: Callable[[str], Awaitable[None]] | None = None
    """Runs a file for `\\i`; None where there is no `\\i`."""

    async def run(self, line: str) -> None:
        """Run a line that begins with a backslash.

        :raises ShortcutRefused: unknown shortcut, or a wrong argument
        :raises Quit: it is `\\q`
        :raises StoreError: as a script
        """
        word, *arguments = line.strip().rstrip(";").split()
        shortcut = BY_WORD.get(word)
        if shortcut is None:
            raise ShortcutRefused(f"unknown shortcut {word}: \\? lists them")
        if len(arguments) > (1 if shortcut.argument else 0):
            raise ShortcutRefused(f"too many arguments: write {word} {shortcut.argument}".rstrip())
        if not arguments and shortcut.argument.startswith("<"):
            raise ShortcutRefused(f"{word} needs {shortcut.argument}")
        await shortcut.act(self, *arguments)

    async def ask(self, statement: str) -> Any:
        """Return the value of a statement."""
        return from_client((await self.session.run(statement)).value)


async def _describe(here: Shortcuts, table: str = "") -> None:
    if table:
        info = await here.ask(f"INFO FOR TABLE {_named(table)}")
        here.form.rows(f"fields of {table}", info["fields"])
        here.form.rows(f"indexes of {table}", info["indexes"])
        return
    info = await here.ask("INFO FOR DATABASE")
    tables = [
        {
            "table": one["name"],
            "records": one["records"],
            "schemafull": one["schemafull"],
            "indexes": [index["name"] for index in one["indexes"]],
            "comment": one["comment"],
        }
        for one in info["tables"]
    ]
    here.form.rows(f"tables of {info['namespace']}.{info['name']}", tables)


async def _topics(here: Shortcuts, topic: str = "") -> None:
    if topic:
        info = await here.ask(f"INFO FOR TOPIC {_named(topic)}")
        here.form.rows(f"readers of {topic}", info["readers"])
        groups = [
            {name: one[name] for name in ("name", "lag", "in_flight", "committed", "handed_out")}
            for one in info["groups"]
        ]
        here.form.rows(f"groups of {topic}", groups)
        return
    info = await here.ask("INFO FOR DATABASE")
    shown = ("name", "messages", "last_position", "keep", "max_bytes", "comment")
    here.form.rows("topics", [{name: one[name] for name in shown} for one in info["topics"]])


async def _spaces(here: Shortcuts, space: str = "") -> None:
    if space:
        here.form.rows(f"space {space}", [await here.ask(f"INFO FOR SPACE {_named(space)}")])
    else:
        here.form.rows("spaces", (await here.ask("INFO FOR DATABASE"))["spaces"])


async def _places(here: Shortcuts) -> None:
    found = []
    for one in (await here.ask("INFO FOR STORE"))["namespaces"]:
        info = await here.ask(f"INFO FOR NAMESPACE {quote(one['name'])}")
        found += [
            {"namespace": one["name"], "database": database["name"], "comment": database["comment"]}
            for database in info["databases"]
        ] or [{"namespace": one["name"], "database": None, "comment": one["comment"]}]
    here.form.rows("databases", found)


async def _users(here: Shortcuts) -> None:
    here.form.rows("users", await here.ask("INFO FOR USERS"))


async def _node(here: Shortcuts) -> None:
    info = await here.ask("INFO FOR NODE")
    shown = ("id", "version", "roles", "sequence", "log_begins", "uptime")
    here.form.rows("node", [{name: info[name] for name in shown}])


async def _leader(here: Shortcuts) -> None:
    welcome = await here.session.follow_leader()
    if welcome.writable is False:
        named = ", ".join(welcome.leader)
        raise ShortcutRefused(
            f"no connection to {named}, which takes changes"
            if named
            else "this node knows no node that takes changes"
        )
    here.print_notice(f"connected to node {welcome.node}, which takes changes")


async def _running(here: Shortcuts) -> None:
    shown = ("id", "user", "since", "waiting", "statement", "text")
    rows = await here.ask("INFO FOR RUNNING")
    here.form.rows("running", [{name: one[name] for name in shown} for one in rows])


async def _kill(here: Shortcuts, request: str) -> None:
    await here.session.run("KILL $id", {"id": request})
    here.print_notice(f"asked {request} to end")


async def _log(here: Shortcuts, user: str | None = None) -> None:
    of = "" if user is None else f" OF {_named(user)}"
    shown = ("seq", "at", "user", "statement", "reason", "refused")
    rows = await here.ask(f"INFO FOR STATEMENTS LIMIT {ENTRIES}{of}")
    here.form.rows("statements", [{name: one[name] for name in shown} for one in rows])


async def _use(here: Shortcuts, place: str) -> None:
    namespace, dot, database = place.partition(".")
    names = _named(namespace) + (f".{_named(database)}" if dot else "")
    # Sent to the node, so that a missing database is refused here and not at each statement.
    await here.session.run(f"USE {names}" if dot else f"USE NAMESPACE {names}")


async def _functions(here: Shortcuts, prefix: str = "") -> None:
    rows = [
        {"function": function.signature, "answers": " ".join(function.doc.split())}
        for _, function in sorted(TABLE.items())
    ]
    rows += await _defined(here)
    here.form.rows("functions", [row for row in rows if row["function"].startswith(prefix)])


async def _defined(here: Shortcuts) -> list[dict[str, str]]:
    """Return the functions that the database defines; none if the user lacks the privilege."""
    if None in here.session.place:
        return []
    try:
        found = (await here.ask("INFO FOR DATABASE"))["functions"]
    except (NotAllowed, Unknown):
        return []  # functions of the language are shown to every user
    return [{"function": _signature(one), "answers": one["comment"] or ""} for one in found]


def _signature(function: Any) -> str:
    parameters = ", ".join(f"${one['name']}: {one['type']}" for one in function["parameters"])
    returns = "" if function["returns"] is None else f" -> {function['returns']}"
    return f"{DEFINED}{function['name']}({parameters}){returns}"


async def _timing(here: Shortcuts) -> None:
    tables = _tables(here)
    tables.timing = not tables.timing
    here.print_notice(f"times are {'shown' if tables.timing else 'not shown'}")


async def _expanded(here: Shortcuts) -> None:
    tables = _tables(here)
    tables.expanded = {None: True, True: False, False: None}[tables.expanded]
    said = {None: "as the width allows", True: "one below the other", False: "in tables"}
    here.print_notice(f"records are shown {said[tables.expanded]}")


async def _include(here: Shortcuts, path: str) -> None:
    if here.run_file is None:
        raise ShortcutRefused("\\i works only at the prompt: give the file with -f")
    await here.run_file(path)


async def _help(here: Shortcuts) -> None:
    here.form.rows(
        "shortcuts",
        [
            {"shortcut": f"{one.word} {one.argument}".rstrip(), "does": one.help}
            for one in SHORTCUTS
        ],
    )


async def _quit(here: Shortcuts) -> None:
    raise Quit


def _tables(here: Shortcuts) -> Tables:
    if not isinstance(here.form, Tables):
        raise ShortcutRefused("this applies to tables only: leave out --json and --csv")
    return here.form


def _named(name: str) -> str:
    """Return a typed name, quoted or not, as it is written in a statement."""
    try:
        return quote(check_name(name.strip("`")))
    except Refusal as error:
        raise ShortcutRefused(error.message) from error


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A shortcut. An argument in `<>` is required, one in `[]` is optional."""

    word: str
    argument: str
    help: str
    act: Callable[..., Awaitable[None]]


SHORTCUTS: Final = (
    Shortcut(
        "\\d", "[table]", "the tables of the database, or fields and indexes of one", _describe
    ),
    Shortcut("\\t", "[topic]", "the topics, or readers and groups of one", _topics),
    Shortcut("\\s", "[space]", "the cache spaces, or one", _spaces),
    Shortcut("\\l", "", "the namespaces and their databases", _places),
    Shortcut("\\u", "", "the users", _users),
    Shortcut("\\n", "", "the node", _node),
    Shortcut("\\leader", "", "connect to the leader, and stay with it", _leader),
    Shortcut("\\r", "", "running statements", _running),
    Shortcut("\\kill", "<id>", "cancel a running statement", _kill),
    Shortcut("\\log", "[user]", "newest entries of the statement log, or those of one user", _log),
    Shortcut(
        "\\f",
        "[prefix]",
        "functions, also those of the database: \\f string, \\f fn::",
        _functions,
    ),
    Shortcut("\\use", "<ns.db>", "change the current database", _use),
    Shortcut("\\i", "<file>", "run a file as one script", _include),
    Shortcut("\\timing", "", "turn times on or off", _timing),
    Shortcut(
        "\\x", "", "show records expanded, as tables, or by the width of the screen", _expanded
    ),
    Shortcut("\\?", "", "show this list", _help),
    Shortcut("\\q", "", "quit (or Ctrl-D)", _quit),
)
BY_WORD: Final = {one.word: one for one in SHORTCUTS}
