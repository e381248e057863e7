"""Completion of the word being typed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from language.functions import TABLE
from language.keywords import KEYWORDS, STATEMENTS, quote
from language.lexer import NAME, all_tokens
from language.names import DEFINED
from surfaces.shell.names import Names
from surfaces.shell.shortcuts import SHORTCUTS
from surfaces.shell.statements import is_inside_text

PATIENCE_SECONDS: Final = 2.0
"""Seconds that Tab waits for names that are being fetched. Typing goes on meanwhile."""

_WORD: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*(?:::|\.)?)*\Z")

_TABLES, _TOPICS, _SPACES, _PLACES = "table", "topic", "space", "database"
_FUNCTIONS = "function"
_AFTER: Final[dict[str, tuple[str, ...]]] = {
    "FROM": (_TABLES, _TOPICS, _SPACES),
    "INTO": (_TABLES, _TOPICS),
    "ON": (_TABLES, _TOPICS),
    "TABLE": (_TABLES,),
    "TOPIC": (_TOPICS,),
    "SPACE": (_SPACES,),
    "FUNCTION": (_FUNCTIONS,),
    "IN": (_SPACES,),
    "USE": (_PLACES,),
    "DATABASE": (_PLACES,),
    **dict.fromkeys(("UPDATE", "CREATE", "UPSERT", "DELETE"), (_TABLES,)),
    **dict.fromkeys(("ACK", "NACK", "EXTEND", "UP", "TRIM"), (_TOPICS,)),
}
"""Kinds of names expected after a keyword, offered first. A heuristic, since half a statement can't
be parsed."""
_OF_SHORTCUT: Final = {"\\d": _TABLES, "\\t": _TOPICS, "\\s": _SPACES, "\\use": _PLACES}


class StatementCompleter(Completer):
    """Completes keywords, functions, and `names`."""

    def __init__(self) -> None:
        self.names = Names()
        self.learning: asyncio.Task[None] | None = None
        """Task that is fetching the names."""

    async def get_completions_async(
        self, document: Document, event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield the completions, with names being fetched if they arrive soon."""
        if self.learning is not None:
            await asyncio.wait({self.learning}, timeout=PATIENCE_SECONDS)
        for completion in self.get_completions(document, event):
            yield completion

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions of the word before the cursor, the best first."""
        text = document.text_before_cursor
        if text.lstrip().startswith("\\"):
            yield from self._of_shortcuts(text.lstrip())
            return
        if is_inside_text(text):
            return
        found = _WORD.search(text)
        word = found[0] if found else ""
        kinds = _AFTER.get(_word_before(text[: len(text) - len(word)]), ())
        yield from (
            _completions(word, self._named(kinds))
            or _completions(word, self._anything(word, document.text))
        )

    def _named(self, kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Yield the names of the kinds expected after the previous keyword."""
        for kind in kinds:
            yield from ((quote(name) if kind != _PLACES else name, kind) for name in self._of(kind))

    def _anything(self, word: str, text: str) -> Iterator[tuple[str, str]]:
        yield from ((name, "field") for name in self._fields(text))
        yield from ((name, "table") for name in map(quote, self.names.tables))
        lower = word.islower()
        for keyword in sorted(KEYWORDS | STATEMENTS):
            yield keyword.lower() if lower else keyword, "keyword"
        yield from ((f"{name}(", "function") for name in [*sorted(TABLE), *self.names.functions])

    def _of(self, kind: str) -> list[str]:
        return {
            _TABLES: self.names.tables,
            _TOPICS: self.names.topics,
            _SPACES: self.names.spaces,
            _FUNCTIONS: [name[len(DEFINED) :] for name in self.names.functions],
            _PLACES: [*self.names.databases, *self.names.namespaces],
        }[kind]

    def _fields(self, text: str) -> list[str]:
        """Return the fields of the tables that the text names; of all tables if it names none."""
        tokens = all_tokens(text)
        words = {
            word for kind, word in zip(tokens.kinds, tokens.texts, strict=True) if kind == NAME
        }
        named = [table for table in self.names.fields if table in words] or self.names.fields
        return list(dict.fromkeys(name for table in named for name in self.names.fields[table]))

    def _of_shortcuts(self, line: str) -> Iterator[Completion]:
        shortcut, space, argument = line.partition(" ")
        if not space:
            for one in SHORTCUTS:
                if one.word.startswith(shortcut):
                    yield Completion(one.word, -len(shortcut), display_meta=one.help)
            return
        kind = _OF_SHORTCUT.get(shortcut)
        for name in self._of(kind) if kind else ():
            if name.startswith(argument):
                yield Completion(name, -len(argument), display_meta=kind)


def _completions(word: str, candidates: Iterable[tuple[str, str]]) -> list[Completion]:
    """Return the names that complete a word, with their kinds."""
    fitting = {
        name: kind
        for name, kind in candidates
        if name.lstrip("`").lower().startswith(word.lower()) and name != word
    }
    return [Completion(name, -len(word), display_meta=kind) for name, kind in fitting.items()]


def _word_before(text: str) -> str:
    """Return the word before the one being typed, in upper case; empty if that is not a word."""
    tokens = all_tokens(text)
    last = len(tokens.kinds) - 2  # the last token is the end
    return tokens.texts[last].upper() if last >= 0 and tokens.kinds[last] == NAME else ""
