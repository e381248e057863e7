"""What a node is told at its start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from actors.agreement import Etcd
from actors.passwords import Cost
from actors.vaults.told import VaultSettings
from protocol import limits
from protocol.agreement import Agreement
from storage.retention import Keep
from storage.sealing import Key

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FirstOwner:
    """The user that a store without users is given."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is told at its start."""

    data_dir: str
    create: bool = True
    """Whether a store is made where there is none."""
    restores: bool = False
    """Whether it is made anew, in place of what a restore has left that did not come to its end;
    and is no store until it is told that it is (`Store.restored`)."""
    serves: bool = True
    """Whether it is there for others: then old log is pruned, and a store without users gets an
    owner with a generated password when `first_owner` names none."""
    writes: bool = True
    """Whether it may change what is stored: a command that only looks does not, whatever time has
    brought meanwhile."""
    links: bool = False
    """True if it links with other nodes, as soon as what it listens with for them is there."""
    first_owner: FirstOwner | None = None
    password_cost: Cost = field(default_factory=Cost)
    vaults: VaultSettings = field(default_factory=VaultSettings)
    keep_log: Keep = field(default_factory=Keep)
    """What of the log a node that serves keeps."""
    keep_statements: int = limits.ENTRIES_KEPT
    """Entries of the statement log that a node that serves keeps."""
    accept_clock_jump: bool = False
    """Whether a wall clock that is more than a year ahead of the log is meant."""
    rebuild_state: bool = False
    """Whether the state is thrown away and made anew from the log."""
    check: bool = False
    """Whether every frame that the log holds is read and checked, not only those of its tail."""
    check_log: bool = False
    """Whether the same is done to tell of damage (`Store.log_damage`), which refuses nothing."""
    slow_us: int = limits.SLOW_STATEMENT_SECONDS * 1_000_000
    """From how long on a statement is said in the log to be slow."""
    backup_dir: str | None = None
    """The folder for `BACKUP … TO` and `RESTORE SCRIPT FROM`."""
    key: Key | None = None
    """What is written is sealed with it; None: nothing is."""
    opening_keys: Sequence[Key] = ()
    """What backups may have been sealed with that it reads."""
    agree: Callable[[Sequence[str], str], Agreement] = Etcd
    """The door to what nodes agree on, from the addresses of a policy, for a store by its id."""
    told_owner: Callable[[FirstOwner], None] | None = None
    """Called with the owner whose password was generated, before it is the store's: afterwards
    nobody could find it out any more."""
    progress: Progress | None = None
    """Called while the log is replayed, with frames done and frames in all."""


def keep_log(rule: timedelta | int | None) -> Keep:
    """What of the log is kept.

    :param rule: frames younger than that; so many bytes; None: as many frames as the limits say
    """
    if isinstance(rule, timedelta):
        return Keep(age_us=rule // timedelta(microseconds=1))
    return Keep(bytes=rule)
