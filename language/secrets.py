"""Which parts of a text are secrets: fields of statements' nodes that are marked as such.

What may be bound (ids and values of vaults, their passphrases) is a secret unless it is.

Whatever is shown, logged or kept of a statement asks here, so that a new kind of secret is named in
one place, where its node is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, replace
from typing import Any, Final

from language import tree
from language.names import children, rebuilt


def secrets(statement: Any) -> Iterator[str]:
    """The fields of a statement's node that hold a secret."""
    for name, unless_bound in _marked(type(statement)):
        found = getattr(statement, name)
        if found is not None and not (unless_bound and type(found) is tree.Parameter):
            yield name


HIDDEN: Final = "..."
_SHOWN: Final = tree.Constant(HIDDEN)


def hidden(statement: Any) -> dict[str, Any]:
    """What is shown in the place of its secrets, by their fields."""
    return {
        name: HIDDEN if isinstance(getattr(statement, name), str) else _SHOWN
        for name in secrets(statement)
    }


_RECORDS: Final = (tree.WriteSecret, tree.RevealSecret, tree.EraseSecret, tree.ListSecrets)
_BINDERS: Final = (tree.DefineVault, tree.DefineUser, tree.AlterUser)
_HOLDERS: Final = (tuple, tree.Block, tree.If, tree.For, tree.Let, tree.ReturnStatement)


def binds_secrets(statements: Any) -> bool:
    """Whether any of some statements, at whatever depth, takes a record's id or value, or a
    passphrase, of a vault, or a bound password: what it is bound to may stand elsewhere in the
    same text; see `unbound`."""
    pending = [statements]
    while pending:
        one = pending.pop()
        if isinstance(one, _RECORDS) or (isinstance(one, _BINDERS) and one.bound):
            return True
        if isinstance(one, _HOLDERS):
            pending.extend(children(one))
    return False


def unbound(node: Any) -> Any:
    """A statement as it is shown beside such a one: nothing of what names are bound to, of what a
    loop goes through, or of what a condition compares with."""
    if isinstance(node, tree.Let):
        return replace(node, value=_SHOWN)
    if isinstance(node, tree.For):
        return replace(node, items=_SHOWN, body=unbound(node.body))
    if isinstance(node, tree.If):
        branches = tuple((_SHOWN, unbound(block)) for _, block in node.branches)
        return replace(node, branches=branches, otherwise=unbound(node.otherwise))
    return rebuilt(node, unbound)


def holds_secret(node: Any) -> bool:
    """Whether a secret stands in a node, or in a tuple of nodes, at whatever depth."""
    pending = [node]
    while pending:
        one = pending.pop()
        if any(secrets(one)):
            return True
        pending.extend(children(one))
    return False


_MARKED: Final[dict[type, tuple[tuple[str, bool], ...]]] = {}
"""Of each kind of node that was asked about: there are some hundred."""


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
