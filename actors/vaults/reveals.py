"""Reveals: shows values of vaults. Each is authorized, recorded in a group commit, and answered
once its entry is durable.

- Requests of one loop iteration, and those that come while the log writes a batch, are handled
  together (`actors/execution/units.py`), a slice of the loop at a time. If several came
  together lately, one slice is spent waiting for more.
- Each is authorized and found by itself. Its refusal refuses no other.
- Requests of one user over one surface in one database share a commit. Each has an entry in the
  trail; the statement log has one entry that counts the others. A refusal or roll back of that
  commit refuses all of them.
- Recorded values are decrypted once the commit is durable, a slice at a time, yielding in between.
  A vault that was sealed meanwhile stays closed.

No other module decrypts a sealed value for a client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from actors.execution.blocking import CallbackWait, Resume
from actors.execution.transact import transact
from actors.execution.units import SharedUnit, UnitQueue
from actors.vaults.inspection import Inspector, SealedRecord
from actors.vaults.keyring import Keyring, changed
from actors.vaults.parts import VaultParts
from actors.vaults.trail import Trail, VaultAct
from protocol import limits
from protocol.errors import AuditRefused, DiskFull, Draining, Failed, Refusal
from protocol.rights import READ
from protocol.values import NONE, Value
from storage.audit.trail import after
from storage.formats.entries import Entry
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction
from storage.vaults import vaults
from storage.vaults.rows import KeysRow, StoreRow
from storage.vaults.vaults import Vault

TOGETHER: Final = 256
"""Maximum requests in one commit."""


@dataclass(frozen=True, slots=True)
class RevealRequest:
    """Request to reveal a value, or to list ids."""

    act: VaultAct
    """Act as the trail records it. Its caller and its vault, authorized so far, are set."""
    statement: str
    """Text of the requesting statement, without secrets."""
    place: tuple[str | None, str | None]
    """Namespace and database selected for the statement."""
    id: bytes | None = None
    """Id of the record to reveal; None: ids are listed, and no value is decrypted."""
    version: int | None = None
    """Version of the record; None: the newest."""


class PendingReveal:
    """Reveal in progress.

    :param told: called once it is complete, never before `Reveals.ask` has returned
    """

    __slots__ = ("act", "found", "look", "over", "refusal", "told", "value")

    def __init__(self, look: RevealRequest, told: Callable[[], None]) -> None:
        self.look = look
        self.told = told
        self.act = look.act
        """The act with the version that was found."""
        self.found: SealedRecord | None = None
        self.value: Value = NONE
        """Decrypted value, once complete and not refused."""
        self.refusal: Refusal | None = None
        self.over = False

    def leave(self) -> None:
        """Cancel: the client is gone. `told` is not called, and no value is decrypted."""
        self.over = True


Whose = tuple[str, str, str, str]
"""Key of requests that share a commit: user, surface, namespace and database."""

Known = dict[str, tuple[Vault, KeysRow]]
"""Vaults and their keys by name, authorized for one user in one transaction. Its reads of
privileges are stable, so one check per vault is enough."""

_Rows = tuple[StoreRow | None, KeysRow]


class Reveals:
    """Queue and processing of reveals. On the loop only."""

    def __init__(self, parts: VaultParts, keyring: Keyring, trail: Trail) -> None:
        self._runtime = parts.runtime
        self._monotonic_us = parts.runtime.clock.monotonic_us
        self._committer = parts.committer
        self._rights = parts.rights
        self._sessions = parts.sessions
        self._statements = parts.statements
        self._keyring = keyring
        self._trail = trail
        self._inspector = Inspector(keyring, trail)
        self.units: UnitQueue[PendingReveal] = UnitQueue(
            parts.runtime, parts.committer, self._record_together, self._find_some,
            _text, self._refuse_at_stop,
        )  # fmt: skip
        self._recorded: deque[PendingReveal] = deque()
        """Requests whose entries are durable, to be decrypted."""
        self.commits = 0
        """Commits made."""

    def ask(self, look: RevealRequest, told: Callable[[], None]) -> PendingReveal:
        """Queue a reveal."""
        asked = PendingReveal(look, told)
        self.units.add(_whose(look), asked)
        return asked

    def close(self) -> None:
        """Refuse all unanswered requests: the node stops."""
        recorded, self._recorded = self._recorded, deque()
        for asked in recorded:
            self._refuse_at_stop(asked)
        self.units.stop()

    def _refuse_at_stop(self, asked: PendingReveal) -> None:
        self._refuse((asked,), Draining("the node is stopping"))

    # --- recording --------------------------------------------------------------------------------

    def _record_together(self, unit: SharedUnit[PendingReveal]) -> None:
        """Authorize and find requests, and record them in one commit."""
        found = unit.done
        try:
            ticket = transact(self._committer, unit)
        except Exception as error:
            if not found:
                raise
            self._refuse(found, self._refusal_of(error, found[0]))
        else:
            if found:
                self.commits += 1
                self._when_released(ticket, partial(self._open_later, found))
        if unit.refused:  # a refusal depends on the commits that were read
            self._when_released(unit.read, partial(self._complete_refused, unit.refused))

    def _find_some(self, tx: Transaction, unit: SharedUnit[PendingReveal]) -> None:
        """Authorize and find requests for a slice, up to a number, and add them to the trail."""
        tx.ignores_locks = True
        queue, found, known = unit.queue, unit.done, Known()
        while queue and len(found) < TOGETHER:
            asked = self.units.pop(queue)
            if asked.over:
                continue
            try:
                self._find(tx, asked, known)
                found.append(asked)
            except Exception as error:
                asked.refusal = self._refusal_of(error, asked)
                unit.refused.append(asked)
            if self._monotonic_us() >= self.units.until_us:
                break
        unit.read = tx.ticket
        if found:
            unit.entry = self._record(tx, found)

    def _when_released(self, ticket: CommitTicket, told: Resume) -> None:
        self._committer.block(CallbackWait(told, self._monotonic_us()), ticket)

    def _find(self, tx: Transaction, asked: PendingReveal, known: Known) -> None:
        """Authorize a request now, and find its value. :raises Refusal: as in `Inspector.find`"""
        look = asked.look
        assert look.act.caller is not None, "somebody looks into some vault"
        self._sessions.check_authenticated(look.act.caller)
        vault, keys = self._authorize_vault(tx, look, known)
        assert look.act.vault is not None
        if vault.id != look.act.vault.id:
            raise changed(vault)  # the vault was dropped, and another declared with its name
        if look.id is None:
            self._keyring.check_open(vault)
            return
        asked.found = found = self._inspector.find(tx, vault, keys, look.id, look.version)
        asked.act = replace(look.act, version=found.version)

    def _authorize_vault(
        self, tx: Transaction, look: RevealRequest, known: Known
    ) -> tuple[Vault, KeysRow]:
        """Return the authorized vault and its keys. :raises Unknown, NotAllowed:"""
        caller, vault = look.act.caller, look.act.vault
        assert caller is not None and vault is not None, "somebody looks into some vault"
        found = known.get(vault.name)
        if found is None:
            database = vault.database
            place = database.namespace.name, database.name
            judged = self._rights.vault(tx, caller, place, vault.name, READ)
            found = known[vault.name] = judged, vaults.keys_row(tx, judged)
        return found

    def _record(self, tx: Transaction, found: list[PendingReveal]) -> Entry:
        """Add the entries of requests to the trail. Return that of the statement log."""
        first = found[0].look
        caller = first.act.caller
        assert caller is not None
        for asked in found:
            key = None if asked.found is None else asked.found.key
            self._trail.add(tx, asked.act, key=key)
        entry = self._statements.of(tx, caller, first.act.request, first.place, False)
        return after(entry, len(found) - 1)

    # --- answering --------------------------------------------------------------------------------

    def _complete_refused(self, refused: list[PendingReveal], lost: BaseException | None) -> None:
        """Answer refusals once the commits that they depend on are released, or lost."""
        for asked in refused:
            if lost is None:
                self._complete(asked)
            else:
                self._refuse((asked,), self._refusal_of(lost, asked))

    def _open_later(self, found: list[PendingReveal], lost: BaseException | None) -> None:
        """Queue requests for decryption once their entries are durable; refuse them if these are
        lost."""
        if lost is not None:
            self._refuse(found, self._refusal_of(lost, found[0]))
            return
        if not self._recorded:
            self._runtime.loop.call_soon(self._open_some)
        self._recorded.extend(found)

    def _open_some(self) -> None:
        """Decrypt recorded requests for one slice, and yield before the rest."""
        until_us = self._monotonic_us() + limits.SLICE_US
        recorded, known = self._recorded, dict[int, _Rows]()
        refused = list[PendingReveal]()
        if not recorded:
            return
        with self._committer.begin_transaction() as tx:
            while recorded:
                asked = recorded.popleft()
                if asked.over:
                    continue
                try:
                    self._open(tx, asked, known)
                except Exception as error:
                    asked.refusal = self._refusal_of(error, asked)
                    refused.append(asked)
                else:
                    self._complete(asked)
                if self._monotonic_us() >= until_us:
                    break
        if refused:  # keys may be missing only in an unreleased commit
            self._when_released(tx.ticket, partial(self._complete_refused, refused))
        if recorded:
            self._runtime.loop.call_soon(self._open_some)

    def _open(self, tx: Transaction, asked: PendingReveal, known: dict[int, _Rows]) -> None:
        """Decrypt the value of a request.

        :param known: rows read so far in this transaction, by vault number
        :raises Refusal: as in `Inspector.open`
        """
        found = asked.found
        if found is None:
            assert asked.act.vault is not None
            self._keyring.check_open(asked.act.vault)
            return
        vault = found.vault
        rows = known.get(vault.id)
        if rows is None:
            rows = known[vault.id] = vaults.store_row(tx), vaults.keys_row(tx, vault)
        asked.value = self._inspector.open(found, *rows)

    def _refuse(self, many: Sequence[PendingReveal], refusal: Refusal) -> None:
        for asked in many:
            asked.refusal = refusal.also()  # a copy, since the place of the refusal is added to it
            self._complete(asked)

    def _complete(self, asked: PendingReveal) -> None:
        if asked.over:
            return
        asked.over = True
        try:
            asked.told()
        except Exception as error:  # a bug in one callback must not affect other requests
            self._runtime.report_error("reveals", error, request=asked.act.request)

    def _refusal_of(self, error: BaseException, asked: PendingReveal) -> Refusal:
        """Return the refusal for an error. Any error but a refusal is a bug, or a failed state
        engine."""
        request = asked.act.request
        if isinstance(error, DiskFull):
            refused = AuditRefused(
                "there is no room on the disk for the audit entry, so nothing is shown"
            )
            refused.__cause__ = error
            return refused
        if isinstance(error, Refusal):
            return error
        self._runtime.report_error("reveals", error, request=request)
        return Failed(f"the node failed at this request: see its log for request {request}")


def _text(unit: SharedUnit[PendingReveal]) -> tuple[str, str | None]:
    first = unit.done[0].look
    return first.statement, first.act.reason


def _whose(look: RevealRequest) -> Whose:
    caller, vault = look.act.caller, look.act.vault
    assert caller is not None and vault is not None, "somebody looks into some vault"
    database = vault.database
    return caller.user, caller.surface, database.namespace.name, database.name
