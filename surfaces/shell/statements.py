"""Analysis of typed text before it is sent: completeness, effects of its `USE`, secrets.

Only the node judges statements, and it may be newer than this shell. So unknown statements are
never refused here. Only the lexer's rules are used; if these fail too, the text is sent.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from language import tree
from language.lexer import BAD, END, NAME, PUNCTUATION, STRING, all_tokens
from language.parser import parse
from protocol.errors import Refusal

CHANGED: Final = "changed"
"""Participle for the effect of statements without their own word, such as FOR."""
_DONE: Final = {
    tree.Create: "created",
    tree.Insert: "inserted",
    tree.Upsert: "written",
    tree.Update: "updated",
    tree.Delete: "deleted",
}
_LOOKED_AT: Final = 64 * 1024
"""Characters of a script up to which it is parsed to find the effects of its statements."""

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_UNCLOSED: Final = re.compile(r"[bdmu]?['\"]|`|/\*")
_COMMENT: Final = re.compile(r"--|//|#")
_SECRETIVE: Final = re.compile(r"pass|secret|token|seal|vault|reveal|write|erase", re.IGNORECASE)
_SECRET_WORDS: Final = ("PASSWORD", "PASSHASH", "PASSPHRASE", "SECRET")
_CLOSE: Final = 0.7
"""Similarity from which a word counts as a misspelt secret word: `PASWORD` has 0.93, `SPACE` 0.43.
"""


def is_complete(text: str) -> bool:
    """Return True if a text can be run: its last statement ends with `;`, and no string, comment,
    bracket or transaction is open. A text with an error that no further line can correct is
    complete: the node reports it."""
    tokens = all_tokens(text)
    depth, begun, starts = 0, False, True
    last = ""
    for i, kind in enumerate(tokens.kinds):
        word = tokens.texts[i]
        if kind == BAD:
            return not _UNCLOSED.match(word)
        if kind == END:
            break
        if starts and depth == 0 and kind == NAME:
            begun = _in_transaction(begun, word.upper(), tokens.texts[i + 1].upper())
        if kind == PUNCTUATION:
            depth += (word in _OPENING) - (word in _CLOSING)
        if depth < 0:
            return True
        starts = kind == PUNCTUATION and word in ";}"
        last = word if kind == PUNCTUATION else ""
    return depth == 0 and not begun and last == ";"


def is_inside_text(text: str) -> bool:
    """Return True if a text ends within a string or a comment."""
    tokens = all_tokens(text)
    last = tokens.texts[-2] if len(tokens.texts) > 1 else ""
    if BAD in tokens.kinds:
        return bool(_UNCLOSED.match(last))
    # Behind the last token there is only white space, or a comment up to the line's end.
    end = tokens.starts[-2] + len(last) if len(tokens.texts) > 1 else 0
    return bool(_COMMENT.search(text[end:].rpartition("\n")[2]))


def _in_transaction(begun: bool, word: str, following: str) -> bool:
    if word == "BEGIN":
        return True
    if word == "CANCEL" or (word == "COMMIT" and following != "READER"):
        return False
    return begun


def places(text: str, ran: int) -> list[tuple[str | None, str | None]]:
    """Return the targets of a script's `USE` statements, namespace and database, in order.

    A `USE` applies to the end of its script; at a prompt it applies to the next scripts too.

    :param ran: number of executed statements of the script
    """
    if "use" not in text.lower():
        return []
    try:
        statements = parse(text).statements
    except Refusal:  # a newer language: the targets are unknown
        return []
    return [(one.namespace, one.database) for one in statements[:ran] if isinstance(one, tree.Use)]


def done(text: str, ran: int) -> list[str]:
    """Return the participle of each statement's effect on records.

    :param ran: number of executed statements of the script
    """
    try:
        found = parse(text).statements if len(text) <= _LOOKED_AT else ()
    except Refusal:  # a newer language
        found = ()
    words = [_DONE.get(type(one), CHANGED) for one in found[:ran]]
    return words + [CHANGED] * (ran - len(words))


def declares(text: str) -> bool:
    """Return True if a script may have changed the names for completion."""
    words = {"DEFINE", "DROP", "ALTER", "USE"}
    tokens = all_tokens(text)
    return any(
        kind == NAME and word.upper() in words
        for kind, word in zip(tokens.kinds, tokens.texts, strict=True)
    )


def may_hold_secret(text: str) -> bool:
    """Return True if a text may contain a password or the like. It prefers false positives: a
    misspelt `PASWORD`, and every statement that defines or alters a user, count as secret."""
    if _SECRETIVE.search(text):
        return True
    tokens = all_tokens(text)
    words = [
        word.upper() for kind, word in zip(tokens.kinds, tokens.texts, strict=True) if kind == NAME
    ]
    if any(difflib.get_close_matches(word, _SECRET_WORDS, 1, _CLOSE) for word in words):
        return True
    has_text = STRING in tokens.kinds or BAD in tokens.kinds
    return has_text and "USER" in words and not {"DEFINE", "ALTER"}.isdisjoint(words)
