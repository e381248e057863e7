"""Names in the present database, fetched by INFO statements for completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from language.keywords import quote
from language.names import DEFINED
from storeclient import Refused, StoreError
from surfaces.shell.session import ShellSession
from surfaces.shell.values import from_client

MOST_TABLES: Final = 100
"""Maximum number of tables whose fields are fetched: more would cost the node too much."""
ID: Final = "id"


@dataclass
class Names:
    """Names by kind."""

    namespaces: list[str] = field(default_factory=list)
    databases: list[str] = field(default_factory=list)
    """Names as `ns.db`."""
    tables: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    spaces: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    """Functions defined by the database, with their prefix."""
    fields: dict[str, list[str]] = field(default_factory=dict)
    """Fields by table: the defined ones, and those of its first record."""


async def learn(session: ShellSession) -> Names | None:
    """Fetch the names that the user may see. None on failure: the former names are kept."""
    try:
        return await _learn(session)
    except StoreError:
        # This runs in the background. A lasting error is reported by the next statement.
        return None


async def _learn(session: ShellSession) -> Names:
    names = Names()
    store = await _ask(session, "INFO FOR STORE")
    if store is not None:
        names.namespaces = [one["name"] for one in store["namespaces"]]
        for namespace in names.namespaces:
            info = await _ask(session, f"INFO FOR NAMESPACE {quote(namespace)}")
            found = info["databases"] if info else []
            names.databases += [f"{namespace}.{one['name']}" for one in found]
    if None in session.place:
        return names
    info = await _ask(session, "INFO FOR DATABASE")
    if info is not None:
        names.tables, names.topics, names.spaces = (
            [one["name"] for one in info[kind]] for kind in ("tables", "topics", "spaces")
        )
        names.functions = [f"{DEFINED}{one['name']}" for one in info["functions"]]
    for table in names.tables[:MOST_TABLES]:
        names.fields[table] = await _fields(session, table)
    return names


async def _fields(session: ShellSession, table: str) -> list[str]:
    info = await _ask(session, f"INFO FOR TABLE {quote(table)}")
    defined = [one["name"] for one in info["fields"]] if info else []
    # Field names only: a record may have megabytes.
    rows = await _ask(session, f"SELECT VALUE object::keys($this) FROM {quote(table)} LIMIT 1")
    seen = rows[0] if rows else [ID]
    return list(dict.fromkeys([*defined, *seen]))


async def _ask(session: ShellSession, statement: str) -> Any:
    """Return the value of a statement; None if the user lacks the privilege."""
    try:
        return from_client(await session.query_quietly(statement))
    except Refused:
        return None
