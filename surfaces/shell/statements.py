"""What a text typed at a prompt is, before the node sees it: whether it ends, where its statements
lead, and whether it may be remembered.

The node alone judges statements, and may be newer than this shell. So what is not known here is
never refused here; only the lexer's rules are relied on, and where those end too the text is sent.
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
"""What becomes of records by a statement of no word of its own, such as FOR."""
_DONE: Final = {
    tree.Create: "created",
    tree.Insert: "inserted",
    tree.Upsert: "written",
    tree.Update: "updated",
    tree.Delete: "deleted",
}
_LOOKED_AT: Final = 64 * 1024
"""Characters of a script up to which it is read again for what its statements do."""

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_UNCLOSED: Final = re.compile(r"[bdmu]?['\"]|`|/\*")
_COMMENT: Final = re.compile(r"--|//|#")
_SECRETIVE: Final = re.compile(r"pass|secret|token|seal|vault|reveal|write|erase", re.IGNORECASE)
_SECRET_WORDS: Final = ("PASSWORD", "PASSHASH", "PASSPHRASE", "SECRET")
_CLOSE: Final = 0.7
"""How near to such a word one is that was mistyped: `PASWORD` is 0.93, `SPACE` 0.43 of one."""


def is_complete(text: str) -> bool:
    """Whether a text can be run: its last statement ends with `;`, and no string, comment, bracket
    or transaction is open. One that no further line can mend is complete: the node says why."""
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
    """Whether a text ends within a string or a comment."""
    tokens = all_tokens(text)
    last = tokens.texts[-2] if len(tokens.texts) > 1 else ""
    if BAD in tokens.kinds:
        return bool(_UNCLOSED.match(last))
    # What stands behind the last token is white space, or a comment that goes to the line's end.
    end = tokens.starts[-2] + len(last) if len(tokens.texts) > 1 else 0
    return bool(_COMMENT.search(text[end:].rpartition("\n")[2]))


def _in_transaction(begun: bool, word: str, following: str) -> bool:
    if word == "BEGIN":
        return True
    if word == "CANCEL" or (word == "COMMIT" and following != "READER"):
        return False
    return begun


def places(text: str, ran: int) -> list[tuple[str | None, str | None]]:
    """Where the `USE`s of a script lead, namespace and database, in their order.

    A `USE` holds to the end of its script; a person at a prompt means it to hold for what they type
    next.

    :param ran: how many statements of the script have run
    """
    if "use" not in text.lower():
        return []
    try:
        statements = parse(text).statements
    except Refusal:  # of a newer language: then where it leads is not known here either
        return []
    return [(one.namespace, one.database) for one in statements[:ran] if isinstance(one, tree.Use)]


def done(text: str, ran: int) -> list[str]:
    """The participle of what each statement of a script does to records.

    :param ran: how many of its statements have run
    """
    try:
        found = parse(text).statements if len(text) <= _LOOKED_AT else ()
    except Refusal:  # of a newer language
        found = ()
    words = [_DONE.get(type(one), CHANGED) for one in found[:ran]]
    return words + [CHANGED] * (ran - len(words))


def declares(text: str) -> bool:
    """Whether a script may have changed what there is to complete."""
    words = {"DEFINE", "DROP", "ALTER", "USE"}
    tokens = all_tokens(text)
    return any(
        kind == NAME and word.upper() in words
        for kind, word in zip(tokens.kinds, tokens.texts, strict=True)
    )


def may_hold_secret(text: str) -> bool:
    """Whether a text may hold a password or the like. It errs on the side of silence: a mistyped
    `PASWORD`, and every statement that defines or alters a user, is taken to hold one."""
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
