"""What people write who come from another database, and how the language says it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from language.words import STATEMENTS

_WORDS: Final = {
    "BETWEEN": "`x IN 1..=9`",
    "COLUMNS": "`FIELDS`",
    "DB": "`DATABASE`",
    "DESCRIBE": "`INFO FOR …`",
    "ILIKE": "`x ~ '(?i)pattern'`",
    "IS": "`x = NULL`, or `x = NONE` for what is absent",
    "JOIN": "a path through a link: `a.b.name`",
    "LIKE": "`x ~ 'pattern'`",
    "NS": "`NAMESPACE`",
    "OFFSET": "`START n`",
    "RELATE": "a field that holds a link: `SET a = t:1`",
    "REMOVE": "`DROP`",
    "ROLLBACK": "`CANCEL`",
    "SHOW": "`INFO FOR …`",
    "TRUNCATE": "`DELETE t`",
    "VALUES": "`INSERT INTO t [{ a: 1 }]`",
}
_PAIRS: Final = {
    ("=", "="): "`a = b`",
    ("<", ">"): "`a != b`",
    ("|", "|"): "`OR`, or `+` between strings",
    ("+", "="): "`a = a + 1`",
    ("-", "="): "`a = a - 1`",
}
_SIGNS: Final = {"&": "`AND`", "!": "`NOT`"}
_LONGEST: Final = 16
"""Characters of a word that a statement is looked for under."""


def meant(texts: Sequence[str], token: int, starts_statement: bool) -> str | None:
    """What the token at `token`, which does not fit there, was perhaps to say; None: no idea.

    :param starts_statement: whether a statement was to begin there
    """
    text = texts[token]
    before = texts[token - 1] if token else ""
    behind = texts[token + 1] if token + 1 < len(texts) else ""
    if before.upper() == "FROM" and token >= 2 and texts[token - 2].upper() == "DELETE":
        return "`DELETE t`"
    pair = _PAIRS.get((before, text)) or _PAIRS.get((text, behind)) or _SIGNS.get(text[:1])
    if pair is not None or len(text) > _LONGEST:
        return pair
    word = text.upper()
    if word in _WORDS:
        return _WORDS[word]
    if starts_statement:
        near = difflib.get_close_matches(word, STATEMENTS, n=1, cutoff=0.7)
        return f"`{near[0]}`" if near else None
    return None
