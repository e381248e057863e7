"""Parser of DEFINE ANALYZER and DROP ANALYZER."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from language import tree
from language.lexer import NAME
from language.parsing.places import DEFINES, DROPS, PlaceParser
from language.search.arguments import NotLiteral, argument_text, literal_of
from language.search.definitions import ALIASES
from protocol import limits
from protocol.errors import TooLarge

GRAMMAR: Final = """
define_analyzer = DEFINE ANALYZER [exists] name TOKENIZERS word {"," word}
    [FILTERS filter {"," filter}] [comment]
filter = word ["(" given {"," given} ")"]
given = word | int | string | array | object
drop_analyzer = DROP ANALYZER name [reason]
"""
GRAMMAR_NOTE: Final = """
The array or object that a filter is given holds literals only.
"""


class AnalyzerParser(PlaceParser):
    """Parser of analyzers."""

    def define_analyzer(self, at: int) -> tree.Statement:
        exists = self._exists()
        name = self.name("analyzer")
        self.expect_word("TOKENIZERS")
        tokenizers = [self._lower("a tokenizer")]
        while self.separated():
            tokenizers.append(self._lower("a tokenizer"))
            self._bounded(tokenizers, "tokenizers")
        filters: list[tree.AnalyzerFilter] = []
        if self.take_word("FILTERS"):
            filters.append(self._analyzer_filter())
            while self.separated():
                filters.append(self._analyzer_filter())
                self._bounded(filters, "filters")
        return tree.DefineAnalyzer(
            name, tuple(tokenizers), tuple(filters), exists, self._comment(), at
        )

    def drop_analyzer(self, at: int) -> tree.Statement:
        return tree.DropAnalyzer(self.name("analyzer"), self._reason(), at)

    def _bounded(self, found: Sequence[object], what: str) -> None:
        most = limits.TOKEN_FILTERS
        if len(found) > most:
            self.refuse(TooLarge, f"an analyzer has at most {most} {what}")

    def _lower(self, wanted: str) -> str:
        """Parse a word. The node checks it: the known ones are not part of the grammar."""
        if self.kinds[self.i] != NAME:
            self.unexpected(wanted)
        self.i += 1
        return self.texts[self.i - 1].lower()

    def _analyzer_filter(self) -> tree.AnalyzerFilter:
        name = self._lower("a filter")
        arguments: list[str] = []
        if self.take_mark("("):
            arguments.append(self._filter_argument())
            while self.separated():
                arguments.append(self._filter_argument())
                self._bounded(arguments, "arguments of a filter")
            self.expect_mark(")", "`,` or `)`")
        return tree.AnalyzerFilter(ALIASES.get(name, name), tuple(arguments))

    def _filter_argument(self) -> str:
        if self.kinds[self.i] == NAME and not self.is_mark("(", 1):
            return self._lower("a word")
        token = self.i
        try:
            return argument_text(literal_of(self.expression()))
        except NotLiteral:
            self.i = token
            self.unexpected("a word, or a literal")


DEFINES["ANALYZER"] = AnalyzerParser.define_analyzer
DROPS["ANALYZER"] = AnalyzerParser.drop_analyzer
