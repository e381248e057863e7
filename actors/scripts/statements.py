"""INFO FOR STATEMENTS and INFO FOR AUDIT: entries of the statement log and the audit trail."""

from __future__ import annotations

from typing import Final

from actors.rights import Shown
from actors.scripts.execution import Execution
from actors.scripts.handlers import handles
from language import tree
from protocol import limits
from protocol.errors import BadRequest, TypeRefused
from protocol.values import Value, type_name
from storage.audit.trail import LoggedEntry, newest
from storage.formats.entries import AUDIT, STATEMENTS
from storage.txn.transaction import Transaction

_WHERE: Final = {"STATEMENTS": STATEMENTS, "AUDIT": AUDIT}


@handles(tree.InfoEntries, "info", writes=False, needs=[])
def info_for_entries(run: Execution, statement: tree.InfoEntries) -> Value:
    """Return entries that the caller may see, newest first.

    A transaction of its own reads them. Otherwise a script that also writes would conflict with
    every other write of the store.

    :raises Unknown: a caller that is no owner asks for another user's
    :raises NotAllowed: a caller that is no owner asks for the audit trail
    """
    before = whole_number(run, statement.before, "BEFORE")
    limit = whole_number(run, statement.limit, "LIMIT")
    most = limits.ENTRIES_SHOWN if limit is None else limit
    if not 0 <= most <= limits.ENTRIES_SHOWN_MAX:
        most_of_all = limits.ENTRIES_SHOWN_MAX
        raise BadRequest(f"LIMIT of entries is 0 to {most_of_all}", limit=most_of_all)
    if before is not None and before < 0:
        raise BadRequest("BEFORE takes a sequence, 0 or more")
    # Touches the user's place in the script's transaction: the statement log attributes it.
    run.rights.of_whom(run.transaction, run.caller, statement.user)
    with run.reading_beside() as tx:
        # Authorized in the transaction that reads: entries and privileges are of one state.
        shown = _shown(run, tx, statement)
        # The loop yields: without a pause it would mix several states.
        tx.pause()
        found: list[Value] = []
        for some in newest(tx, _WHERE[statement.subject], before) if most else ():
            run.tick()
            found += [_described(kept) for kept in map(shown, some) if kept is not None]
            if len(found) >= most:
                break
    # A batch may hold more than LIMIT.
    return found[:most]


def _shown(run: Execution, tx: Transaction, statement: tree.InfoEntries) -> Shown:
    user = statement.user
    if statement.subject == "STATEMENTS":
        return run.rights.entries(tx, run.caller, user)
    audited = run.rights.audited(tx, run.caller)
    return lambda kept: audited(kept) if user is None or kept.user == user else None


def _described(kept: LoggedEntry) -> dict[str, Value]:
    entry = kept.entry
    return {
        "seq": kept.sequence,
        "at": kept.at,
        "user": kept.user or None,
        "surface": kept.surface,
        "address": entry.address,
        "request": entry.request or None,
        "namespace": entry.namespace,
        "database": entry.database,
        "action": entry.action or "statement",
        "statement": kept.statement,
        "reason": kept.reason,
        "refused": entry.refused,
        "needs": entry.needs,
        "more": entry.more,
        "node": kept.node,
        "happened": kept.happened,
    }


def whole_number(run: Execution, expression: tree.Expression | None, clause: str) -> int | None:
    """Return the value of a clause; None: it is not given. :raises TypeRefused: no whole number"""
    if expression is None:
        return None
    found = run.evaluate(expression)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeRefused(f"{clause} takes a whole number, not {type_name(found)}")
    return found
