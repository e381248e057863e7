"""Redaction: the secrets in a statement, held in AST fields that are marked as such.

A value that may be bound (ids and values of vaults, their passphrases) is a secret unless it is
bound.

All code that shows, logs or stores a statement asks this module. A new kind of secret is therefore
declared in one place, at its AST node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, replace
from typing import Any, Final

from language import tree
from language.names import children, rebuilt


def secrets(statement: Any) -> Iterator[str]:
    """Yield the fields of a statement's node that hold a secret."""
    for name, unless_bound in _marked(type(statement)):
        found = getattr(statement, name)
        if found is not None and not (unless_bound and type(found) is tree.Parameter):
            yield name


HIDDEN: Final = "..."
_SHOWN: Final = tree.Constant(HIDDEN)


def hidden(statement: Any) -> dict[str, Any]:
    """Return the placeholders shown for a statement's secrets, by field."""
    return {
        name: HIDDEN if isinstance(getattr(statement, name), str) else _SHOWN
        for name in secrets(statement)
    }


_RECORDS: Final = (tree.WriteSecret, tree.RevealSecret, tree.EraseSecret, tree.ListSecrets)
_BINDERS: Final = (tree.DefineVault, tree.DefineUser, tree.AlterUser)
_HOLDERS: Final = (tuple, tree.Block, tree.If, tree.For, tree.Let, tree.ReturnStatement)


def binds_secrets(statements: Any) -> bool:
    """True if a statement, at any depth, takes a vault's id, value or passphrase, or a bound
    password.

    Its variables may be assigned elsewhere in the same text, so that text must be redacted too; see
    `unbound`.
    """
    pending = [statements]
    while pending:
        one = pending.pop()
        if isinstance(one, _RECORDS) or (isinstance(one, _BINDERS) and one.bound):
            return True
        if isinstance(one, _HOLDERS):
            pending.extend(children(one))
    return False


def unbound(node: Any) -> Any:
    """Return a redacted copy of a statement from a text that binds secrets.

    It hides the values assigned to variables, the items of loops, and conditions.
    """
    if isinstance(node, tree.Let):
        return replace(node, value=_SHOWN)
    if isinstance(node, tree.For):
        return replace(node, items=_SHOWN, body=unbound(node.body))
    if isinstance(node, tree.If):
        branches = tuple((_SHOWN, unbound(block)) for _, block in node.branches)
        return replace(node, branches=branches, otherwise=unbound(node.otherwise))
    return rebuilt(node, unbound)


def holds_secret(node: Any) -> bool:
    """True if a node, or tuple of nodes, contains a secret at any depth."""
    pending = [node]
    while pending:
        one = pending.pop()
        if any(secrets(one)):
            return True
        pending.extend(children(one))
    return False


_MARKED: Final[dict[type, tuple[tuple[str, bool], ...]]] = {}
"""Cache of the marked fields of each node type, about a hundred types."""


def _marked(kind: type) -> tuple[tuple[str, bool], ...]:
    found = _MARKED.get(kind)
    if found is None:
        fields: dict[str, Field[Any]] = getattr(kind, "__dataclass_fields__", {})
        found = tuple(
            (name, one.metadata["secret"] is not True)
            for name, one in fields.items()
            if "secret" in one.metadata
        )
        _MARKED[kind] = found
    return found
