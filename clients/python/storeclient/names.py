"""Names of the language: their form, and their quoting in statements."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def check_names(*names: str) -> None:
    """Check names. :raises ValueError: one is invalid"""
    for name in names:
        quote_name(name)


def check_place(ns: str | None, db: str | None) -> None:
    """Check a namespace and a database, if given. :raises ValueError: an invalid name"""
    check_names(*(name for name in (ns, db) if name is not None))


def quote_name(name: str) -> str:
    """Quote the name of a namespace, table, field and the like for a statement.

    Always in back-quotes, since a name may be a keyword, or contain a `-`. Values never need
    quoting: bind them as parameters.

        >>> quote_name("line-item")
        '`line-item`'

    :raises ValueError: not 1 to 64 letters, digits, `_` and `-`, the first one a letter or `_`
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name: it must match ^{_NAME.pattern}$")
    return f"`{name}`"
