"""Check of a vault's trail: verifies its hash chain, its HMACs and the records against it.

An entry is *wrong* if it does not follow from the one before, has an invalid HMAC, or is missing. A
record is *put back* if it differs from its newest entry: not the written version and value, or not
erased. HMACs whose keys are deleted or sealed can't be verified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from actors.vaults.trail import Trail
from protocol import limits
from storage.txn.transaction import Transaction
from storage.vaults import trail as vault_trail
from storage.vaults import vaults
from storage.vaults.trail import TrailEntry
from storage.vaults.vaults import Vault

NAMED: Final = 100
"""Limit of wrong entries, and of records put back, that are listed."""


@dataclass(slots=True)
class CheckResult:
    """Result of a check."""

    entries: int = 0
    """Entries checked."""
    proven: int = 0
    """Entries with a valid HMAC."""
    unproven: int = 0
    """Entries with an HMAC that can't be verified now. The remaining ones have none: they were made
    while everything was sealed."""
    wrong: list[int] = field(default_factory=list)
    """Numbers of wrong entries, newest first."""
    put_back: list[str] = field(default_factory=list)
    """Ids of records that were put back."""

    @property
    def intact(self) -> bool:
        """True if no fault was found."""
        return not self.wrong and not self.put_back


def check(
    tx: Transaction, trail: Trail, vault: Vault | None, number: int, tick: Callable[[], None]
) -> CheckResult:
    """Check a trail.

    :param vault: its vault; None: it was dropped, and only the hash chain is checked
    :param number: number of the trail
    :param tick: called at each entry
    """
    found, head = CheckResult(), vault_trail.head(tx, number)
    follows, at = head.hash, head.number
    first = max(1, head.number - limits.VAULT_ENTRIES_KEPT + 1)
    for kept in vault_trail.newest(tx, number):
        found.entries += 1
        is_next = kept.number == at and kept.hash == follows
        if not is_next or not _is_proven(tx, trail, vault, number, kept, found):
            _name(found.wrong, kept.number)
        if vault is not None and not _is_kept(tx, vault, kept):
            _name(found.put_back, kept.entry.id or "")
        follows, at = kept.before, kept.number - 1
        tick()
    if at != first - 1:
        _name(found.wrong, at)
    if first == 1 and at == 0 and follows != bytes(vault_trail.HASH_BYTES):
        _name(found.wrong, 1)
    return found


def _name(named: list[Any], one: int | str) -> None:
    if len(named) < NAMED and one not in named:
        named.append(one)


def _is_proven(
    tx: Transaction,
    trail: Trail,
    vault: Vault | None,
    number: int,
    kept: TrailEntry,
    found: CheckResult,
) -> bool:
    """True unless an entry's HMAC is invalid, or missing where it is required."""
    if not kept.mac:
        # A write or reveal needs an unsealed key, so its entry must have an HMAC.
        done = kept.entry.outcome == vault_trail.GRANTED
        return not (done and kept.entry.action in ("write", "reveal"))
    if vault is None and number != vault_trail.STORE_TRAIL:
        known = None
    else:
        known = trail.is_authentic(tx, vault, kept)
    if known is None:
        found.unproven += 1
        return True
    found.proven += known
    return known


def _is_kept(tx: Transaction, vault: Vault, kept: TrailEntry) -> bool:
    """True if a record matches an entry, or the entry is not the record's newest."""
    entry = kept.entry
    if entry.id is None or not vault_trail.is_about(entry):
        return True
    newest = vault_trail.last_about(tx, vault.id, entry.id)
    if newest != kept.number:
        return newest > kept.number and _is_of(tx, vault, newest, entry.id)
    id = entry.id.encode("utf-8", "surrogatepass")
    record = vaults.find_record(tx, vault, id)
    if entry.action != "write":
        return record is None
    if record is None or record.last != entry.version:
        return False
    row = vaults.find_value(tx, vault, id, record.last)
    if row is None or row.entry != kept.number or row.key_version < entry.key_version:
        return False
    return row.key_version != entry.key_version or sha256(row.sealed).digest() == entry.digest


def _is_of(tx: Transaction, vault: Vault, number: int, id: str) -> bool:
    """True if an entry exists and describes a record."""
    kept = vault_trail.find(tx, vault.id, number)
    return kept is not None and kept.entry.id == id and vault_trail.is_about(kept.entry)
