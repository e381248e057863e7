"""Statements on vaults.

WRITE and ERASE take part in transactions, with their audit entries. REVEAL and LIST are recorded in
a commit of their own, which is durable before anything is decrypted. So they stand in no
transaction: a rollback would remove the entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

from actors.execution.fiber import FiberWait
from actors.passwords import HashRequester
from actors.scripts.execution import Execution
from actors.scripts.handlers import RequiredWhen, Requires, handles, informs
from actors.scripts.statements import whole_number
from actors.sign_in_throttle import network
from actors.vaults.checking import CheckResult, check
from actors.vaults.reveals import PendingReveal, RevealRequest
from actors.vaults.service import condition_of
from actors.vaults.trail import VaultAct
from language import tree
from language.operators import parameter
from protocol import limits
from protocol.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Refusal,
    TypeRefused,
    Unknown,
)
from protocol.rights import INFO, NOTHING, OWN, READ, UNSEAL, WRITE, SecurableKind
from protocol.values import NONE, Value, instant
from protocol.vaults import check_passphrase
from storage.catalog.places import Database
from storage.vaults import trail as vault_trail
from storage.vaults import vaults
from storage.vaults.trail import TrailEntry, TrailHead
from storage.vaults.vaults import Vault


def _act(
    run: Execution, action: str, vault: Vault, id: Value = None, reason: str | None = None
) -> VaultAct:
    """Return the audit description of a statement.

    :param id: as given; an invalid id is left out of the entry
    """
    named = id if isinstance(id, str) and len(id) <= limits.VAULT_ID_BYTES else None
    why = reason or run.request.reason
    return VaultAct(action, run.caller, vault, named, None, why, run.request.request)


@contextmanager
def _recording_refusal(run: Execution, act: VaultAct) -> Iterator[None]:
    """Record a refusal raised inside in the audit trail."""
    try:
        yield
    except Refusal as refusal:
        _keep(run, act, refusal)
        raise


def _keep(run: Execution, act: VaultAct, refusal: Refusal) -> None:
    """Record a refusal in the audit trail."""
    if not refusal.retry:  # else the request is retried, or the trail accepts no entry
        run.services.vaults.trail.refused(act, refusal)


# --- declarations ---------------------------------------------------------------------------------


@handles(
    tree.DefineVault,
    "none",
    writes=True,
    needs=[Requires(OWN, SecurableKind.DATABASE)],
    audited=True,
)
def define_vault(run: Execution, statement: tree.DefineVault, database: Database) -> Value:
    """Define a vault.

    :raises AlreadyExists: the name is taken without IF NOT EXISTS
    :raises BadRequest: of the passphrase, or of the versions
    """
    tx, service = run.transaction, run.services.vaults
    # Before the derivation: argon2id is slow, and a taken name needs none.
    if vault_exists(run, database, statement):
        return NONE
    wrapping, salt = None, service.new_salt()
    given = statement.passphrase
    if statement.bound is not None:
        given = parameter(run, statement.bound)
    if given is not None:
        passphrase = check_passphrase(given)
        asker = HashRequester(run.caller.user, network(run.caller.address))
        # The script yields here, so the transaction pauses: its commit validates the name.
        wrapping = run.fiber.wait(
            run.services.passwords.derive(passphrase, salt, service.stretch, asker)
        )
    vault = vaults.define(
        tx,
        database,
        statement.name,
        own=wrapping is not None,
        versions=statement.versions or 1,
        comment=statement.comment,
    )
    if wrapping is not None:
        # The derived key wraps the root key and is wiped; the passphrase is not stored.
        service.give_root(tx, vault, wrapping, salt)
    # The store's trail leads to the vault's by its number, even once the vault is dropped.
    service.trail.add_to_both(tx, _act(run, "define", vault))
    return NONE


def vault_exists(run: Execution, database: Database, statement: tree.DefineVault) -> bool:
    """True if a vault of that name exists and the statement skips it. :raises AlreadyExists:"""
    try:
        run.authorizer.vault(statement.name, NOTHING)
    except Unknown:
        return False
    if statement.unless_there:
        return True
    path = f"{database.path}.{statement.name}"
    raise AlreadyExists(f"vault {path} exists", kind="vault", name=path)


@handles(
    tree.AlterVault,
    "none",
    writes=True,
    needs=[
        Requires(OWN, SecurableKind.DATABASE),
        Requires(NOTHING, SecurableKind.VAULT, ("name",)),
    ],
    audited=True,
)
def alter_vault(
    run: Execution, statement: tree.AlterVault, _database: Database, vault: Vault
) -> Value:
    """Change the number of versions kept, or the comment."""
    tx = run.transaction
    vaults.alter(tx, vault, versions=statement.versions, comment=statement.comment)
    run.services.vaults.trail.add(tx, _act(run, "alter", vault))
    return NONE


@handles(
    tree.DropVault,
    "none",
    writes=True,
    needs=[
        Requires(OWN, SecurableKind.DATABASE),
        Requires(NOTHING, SecurableKind.VAULT, ("name",)),
    ],
    audited=True,
)
def drop_vault(
    run: Execution, statement: tree.DropVault, _database: Database, vault: Vault
) -> Value:
    """Drop a vault with its records; its audit trail stays."""
    run.reason = statement.reason
    # The entry precedes the drop: the vault's key, which authenticates it, goes with the vault.
    _goes(run, vault, statement.reason)
    vaults.drop(run.transaction, vault)
    return NONE


def drop_vaults(run: Execution, database: Database, reason: str | None) -> None:
    """Record that the vaults of a database are dropped with it."""
    for vault in vaults.each(run.transaction, database, run.tick):
        _goes(run, vault, reason)


def _goes(run: Execution, vault: Vault, reason: str | None) -> None:
    service = run.services.vaults
    service.trail.add_to_both(run.transaction, _act(run, "drop", vault, reason=reason))
    # Keys are wiped from memory after the commit: a refused DROP leaves the vault usable.
    run.afterwards.append(partial(service.dropped, vault))


@handles(
    tree.RotateVault,
    "value",
    writes=True,
    needs=[Requires(UNSEAL, SecurableKind.VAULT, ("name",))],
    audited=True,
)
def rotate_vault(run: Execution, statement: tree.RotateVault, vault: Vault) -> Value:
    """Add a new key version; values are re-encrypted in the background after the answer."""
    run.reason = statement.reason
    service = run.services.vaults
    act = _act(run, "rotate", vault, reason=statement.reason)
    with _recording_refusal(run, act):
        version = service.rotate(run.transaction, vault, act)
    run.afterwards.append(service.wake)
    return {"key_version": version}


# --- records --------------------------------------------------------------------------------------


@handles(
    tree.WriteSecret, "value", writes=True, needs=[Requires(WRITE, SecurableKind.VAULT, ("vault",))]
)
def write_secret(run: Execution, statement: tree.WriteSecret, vault: Vault) -> Value:
    """Write a secret. :raises Sealed, TypeRefused, TooLarge:"""
    run.reason = statement.reason or run.reason
    # The clauses are evaluated outside: a failed expression is no attempt on the vault.
    id = run.evaluate(statement.id)
    act = _act(run, "write", vault, id, statement.reason)
    expected = None if statement.expect is None else run.evaluate(statement.expect)
    value = run.evaluate(statement.value)
    with _recording_refusal(run, act):
        vaults.check_id(id)
        condition = condition_of(statement.absent, expected)
        service = run.services.vaults
        done = service.write(run.transaction, vault, act, value, condition)
    if done.rotates:
        run.afterwards.append(service.wake)
    return {"written": done.written, "version": done.version}


@handles(
    tree.EraseSecret, "value", writes=True, needs=[Requires(WRITE, SecurableKind.VAULT, ("vault",))]
)
def erase_secret(run: Execution, statement: tree.EraseSecret, vault: Vault) -> Value:
    """Erase all versions of a record."""
    run.reason = statement.reason or run.reason
    id = run.evaluate(statement.id)
    act = _act(run, "erase", vault, id, statement.reason)
    with _recording_refusal(run, act):
        vaults.check_id(id)
        return {"erased": run.services.vaults.erase(run.transaction, vault, act)}


@handles(
    tree.RevealSecret, "value", writes=True, needs=[Requires(READ, SecurableKind.VAULT, ("vault",))]
)
def reveal_secret(run: Execution, statement: tree.RevealSecret, vault: Vault) -> Value:
    """Return a decrypted secret, after its audit entry is durable.

    :raises Sealed, Unknown, WrongKey:
    :raises BadRequest: it stands in a transaction, IF or FOR
    :raises AuditRefused: it can't be recorded
    """
    id = run.evaluate(statement.id)
    wanted = whole_number(run, statement.version, "VERSION")
    act = _act(run, "reveal", vault, id, statement.reason)
    with _recording_refusal(run, act):
        _check_alone(run, "REVEAL")
        key = vaults.check_id(id)
    asked = _shown(run, act, key, wanted)
    found = asked.found
    assert found is not None, "it was refused"
    at = instant(found.row.at_us)
    return {"id": id, "value": asked.value, "version": found.version, "at": at}


@handles(
    tree.ListSecrets, "value", writes=True, needs=[Requires(READ, SecurableKind.VAULT, ("vault",))]
)
def list_secrets(run: Execution, statement: tree.ListSecrets, vault: Vault) -> Value:
    """Return ids in the order of their bytes. Raises as `reveal_secret`."""
    prefix = _text(run, statement.prefix, "PREFIX")
    after = _text(run, statement.after, "AFTER")
    limit = whole_number(run, statement.limit, "LIMIT")
    act = _act(run, "list", vault, prefix or None)
    with _recording_refusal(run, act):
        _check_alone(run, "LIST")
        most = limits.VAULT_IDS_LISTED if limit is None else limit
        if not 0 <= most <= limits.VAULT_IDS_LISTED:
            raise BadRequest(
                f"LIMIT of ids is 0 to {limits.VAULT_IDS_LISTED}", limit=limits.VAULT_IDS_LISTED
            )
    _shown(run, act)
    # The entry is durable by now: only from here on may ids be read.
    found: list[Value] = []
    names = (vault.database.namespace.name, vault.database.name)
    with run.reading_beside() as tx:
        # It waited for its audit entry: privileges, and the vault of that name, may have changed.
        if run.rights.vault(tx, run.caller, names, vault.name, READ).id != vault.id:
            raise Conflict(f"vault {vault.path} was redefined meanwhile")
        # The loop yields: without a pause it would mix several states.
        tx.pause()
        for some in vaults.ids(tx, vault, _raw(prefix), _raw(after)) if most else ():
            found += some
            run.tick()
            if len(found) >= most:
                break
    return {"ids": found[:most]}


def _check_alone(run: Execution, word: str) -> None:
    if not run.may_run_again:
        raise BadRequest(
            f"{word} must be a statement of its own, outside a transaction, IF or FOR: its audit"
            " entry must be kept even if the rest fails"
        )


def _shown(
    run: Execution, act: VaultAct, id: bytes | None = None, version: int | None = None
) -> PendingReveal:
    """Wait until the audit entry is durable and the secret is decrypted. :raises Refusal:

    :param id: id of the secret; None: of a listing
    :param version: its version, as in `RevealRequest`
    """
    _, text = run.at_statement() or (0, "")
    look = RevealRequest(act, text, run.place, id, version)
    run.stop_reading()
    # Authorized again there, in the transaction that records the entry.
    wait = FiberWait(run.fiber)
    asked = run.services.vaults.reveals.ask(look, partial(wait.resume, None))
    try:
        wait.until_resumed()
        if asked.refusal is not None:
            raise asked.refusal
    except Refusal as refusal:
        _keep(run, asked.act, refusal)
        raise
    finally:
        # A script that was ended meanwhile has no value decrypted for it.
        asked.leave()
    return asked


def _text(run: Execution, expression: tree.Expression | None, clause: str) -> str:
    found = "" if expression is None else run.evaluate(expression)
    if not isinstance(found, str):
        raise TypeRefused(f"{clause} takes a string")
    return found


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- INFO -----------------------------------------------------------------------------------------


@informs("VAULT", needs=[Requires(INFO, SecurableKind.VAULT, (0,))])
def info_for_vault(run: Execution, statement: tree.Info, vault: Vault) -> Value:
    """Describe a vault, without its content."""
    tx, service = run.transaction, run.services.vaults
    state, row = service.state(vault), vaults.keys_row(tx, vault)
    # Removed values stay in the log, encrypted, until retention drops their segments.
    removed = vaults.removed_at(tx, vault)
    head = vault_trail.head(tx, vault.id)
    rotation = "none"
    if row.older:
        rotation = "waiting (sealed)" if state.sealed else "running"
    return {
        "name": vault.name,
        "own": vault.own,
        "comment": vault.comment,
        "sealed": state.sealed,
        "until": state.until,
        "versions": vault.versions,
        "records": vaults.count(tx, vault),
        "key_version": row.current,
        "rotation": rotation,
        "in_log_until": removed if removed >= run.services.reads.begins else None,
        "audit": {"entries": head.number, "hash": head.hash.hex() if head.number else None},
    }


def described_vaults(run: Execution, database: Database) -> list[Value]:
    """Describe the vaults of a database that the caller may see."""
    tx, found = run.transaction, list[Value]()
    for vault in run.rights.vaults_in(tx, run.caller, database, run.tick):
        found.append(
            {
                "name": vault.name,
                "comment": vault.comment,
                "own": vault.own,
                "sealed": run.services.vaults.state(vault).sealed,
                "versions": vault.versions,
                "records": vaults.count(tx, vault),
            }
        )
    return found


@handles(
    tree.InfoTrail,
    "info",
    writes=False,
    needs=[
        Requires(INFO, SecurableKind.VAULT, ("vault",)),
        Requires(OWN, SecurableKind.STORE, (), RequiredWhen.UNNAMED),
    ],
)
def info_for_trail(run: Execution, statement: tree.InfoTrail, vault: Vault | None) -> Value:
    """Return entries of an audit trail, newest first, or the result of its check. A transaction of
    its own reads them, as in `statements.py`.

    :raises BadRequest: of BEFORE and LIMIT
    """
    before = whole_number(run, statement.before, "BEFORE")
    limit = whole_number(run, statement.limit, "LIMIT")
    number = whole_number(run, statement.number, "NUMBER") or 0
    most = limits.ENTRIES_SHOWN if limit is None else limit
    if not 0 <= most <= limits.VAULT_ENTRIES_LISTED:
        raise BadRequest(
            f"LIMIT of entries is 0 to {limits.VAULT_ENTRIES_LISTED}",
            limit=limits.VAULT_ENTRIES_LISTED,
        )
    if (before is not None and before < 0) or not 0 <= number < 2**32:
        raise BadRequest("BEFORE and NUMBER must be 0 or more")
    of = number if vault is None else vault.id
    trail, found = run.services.vaults.trail, list[Value]()
    with run.reading_beside() as tx:
        if vault is not None:
            names = (vault.database.namespace.name, vault.database.name)
            run.rights.vault(tx, run.caller, names, vault.name, INFO)
        tx.pause()
        if statement.check:
            checked = check(tx, trail, vault, of, run.tick)
            return _described_check(checked, vault_trail.head(tx, of))
        # Walk the hash chain from the newest entry back: each holds the hash before it.
        # With BEFORE it starts below that entry, else at the head.
        behind = vault_trail.find(tx, of, before) if before is not None else None
        head = vault_trail.head(tx, of)
        follows = head.hash if behind is None else behind.before
        at = head.number if behind is None else behind.number - 1
        for kept in islice(vault_trail.newest(tx, of, before), most):
            # A gap in the numbers, or another hash: an entry was removed or changed.
            chained = kept.number == at and kept.hash == follows
            sound = trail.is_sound(tx, vault, kept) if vault is not None or of == 0 else True
            found.append(_described(kept, chained and sound))
            follows, at = kept.before, kept.number - 1
            run.tick()
    return found


def _described_check(checked: CheckResult, head: TrailHead) -> Value:
    return {
        "intact": checked.intact,
        "entries": checked.entries,
        "newest": head.number,
        "hash": head.hash.hex() if head.number else None,
        "proven": checked.proven,
        "unproven": checked.unproven,
        "wrong": list(checked.wrong),
        "put_back": list(checked.put_back),
    }


def _described(kept: TrailEntry, intact: bool) -> Value:
    entry = kept.entry
    return {
        "seq": kept.number,
        "at": instant(entry.at_us),
        "user": entry.user,
        "role": entry.role or None,
        "surface": entry.surface,
        "address": entry.address or None,
        "action": entry.action,
        "vault": entry.vault or None,
        "id": entry.id,
        "version": entry.version,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "request": entry.request or None,
        "more": entry.more,
        "hash": kept.hash.hex(),
        "intact": intact,
    }
