"""Settings of a node, given at its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from actors.agreement import EtcdAgreement
from actors.passwords import Cost
from actors.vaults.told import VaultSettings
from protocol import limits
from protocol.agreement import Agreement
from storage.formats.sealing import Key
from storage.log.retention import LogRetention

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FirstOwner:
    """First user of a store that has none."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of a node, given at its start."""

    data_dir: str
    create: bool = True
    """True if a missing store is created."""
    restores: bool = False
    """True if the store is created for a restore, in place of the remains of an unfinished one. It
    is not a store until the restore is complete (`Store.restored`)."""
    serves: bool = True
    """True if the node serves clients. It then prunes old log, and gives a store without users an
    owner with a generated password unless `first_owner` names one."""
    writes: bool = True
    """True if the node may change stored data. A read-only command may not, even for expirations
    that are due."""
    links: bool = False
    """True if it links with other nodes, once its listener for them is open."""
    first_owner: FirstOwner | None = None
    password_cost: Cost = field(default_factory=Cost)
    vaults: VaultSettings = field(default_factory=VaultSettings)
    keep_log: LogRetention = field(default_factory=LogRetention)
    """Log retention of a node that serves."""
    keep_statements: int = limits.ENTRIES_KEPT
    """Limit of the statement log, in entries, of a node that serves."""
    accept_clock_jump: bool = False
    """True to accept a wall clock more than a year ahead of the log."""
    rebuild_state: bool = False
    """True to discard the state and rebuild it from the log."""
    check: bool = False
    """True to read and check every frame of the log, not only those of its tail. Damage fails the
    start."""
    check_log: bool = False
    """True to check every frame and only report damage (`Store.log_damage`)."""
    slow_us: int = limits.SLOW_STATEMENT_SECONDS * 1_000_000
    """Duration, in µs, from which a statement is logged as slow."""
    backup_dir: str | None = None
    """Folder for `BACKUP … TO` and `RESTORE SCRIPT FROM`."""
    key: Key | None = None
    """Key that seals everything written; None: data is stored in clear."""
    opening_keys: Sequence[Key] = ()
    """Keys for reading sealed backups."""
    agree: Callable[[Sequence[str], str], Agreement] = EtcdAgreement
    """Makes the client of the consensus store, from the addresses of a failover policy and the
    store's id."""
    told_owner: Callable[[FirstOwner], None] | None = None
    """Called with an owner and its generated password before they are stored: later the password
    can't be recovered."""
    progress: Progress | None = None
    """Called during the replay of the log, with the frames replayed and their total."""


def keep_log(rule: timedelta | int | None) -> LogRetention:
    """Return a retention rule.

    :param rule: keep frames younger than a timedelta, or so many bytes; None: the default number of
        frames
    """
    if isinstance(rule, timedelta):
        return LogRetention(age_us=rule // timedelta(microseconds=1))
    return LogRetention(bytes=rule)
