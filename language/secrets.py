"""Which parts of a text are secrets: fields of statements' nodes that are marked as such.

What may be bound (ids and values of vaults, their passphrases) is a secret unless it is.

Whatever is shown, logged or kept of a statement asks here, so that a new kind of secret is named in
one place, where its node is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field
from typing import Any, Final

from language import tree
from language.names import children


def secrets(statement: Any) -> Iterator[str]:
    """The fields of a statement's node that hold a secret."""
    for name, unless_bound in _marked(type(statement)):
        found = getattr(statement, name)
        if found is not None and not (unless_bound and type(found) is tree.Parameter):
            yield name


HIDDEN: Final = "..."


def hidden(statement: Any) -> dict[str, Any]:
    """What is shown in the place of its secrets, by their fields."""
    return {
        name: HIDDEN if isinstance(getattr(statement, name), str) else tree.Constant(HIDDEN)
        for name in secrets(statement)
    }


def into_vault(statements: Any) -> bool:
    """Whether any of some statements, at whatever depth, writes a value of a vault: what it is
    bound to may stand in a LET of the same text."""
    pending = [statements]
    while pending:
        one = pending.pop()
        if type(one) is tree.WriteSecret:
            return True
        if isinstance(one, tuple | tree.Block | tree.If | tree.For | tree.Let):
            pending.extend(children(one))
    return False


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
