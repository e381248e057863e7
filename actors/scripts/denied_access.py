"""Audit of denied access to vaults, before a statement runs."""

from __future__ import annotations

import re
from typing import Any, Final

from actors.scripts.authorizer import Authorizer
from actors.scripts.steps import Step
from actors.vaults.trail import Trail, VaultAct
from language import tree
from protocol import limits
from protocol.errors import NotAllowed, Refusal
from protocol.rights import SecurableKind
from storage.vaults.vaults import Vault

_FIRST_WORD: Final = re.compile("[A-Z][a-z]+")


def record_denied(
    trail: Trail,
    authorizer: Authorizer,
    step: Step,
    refusal: Refusal,
    variables: dict[str, Any],
    request: str,
) -> None:
    """Record in a vault's audit trail that the caller lacks a privilege, or names a vault it may
    not see.

    :param variables: parameters and variables, by name
    :param request: id of the request
    """
    for claim in step.claims:
        if (
            claim.kind is SecurableKind.VAULT
            and not claim.as_securable
            and claim.names[0] is not None
        ):
            vault = _named_vault(authorizer, claim.names[0])
            if vault is None:
                continue
            word, id = _act(step.statement), _secret_id(step.statement, variables)
            act = VaultAct(word, authorizer.caller, vault, id, None, None, request)
            # A caller refused a privilege on the database may be one that may not see the vault.
            sees = authorizer.rights.sees(authorizer.tx, authorizer.caller, vault)
            if isinstance(refusal, NotAllowed) and sees:
                trail.refused(act, refusal)
            else:
                trail.unseen(act)


def _named_vault(authorizer: Authorizer, name: str) -> Vault | None:
    """Return the vault without authorization: it goes into the trail, never into an answer."""
    namespace, database = authorizer.place
    if namespace is None or database is None:
        return None
    return authorizer.rights.tried(authorizer.tx, (namespace, database), name)


def _act(statement: Any) -> str:
    """Return the first word of the node's class: RotateVault is `rotate`."""
    word = _FIRST_WORD.match(type(statement).__name__)
    assert word is not None, "nodes are named in capitals"
    return word.group().lower()


def _secret_id(statement: Any, variables: dict[str, Any]) -> str | None:
    """Return the id that a statement names, of parameters and constants only: no expression runs
    for a refused caller."""
    id = getattr(statement, "id", None)
    named = variables.get(id.name) if isinstance(id, tree.Parameter) else None
    if isinstance(id, tree.Constant):
        named = id.value
    # An overlong id names no value, and must not fill the trail.
    if not isinstance(named, str) or len(named) > limits.VAULT_ID_BYTES:
        return None
    return named
