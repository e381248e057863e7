"""The life of a transaction, written once: begin, authorize and work, commit, again on conflict.

A *unit* is the requests that share a transaction, or one request alone. It supplies the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from actors.execution.conflict_retry import ConflictRetry
from protocol.errors import Refusal
from storage.txn.tickets import CommitTicket

if TYPE_CHECKING:
    from actors.commits.committer import Author, Committer
    from actors.execution.fiber import Fiber
    from storage.formats.entries import Entry
    from storage.txn.transaction import Transaction


class Unit(Protocol):
    """Requests that share one transaction (`transact`), or one request alone."""

    blocked_by_lock: bool
    """True if another's priority lock has blocked the transaction."""
    saw: CommitTicket
    """Ticket that the refusal of the transaction rests on."""

    def work(self, tx: Transaction) -> None:
        """Do the work of one transaction. :raises Refusal: nothing of it may happen"""

    def attribution(self) -> tuple[Author, str | None, str | None, Entry | None]:
        """Return what `Committer.commit` records: author, statement, reason and entry."""


class PausingUnit(Unit, Protocol):
    """Unit whose transaction may pause, in a fiber, and so may conflict with others' commits
    (`transact_in_fiber`)."""

    fiber: Fiber
    retry: ConflictRetry | None
    """Its retries; None: no attempt has failed."""

    @property
    def id(self) -> str:
        """Id of the request."""

    def begin_attempt(self) -> Transaction:
        """Begin the next attempt from the state before the first."""

    def on_committed(self, ticket: CommitTicket) -> None:
        """Complete the attempt: its changes, if any, are committed.

        :param ticket: as `transact` returns it
        """

    def is_conflict(self, refusal: Refusal) -> bool:
        """True if an attempt was refused because of commits, or roll backs, of others."""

    def refused(self, refusal: Refusal) -> Refusal:
        """Return the refusal of a transaction that is not run again."""

    def end_attempt(self) -> None:
        """Hold nothing of an attempt any more, whatever its outcome."""

    def before_retry(self, retry: ConflictRetry) -> None:
        """Wait until the next attempt may begin. :raises Refusal: the request is ended"""


def transact(committer: Committer, unit: Unit, tx: Transaction | None = None) -> CommitTicket:
    """Do a unit's work in one transaction. Return the ticket that its answers rest on.

    :param tx: the transaction; None: a new one
    :raises Refusal: nothing of it has happened, and the refusal rests on what the unit `saw`. If it
        is `blocked_by_lock` now, it may run again when the priority lock is gone
    """
    if tx is None:
        tx = committer.begin_transaction()
    try:
        unit.work(tx)
        # It has ended already if the work has cancelled it.
        if not tx.size or tx.reads.ended:
            tx.release()
            return tx.ticket
        return committer.commit(tx, *unit.attribution())
    except BaseException:
        unit.blocked_by_lock, unit.saw = tx.blocked_by_lock, tx.ticket
        tx.release()
        raise


def transact_in_fiber(committer: Committer, unit: PausingUnit) -> None:
    """Do a unit's work in one transaction, as `transact`, in its fiber; again after a conflict.

    :raises Refusal: that of `PausingUnit.refused`: nothing of it has happened; or the unit is ended
        before it could run again
    """
    while True:
        tx = unit.begin_attempt()
        retry = unit.retry
        if retry is not None:
            retry.start_attempt(tx)
        try:
            unit.on_committed(transact(committer, unit, tx))
            return
        except Refusal as refusal:
            if retry is None:
                retry = unit.retry = ConflictRetry(committer, unit.fiber, unit.id)
            if not retry.may_retry(refusal, tx, lost=unit.is_conflict(refusal)):
                raise unit.refused(refusal) from refusal.__cause__
        finally:
            # Before a retry or a wait: neither holds a snapshot meanwhile.
            unit.end_attempt()
        del tx  # it may hold 64 MiB of changes
        unit.before_retry(retry)
