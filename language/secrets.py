"""Which parts of a text are secrets: fields of statements' nodes that are marked as such.

Whatever is shown, logged or kept of a statement asks here, so that a new kind of secret is named in
one place, where its node is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field
from typing import Any, Final

from language.names import children


def secrets(statement: Any) -> Iterator[str]:
    """The fields of a statement's node that hold a secret."""
    for name in _marked(type(statement)):
        if getattr(statement, name) is not None:
            yield name


def holds_secret(node: Any) -> bool:
    """Whether a secret stands in a node, or in a tuple of nodes, at whatever depth."""
    pending = [node]
    while pending:
        one = pending.pop()
        if any(secrets(one)):
            return True
        pending.extend(children(one))
    return False


_MARKED: Final[dict[type, tuple[str, ...]]] = {}
"""Of each kind of node that was asked about: there are some hundred."""


def _marked(kind: type) -> tuple[str, ...]:
    found = _MARKED.get(kind)
    if found is None:
        fields: dict[str, Field[Any]] = getattr(kind, "__dataclass_fields__", {})
        found = tuple(name for name, one in fields.items() if one.metadata.get("secret"))
        _MARKED[kind] = found
    return found
