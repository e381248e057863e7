"""Audit of denied access to vaults, before a statement runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from actors.scripts.handlers import RequiredPrivilege
from actors.vaults.trail import VaultAct
from language import tree
from protocol import limits
from protocol.errors import NotAllowed, Refusal
from protocol.rights import SecurableKind

if TYPE_CHECKING:
    from actors.scripts.execution import Execution

_FIRST_WORD: Final = re.compile("[A-Z][a-z]+")


def turned_away(
    run: Execution, statement: Any, claims: Sequence[RequiredPrivilege], refusal: Refusal
) -> None:
    """Record in a vault's audit trail that the caller lacks a privilege, or names a vault it may
    not see."""
    for claim in claims:
        if (
            claim.kind is SecurableKind.VAULT
            and not claim.as_securable
            and claim.names[0] is not None
        ):
            _keep(run, statement, claim.names[0], refusal)


def _keep(run: Execution, statement: Any, name: str, refusal: Refusal) -> None:
    namespace, database = run.place
    if namespace is None or database is None:
        return
    # Resolved without authorization: the result goes into the trail, never into an answer.
    vault = run.rights.tried(run.transaction, (namespace, database), name)
    if vault is None:
        return
    # The act is the first word of the node's class: RotateVault is `rotate`.
    word = _FIRST_WORD.match(type(statement).__name__)
    assert word is not None, "nodes are named in capitals"
    id = getattr(statement, "id", None)
    # Parameters and constants only: no expression runs for a refused caller.
    named = run.variables.get(id.name) if isinstance(id, tree.Parameter) else None
    if isinstance(id, tree.Constant):
        named = id.value
    # An overlong id names no value, and must not fill the trail.
    if not isinstance(named, str) or len(named) > limits.VAULT_ID_BYTES:
        named = None
    act = VaultAct(word.group().lower(), run.caller, vault, named, None, None, run.request.request)
    trail = run.services.vaults.trail
    # A caller refused a privilege on the database may be one that may not see the vault at all.
    if isinstance(refusal, NotAllowed) and run.rights.sees(run.transaction, run.caller, vault):
        trail.refused(act, refusal)
    else:
        trail.unseen(act)
