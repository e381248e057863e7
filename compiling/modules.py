"""List of the compiled modules, and the state of a tree: plain or compiled."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The tree that this file belongs to: a checkout, or its compiled copy."""
ROOMS: Final = ("protocol", "language", "storage", "actors", "surfaces")
SUFFIX: Final = str(sysconfig.get_config_var("EXT_SUFFIX"))
"""Suffix of extension modules of this interpreter."""
LIBRARY: Final = "storenode__mypyc"
"""Library with the code of all of them; each other extension module is a shim to its part."""

MODULES: Final = (
    # The commit pipeline, and the waiters for its tickets.
    "actors.commits.applier",
    "actors.commits.committer",
    "actors.commits.group_commit",
    "actors.commits.idle_marks",
    "actors.commits.tail",
    "actors.commits.tickets",
    "actors.execution.blocking",
    "actors.execution.executor",
    "actors.execution.fiber",
    "actors.execution.loop_budget",
    "actors.execution.registry",
    "actors.execution.request",
    "actors.execution.transact",
    "actors.execution.units",
    # Operations on messages, gathered.
    "actors.messages.engine",
    "actors.messages.operations",
    "actors.messages.request",
    "actors.messages.texts",
    # Sessions and their privileges.
    "actors.rights",
    "actors.runtime.asking",
    "actors.runtime.inboxes",
    # A script, from its request to its answer.
    "actors.scripts.answer_sizes",
    "actors.scripts.authorizer",
    "actors.scripts.execution",
    "actors.scripts.inserting",
    "actors.scripts.plans",
    "actors.scripts.reading",
    "actors.scripts.request",
    "actors.scripts.restoring",
    "actors.scripts.script_state",
    "actors.scripts.steps",
    "actors.scripts.transactions",
    "actors.scripts.writing",
    "actors.securables",
    "actors.sessions",
    # Operations on keys.
    "actors.spaces.access_cache",
    "actors.spaces.operations",
    "actors.spaces.request",
    "actors.spaces.service",
    "actors.topics.deadlines",
    "actors.topics.waiting",
    # Whatever comes in, goes out or is stored is decoded, checked, ordered and encoded by these.
    "protocol.binary",
    "protocol.conversation",
    "protocol.foreign",
    "protocol.frames",
    "protocol.jsonsteps",
    "protocol.jsonvalues",
    "protocol.order",
    "protocol.text",
    "protocol.values",
    "protocol.weights",
    # Every statement and operation is a transaction of these, or reads the present state by them.
    "storage.formats.effects",
    "storage.formats.frames",
    "storage.formats.keys",
    "storage.keyspace.keyspace",
    "storage.records.records",
    "storage.topics.deliveries.acks",
    "storage.topics.deliveries.delivery",
    "storage.topics.deliveries.expiry",
    "storage.topics.deliveries.fetch",
    "storage.topics.deliveries.group",
    "storage.topics.deliveries.index",
    "storage.topics.groups",
    "storage.topics.message_rows",
    "storage.topics.messages",
    "storage.txn.appends",
    "storage.txn.catalog_cache",
    "storage.txn.committed_state",
    "storage.txn.key_sorting",
    "storage.txn.latest",
    "storage.txn.ledger",
    "storage.txn.log_time",
    "storage.txn.read_set",
    "storage.txn.snapshots",
    "storage.txn.tickets",
    "storage.txn.trail_rows",
    "storage.txn.transaction",
    "storage.txn.validation",
    "storage.txn.write_set",
    # A wire connection, from bytes to requests and back.
    "surfaces.admission",
    "surfaces.background_tasks",
    "surfaces.counters",
    "surfaces.flush_queue",
    "surfaces.http.answers",
    "surfaces.http.backups",
    "surfaces.http.body_weights",
    "surfaces.http.callers",
    "surfaces.http.connection",
    "surfaces.http.credentials",
    "surfaces.http.exchange",
    "surfaces.http.fast_path",
    "surfaces.http.head",
    "surfaces.http.intake",
    "surfaces.http.queries",
    "surfaces.http.reading",
    "surfaces.http.results",
    "surfaces.http.router",
    "surfaces.http.running",
    "surfaces.http.script_request",
    "surfaces.http.scripts",
    "surfaces.http.vaults",
    "surfaces.http.write_buffer",
    "surfaces.memory_quota",
    "surfaces.sockets",
    "surfaces.wire.bodies",
    "surfaces.wire.callers",
    "surfaces.wire.connection",
    "surfaces.wire.gate",
    "surfaces.wire.keys",
    "surfaces.wire.messages",
    "surfaces.wire.scripts",
    "surfaces.wire.shared",
    "surfaces.wire.spaces",
    "surfaces.wire.topics",
    "surfaces.wire.write_buffer",
)
"""Modules on the path of each request, as far as they compile unchanged. Exceptions and reasons:
docs/decisions/compiled.md. Their gain was measured together, not one by one."""


def source(module: str) -> str:
    """Return the path of a module's source in a tree."""
    return f"{module.replace('.', '/')}.py"


def compiled(tree: Path = ROOT) -> list[str]:
    """Return the compiled modules of a tree, sorted; empty: the tree is plain."""
    found = [path for room in ROOMS for path in (tree / room).rglob(f"*{SUFFIX}")]
    names = (path.relative_to(tree).as_posix().removesuffix(SUFFIX) for path in found)
    return sorted(name.replace("/", ".") for name in names)
