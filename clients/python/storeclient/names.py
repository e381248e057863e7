"""Names of the language: what they look like, and how they are written into a statement."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def check_names(*names: str) -> None:
    """:raises ValueError: one of them is no name"""
    for name in names:
        quote_name(name)


def check_place(ns: str | None, db: str | None) -> None:
    """:raises ValueError: a namespace or database that is given is no name"""
    check_names(*(name for name in (ns, db) if name is not None))


def quote_name(name: str) -> str:
    """A name of a namespace, table, field and the like, as a statement may hold it.

    Always in back-quotes, so that a name which is also a keyword, or which has a `-`, means the
    name. Values never need quoting: bind them as parameters.

    >>> quote_name("line-item")
    '`line-item`'

    :raises ValueError: not 1 to 64 of letters, digits, `_` and `-`, the first neither digit nor `-`
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name: it must match ^{_NAME.pattern}$")
    return f"`{name}`"
