"""BACKUP and INFO FOR BACKUPS: privileges, arguments, answers. Backups are made in
`actors/backups/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.backups.scripts import About, StoreScript
from actors.backups.taking import CompletedBackup
from actors.scripts.handlers import Requires, RequiresOnPlaces, handles, informs
from actors.scripts.transactions import ScriptRun
from language import tree
from protocol import limits
from protocol.errors import AnswerTooLarge, BadRequest, NotInTransaction
from protocol.rights import OWN, SecurableKind
from protocol.values import Value
from storage.catalog.places import Database, Namespace
from storage.formats.container import BackupScope, WrittenBackup
from storage.txn.tickets import CommitTicket
from storage.txn.transaction import Transaction

BESIDE_BYTES: Final = 4 * limits.KIB
"""Most bytes of an answer beside those of a backup."""


def _is_of_store(statement: tree.Backup) -> bool:
    """True if it covers more than the named namespaces and databases: a snapshot has the store's
    users and their hashes, a log every change, and the backup folder is the node's."""
    return statement.form != "SCRIPT" or not statement.places or statement.to is not None


@handles(
    tree.Backup,
    "value",
    writes=False,
    needs=[RequiresOnPlaces(OWN, "places", _is_of_store)],
    audited=True,
)
def backup(run: ScriptRun, statement: tree.Backup) -> Value:
    """Take a backup of the released state. Return its path, or the backup itself.

    :raises NotInTransaction: other statements of its transaction would wait with it
    :raises BackupNameRefused, NoBackupFolder, BackupExists: of its name
    :raises Busy: another one is being taken
    :raises DiskFull: there is no room for it
    :raises LogPruned: the log no longer holds all requested frames
    :raises AnswerTooLarge: no answer can carry it
    """
    if not run.may_run_again:
        raise NotInTransaction("BACKUP must be a statement of its own, outside a transaction")
    if run.moment is not None:
        raise BadRequest("a backup is of the current state: leave `moment` out")
    run.services.backups.check_name(statement.to)
    run.enlist()
    # Before the backup's own snapshot, so that this covers all that the statement has read.
    _let_go(run)
    taken = _taken(run, statement)
    if statement.to is not None:
        return {
            "path": statement.to,
            "bytes": taken.written.size,
            "form": taken.written.form.value,
        }
    assert taken.file is not None, "a backup without a name is a file that is kept"
    if run.request.hands_over:
        # Handed over open: the receiver reads it in parts, and closes it.
        run.file = taken.file
        return summary(taken.written)
    try:
        return _read(run, taken)
    finally:
        taken.file.close()


def summary(written: WrittenBackup) -> dict[str, Value]:
    """Return the answer for a backup that is handed over as a file."""
    return {
        "form": written.form.value,
        "records": written.records,
        "version": written.version,
    }


def _let_go(run: ScriptRun) -> None:
    """Release the transaction's snapshot, and wait for the commits it has read: they are in the
    backup. Otherwise old versions would be kept for it as long as the backup takes."""
    tx, committer = run.transaction, run.services.committer
    tx.release()
    # Every commit up to its begin counts: any of them may have been read.
    if tx.sequence > committer.commit_index:
        run.until_released(CommitTicket(tx.sequence, tx.reads.generation))


def _taken(run: ScriptRun, statement: tree.Backup) -> CompletedBackup:
    backups, fiber, to = run.services.backups, run.fiber, statement.to
    if statement.form == "LOG":
        # Sequences begin at 1: by default it is the whole log.
        return backups.log(fiber, statement.first or 1, to)
    some = [BackupScope(*part.names) for part in statement.places]
    if statement.form == "STATE":
        return backups.snapshot(fiber, some[0] if some else None, to)

    def text(view: Transaction, sequence: int) -> Iterator[bytes]:
        about = About(run.services.store_id, sequence)
        # Authorized in the view itself: the name may stand for another place by then.
        places = [_place(run, view, part) for part in statement.places]
        return StoreScript(view, about, run.tick, places or None).chunks()

    return backups.script(fiber, text, to, some)


def _place(run: ScriptRun, view: Transaction, part: tree.SecurableRef) -> Namespace | Database:
    """Return a namespace or database as the backup's snapshot has it.

    :raises Unknown, NotAllowed:
    """
    if part.kind == "NAMESPACE":
        return run.rights.namespace(view, run.caller, part.names[0], OWN)
    namespace, name = part.names
    return run.rights.database(view, run.caller, namespace, name, OWN)


def _read(run: ScriptRun, taken: CompletedBackup) -> bytes:
    """Return the backup's bytes. :raises AnswerTooLarge: it exceeds an answer of this surface"""
    size, file = taken.written.size, taken.file
    assert file is not None, "only what was kept is read"
    most = (run.request.answer_bytes or limits.FRAME_BYTES) - BESIDE_BYTES
    if size > most:
        raise AnswerTooLarge(
            f"the backup has {size} bytes, but an answer carries at most {most}: write it TO a"
            " file of the node, or get it as a stream or by GET /backup",
            bytes=size,
            limit=most,
        )
    parts: list[bytes] = []
    # One wait for each MiB: the loop serves others while the disk reads.
    for at in range(0, size, limits.MIB):
        parts.append(run.fiber.wait(file.read(at, limits.MIB)))
    return b"".join(parts)


@informs("BACKUPS", needs=[Requires(OWN, SecurableKind.STORE)])
def info_for_backups(run: ScriptRun, statement: tree.Info) -> Value:
    """Return the files of the backup folder, and whether each of them is whole.

    :raises NoBackupFolder: the node has none
    """
    run.services.backups.folder.check_given()
    run.enlist()
    # Inside a transaction the snapshot stays: later statements read it.
    if run.may_run_again:
        _let_go(run)
    return run.services.backups.listed(run.fiber)
