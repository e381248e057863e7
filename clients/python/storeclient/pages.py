"""Paging: reads a SELECT page by page, with a cursor on the record id.

The text is not parsed. It is only split at words outside of strings, comments and brackets; the
node interprets it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from storeclient.values import RecordId

PAGE: Final = 1000
AFTER: Final = "storeclient_after"
ROWS: Final = "storeclient_rows"

_PIECE: Final = re.compile(
    r"(?P<skip>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`\\]|\\.)*`"
    r"|--[^\n]*|//[^\n]*|\#[^\n]*|/\*.*?\*/|\$\w+|[\w.:]*[.:]\w*)"
    r"|(?P<open>[\[({])|(?P<close>[\])}])|(?P<end>;)|(?P<word>[A-Za-z_]\w*)",
    re.DOTALL,
)
_CLAUSES: Final = frozenset(
    ("SPLIT", "GROUP", "HAVING", "ORDER", "LIMIT", "START", "FETCH", "TIMEOUT")
)  # fmt: skip
_GOES_ON: Final = re.compile(r"\s*(?:$|[=!<>~+\-*/%),.?]|(?i:IN|NOT|CONTAINS|AND|OR)\b)")
"""Text after a word that is a field, and so begins no clause."""


class Pages:
    """Pages of one SELECT, requested one after the other.

    :raises ValueError: see `AsyncDatabase.rows`
    """

    def __init__(self, select: str, params: Mapping[str, Any] | None, page: int) -> None:
        if page < 1:
            raise ValueError(f"page must be at least 1, not {page}")
        self._params = dict(params or {})
        for name in (AFTER, ROWS):
            if name in self._params:
                raise ValueError(f"parameter {name!r} is reserved: `rows` uses it")
        self._page = page
        self._head, self._where = _split(select)
        self._after: RecordId | None = None
        self.over = False
        """True once the last page was received."""

    def ask(self) -> tuple[str, dict[str, Any]]:
        """Return the script of the next page, and its parameters."""
        conditions = [] if self._after is None else [f"id > ${AFTER}"]
        if self._where is not None:
            # The bracket is on a line of its own: the text may end in a comment.
            conditions.append(f"({self._where}\n)")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        given = self._params | {ROWS: self._page}
        if self._after is not None:
            given[AFTER] = self._after
        return f"{self._head}\n{where} ORDER BY id LIMIT ${ROWS}", given

    def took(self, rows: Any) -> list[dict[str, Any]]:
        """Take a page, and return its rows. :raises ValueError: they have no id"""
        if not isinstance(rows, list):
            raise ValueError("rows takes one SELECT")
        self.over = len(rows) < self._page
        if rows:
            last = rows[-1]
            after = last.get("id") if isinstance(last, dict) else None
            if not isinstance(after, RecordId):
                raise ValueError(
                    "a SELECT that is read page by page must have `id` among its fields"
                )
            self._after = after
        return rows


async def each(
    pages: Pages, query: Callable[[str, dict[str, Any]], Awaitable[Any]]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the rows of all pages.

    :param query: runs a script with parameters; must be repeatable
    """
    while not pages.over:
        for row in pages.took(await query(*pages.ask())):
            yield row


def has_transaction_words(text: str) -> bool:
    """True if BEGIN or COMMIT is in a text, outside of strings and comments."""
    return any(
        (found["word"] or "").upper() in ("BEGIN", "COMMIT") for found in _PIECE.finditer(text)
    )


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with its parameters under other names. Strings and comments stay."""

    def one(found: re.Match[str]) -> str:
        piece = found[0]
        return f"${names[piece[1:]]}" if piece[0] == "$" and piece[1:] in names else piece

    return _PIECE.sub(one, text)


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words outside of strings, comments and brackets: upper-cased, start, end."""
    depth = 0
    for found in _PIECE.finditer(text):
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
        elif found["end"] and not depth:
            raise ValueError("rows takes one SELECT without a `;`")
        elif found["word"] and not depth:
            yield found["word"].upper(), found.start(), found.end()


def _split(select: str) -> tuple[str, str | None]:
    """Return the text before WHERE, and the condition."""
    words = list(_words(select))
    if not words or words[0][0] != "SELECT":
        raise ValueError(f"rows takes a SELECT, not {select[:40]!r}")
    begins = [at for at, (word, _, _) in enumerate(words) if word == "FROM"]
    if not begins:
        raise ValueError("the SELECT has no FROM")
    of = begins[0]
    clauses = [one for one in words[of + 2 :] if one[0] in _CLAUSES]
    clauses = [one for one in clauses if not _GOES_ON.match(select, one[2])]
    clauses += [one for one in words[1:2] if one[0] in ("VALUE", "DISTINCT")]
    clauses += [one for one in words[of + 1 : of + 2] if one[0] == "ONLY"]
    for word, _, _ in clauses:
        raise ValueError(
            f"rows does not support {word}: it reads all rows of a SELECT in the order of their ids"
        )
    for word, start, end in words[of + 1 :]:
        if word == "WHERE":
            return select[:start], select[end:]
    return select, None
