"""`docs/grammar.md`: its rules are those of the parser.

Scripts are written by the rules, so that each way through each of them is taken, and parsed. What a
rule can't say is done here, by name: `WRITERS`.
"""

from __future__ import annotations

import ast
import importlib
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from language import parser
from language.functions import TABLE
from language.lexer import NAME, PUNCTUATION, QUOTED, all_tokens
from language.parser import parse, parse_expression, parse_type
from language.parsing import places
from protocol.errors import Refusal, TooLarge

GRAMMAR: Final = importlib.import_module("docs.grammar")
RULES: Final[dict[str, str]] = GRAMMAR.rules()

LEAST_ROUNDS: Final = 10
"""How often each statement is written at least; then until every way was taken."""
NO_SPACE: Final = "\0"
SAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "word": ("w", "w_2"),
    "quoted": ("`odd *`",),
    "name": ("t", "name_1", "`a-b`"),
    "label": ("a", "b", "`odd *`"),
    "string": ("'x'", '"it\'s"', r"'a\n'"),
    "int": ("1", "42"),
    "float": ("1.5", "1e9"),
    "decimal": ("12.30dec",),
    "duration": ("5s", "1h30m"),
    "size": ("1MiB", "500KB"),
    "bytes": ("b'AQI='",),
    "datetime": ("d'2026-01-02T03:04:05Z'",),
    "uuid": ("u'00000000-0000-4000-8000-000000000000'",),
    "packed": ("m'kgGhYQ=='",),
    "fingerprint": ("1a" * 32, "b2" * 32, "12" * 32, "1d" * 32, f"1e{'2' * 62}"),
    "url": ("'http://localhost:2379'", "'https://[::1]'"),
}
"""Of each terminal; of parameters and functions see `Author`."""
STEPS: Final = {
    *("disjunction", "conjunction", "negation", "comparison", "range_value", "alternative", "sum"),
    *("product", "unary", "operand"),
}
"""Rules on the way down to a primary, which nest nothing by themselves."""
CONSTANTS: Final = ("NONE", "NULL", "TRUE", "FALSE", "NOT")

LOOKED_AT: Final[dict[str, set[str]]] = {
    "expressions": {
        "COUNT",  # `count` is a function's name, and so in lower case
        *("AND", "AS", "ASC", "CONTAINS", "DESC", "FETCH", "FROM", "GROUP", "HAVING", "IGNORE"),
        *("IN", "LIMIT", "NOT", "OMIT", "ON", "OR", "ORDER", "RETURN", "SPLIT", "START", "BY"),
        *("TIMEOUT", "WHERE", "ALL", "SELECT"),
    },
    "cluster": {"ENDPOINTS", "ROLES"},  # of DEFINE NODE
    "functions": {"FN", "IF"},
    "links": {"AND", "CONTAINS", "OR"},  # of the subquery that it stands for
    "operators": {"NOT"},
    "parser": {"READER", "NOT", "NONE", "NULL", "TRUE", "FALSE"},
}
"""Words by which a module tells what is at hand, and that rules elsewhere take."""
ELSEWHERE: Final[dict[str, set[str]]] = {"indexes": {"ON", "K"}, "topics": {"ON", "NUMBER"},
                                         "records": {"FIELDS"}}  # fmt: skip
"""Words of rules that a module takes by another's function or that have one letter, and those that
are the tree's own."""


class Author:
    """Writes scripts by rules.

    :ivar taken: the ways that were taken, as pairs of a part and a number
    """

    def __init__(self, rules: dict[str, str], seed: int = 8) -> None:
        self.parts: dict[str, Any] = {name: GRAMMAR.read(rule) for name, rule in rules.items()}
        self.taken: set[tuple[int, int]] = set()
        self._chance = random.Random(seed)
        self._counted = 0
        self.closures = 0
        self._heights = self._least()

    def script(self, name: str, room: int) -> str:
        text = " ".join(self.rule(name, room))
        return re.sub(f"(?: ?{NO_SPACE} ?)+", "", text)

    def rule(self, name: str, room: int) -> list[str]:
        if name == "parameter":
            self._counted += 1
            return [f"$p{self._counted}"]
        if name == "function":
            return ["fn", NO_SPACE, "::", NO_SPACE, "f"]
        if name in SAMPLES:
            return [self._chance.choice(SAMPLES[name])]
        writer = WRITERS.get(name)
        written = self.part(self.parts[name], room - (name not in STEPS))
        return writer(self, written, room) if writer else written

    def part(self, part: Any, room: int) -> list[str]:
        match part:
            case GRAMMAR.Word(text) | GRAMMAR.Mark(text):
                return [text]
            case GRAMMAR.Glue():
                return [NO_SPACE]
            case GRAMMAR.Named(name):
                return self.rule(name, room)
            case GRAMMAR.Sequence(parts):
                return [token for one in parts for token in self.part(one, room)]
            case GRAMMAR.Choice(parts):
                return self.part(parts[self._way(part, parts, room)], room)
            case GRAMMAR.Optional(inner):
                return self._times(part, inner, 1, room)
            case GRAMMAR.Repeated(inner):
                return self._times(part, inner, 2, room)
            case GRAMMAR.Unordered(parts, commas):
                return self._unordered(part, parts, commas, room)
        raise AssertionError(part)

    def _way(self, part: Any, parts: tuple[Any, ...], room: int) -> int:
        """One of several ways: if there is room one that was not taken yet."""
        least = min(map(self._height, parts))
        able = [n for n, one in enumerate(parts) if self._height(one) <= max(room, least)]
        fresh = [n for n in able if (id(part), n) not in self.taken]
        found = self._chance.choice(fresh or able)
        self.taken.add((id(part), found))
        return found

    def _times(self, part: Any, inner: Any, most: int, room: int) -> list[str]:
        found: list[str] = []
        able = self._height(inner) <= room
        count = self._chance.randint(1, most) if able and self._chance.random() < 0.15 else 0
        if able and (id(part), 1) not in self.taken:
            count = 1
        self.taken.add((id(part), min(count, 1)))
        for _ in range(count):
            found += self.part(inner, room)
        return found

    def _unordered(self, part: Any, parts: Any, commas: bool, room: int) -> list[str]:
        able = [n for n, one in enumerate(parts) if self._height(one) <= max(room, 3)]
        chosen = self._chance.sample(able, self._chance.randint(int(commas), len(able)))
        found: list[str] = []
        for number in chosen:
            self.taken.add((id(part), number))
            found += [","] if commas and found else []
            found += self.part(parts[number], room)
        return found

    # --- heights --------------------------------------------------------------------------------

    def _least(self) -> dict[str, int]:
        """How deep each rule nests at least."""
        self._heights = dict.fromkeys(self.parts, 1_000)
        while True:
            self._known: dict[int, int] = {}
            found = {
                name: (name not in STEPS) + self._height(part) for name, part in self.parts.items()
            }
            if found == self._heights:
                return found
            self._heights = found

    def _height(self, part: Any) -> int:
        known = self._known.get(id(part))
        if known is None:
            known = self._known[id(part)] = self._counted_height(part)
        return known

    def _counted_height(self, part: Any) -> int:
        match part:
            case GRAMMAR.Named(name):
                return self._heights.get(name, 0)
            case GRAMMAR.Sequence(parts):
                return max(map(self._height, parts))
            case GRAMMAR.Choice(parts):
                return min(map(self._height, parts))
            case GRAMMAR.Unordered(parts, commas):
                return min(map(self._height, parts)) if commas else 0
        return 0

    # --- what a rule can't say --------------------------------------------------------------------

    def call(self, written: list[str], room: int) -> list[str]:
        """A function takes so many arguments, and closures where it does."""
        if written[0] != "fn" and written[2] == "DISTINCT":
            return written
        name = self._chance.choice([*TABLE, "fn::f"])
        known = TABLE.get(name)
        takes = known.closures if known else (0, 0)
        count = self._chance.randint(known.least if known else 0, len(takes))
        found: list[str] = []
        for number in takes[:count]:
            found += [","] if found else []
            found += self._closure(number, room) if number else self.rule("expression", room - 2)
        return [name, "(", *found, ")"]

    def _closure(self, count: int, room: int) -> list[str]:
        self.taken.add((id(self.parts["argument"]), 1))
        while True:
            self.closures += 1
            found = self.rule("closure", max(room - 1, 3))
            self.closures -= 1
            if found.index("|", 1) == 2 * count:
                return found

    def subquery(self, written: list[str], room: int) -> list[str]:
        """It may stand beside an operator, or in a closure."""
        if self.closures:
            return ["1"]
        at = written.index("FROM")
        if written[at + 1] != "ONLY":
            written.insert(at + 1, "ONLY")
        return written


def link_back(author: Author, tokens: list[str], room: int) -> list[str]:
    return ["1"] if author.closures else ["[", *tokens, "]"]


def in_parentheses(tokens: list[str]) -> list[str]:
    return ["(", *tokens, ")"]


def is_word(tokens: list[str]) -> bool:
    """Whether tokens begin with a plain word that is no call's and no record's."""
    plain = re.fullmatch(r"\w+|`.*`", tokens[0]) is not None and not tokens[0][0].isdigit()
    return plain and tokens[1:2] not in (["("], [NO_SPACE])


def head(author: Author, tokens: list[str], room: int) -> list[str]:
    return in_parentheses(tokens) if tokens[0] in "+-{" else tokens


def addressed(author: Author, tokens: list[str], room: int) -> list[str]:
    return in_parentheses(tokens) if is_word(tokens) else tokens


def standing(author: Author, tokens: list[str], room: int) -> list[str]:
    """An expression at the beginning of a statement."""
    if tokens[0] == "IF" or (is_word(tokens) and tokens[0] not in (*CONSTANTS, "CASE")):
        return in_parentheses(tokens)
    return tokens


def given(author: Author, tokens: list[str], room: int) -> list[str]:
    """An argument of a filter, which nothing computes."""
    return ["[", "1", ",", "'x'", "]"] if tokens[0] in "[{" else tokens


WRITERS: Final[dict[str, Callable[[Author, list[str], int], list[str]]]] = {
    "head": head,
    "addressed": addressed,
    "evaluate": standing,
    "given": given,
    "call": Author.call,
    "subquery": Author.subquery,
    "link_back": link_back,
}


def ways(author: Author) -> Iterator[tuple[str, int, int]]:
    """Every way through every rule: its rule, the part and the number of the way."""
    for name, rule in author.parts.items():
        for part in every(rule):
            if isinstance(part, GRAMMAR.Choice | GRAMMAR.Unordered):
                yield from ((name, id(part), number) for number in range(len(part.parts)))
            elif isinstance(part, GRAMMAR.Optional | GRAMMAR.Repeated):
                yield from ((name, id(part), number) for number in (0, 1))


def untaken(author: Author) -> set[str]:
    """Rules of which a way was not taken."""
    return {name for name, part, way in ways(author) if (part, way) not in author.taken}


def every(part: Any) -> Iterator[Any]:
    yield part
    for one in getattr(part, "parts", None) or (getattr(part, "part", None),):
        if one is not None:
            yield from every(one)


def reached(author: Author) -> dict[str, set[str]]:
    """Return the rules that are written with each rule, itself among them."""
    named = {
        name: {part.name for part in every(rule) if isinstance(part, GRAMMAR.Named)} & RULES.keys()
        for name, rule in author.parts.items()
    }
    found = {name: {name} for name in named}
    while True:
        more = {name: one.union(*(found[n] for inner in one for n in named[inner]))
                for name, one in found.items()}  # fmt: skip
        if more == found:
            return found
        found = more


def refused(rules: dict[str, str], rounds: int = 1_000) -> tuple[list[str], set[str], int]:
    """Texts by some rules that don't parse, rules of which a way was not taken, and how many texts
    were written."""
    author = Author(rules)
    wrong: list[str] = []
    written = 0
    reach = reached(author)
    for number in range(rounds):
        left = untaken(author)
        if number > LEAST_ROUNDS and not left:
            break
        for name, read in chosen(author):
            if number > LEAST_ROUNDS and not left & reach[name]:
                continue
            text = author.script(name, 3 + number % 5)
            written += 1
            try:
                read(text)
            except TooLarge:
                continue  # how deep and long anything may be is no matter of the rules
            except Refusal as refusal:
                wrong.append(f"{name}: {text}\n{refusal.message}")
    return wrong, untaken(author), written


def chosen(author: Author) -> Iterator[tuple[str, Callable[[str], object]]]:
    """The rules that are written in each round, and what parses them: each statement, a script."""
    for family in ("statement", "define", "alter", "drop"):
        part = author.parts[family]
        for number, one in enumerate(part.parts):
            author.taken.add((id(part), number))
            yield one.name, parse
    yield from (
        ("script", parse),
        *[("let", parse)] * 4,
        *[("select", parse)] * 3,
        *[("info", parse)] * 3,
    )
    yield from [("type", parse_type)] * 3
    yield from [("expression", parse_expression)] * 3


def test_every_script_that_is_written_by_the_rules_parses(
    figure: Callable[[str, object], None],
) -> None:
    wrong, left, written = refused(RULES)
    assert not wrong, f"{len(wrong)} of {written}\n\n" + "\n\n".join(wrong[:5])
    assert left == set(), "rules with a way that no script took"
    figure("scripts written by the grammar", written)


def test_every_rule_is_used_and_every_name_in_one_is_known() -> None:
    used = {
        part.name
        for rule in RULES.values()
        for part in every(GRAMMAR.read(rule))
        if isinstance(part, GRAMMAR.Named)
    }
    known = RULES.keys() | GRAMMAR.TERMINALS.keys()
    assert used - known == set() and known - used == {"script"}
    assert SAMPLES.keys() | {"parameter", "function"} == GRAMMAR.TERMINALS.keys()


def test_every_statement_has_a_rule_that_begins_with_its_words() -> None:
    for first, family in (
        ("", parser.HANDLERS),
        ("DEFINE", places.DEFINES),
        ("ALTER", places.ALTERS),
        ("DROP", places.DROPS),
    ):
        for word, work in family.items():
            rule = RULES[work.__name__.strip("_")]
            if word in ("DEFINE", "ALTER", "DROP", "DELETE", "CREATE", "REVOKE"):
                continue  # several rules, of which each says it
            assert f"{rule} ".startswith(f"{first} {word} ".lstrip()), word


def words_of(source: str) -> set[str]:
    """The words of the language in a module's code, its tables of statements aside."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and _is_aside(node):
            continue
        for inner in ast.walk(node):
            text = inner.value if isinstance(inner, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"[A-Z]{2,}( [A-Z]{2,})*", text):
                found.update(text.split())
    return found


def _is_aside(node: ast.AnnAssign | ast.Assign) -> bool:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return any(
        isinstance(one, ast.Name) and one.id in ("HANDLERS", "ANSWERING", "LEVELS", "DEFINES",
                                                 "ALTERS", "DROPS", "_EXPLAINED")
        for one in ast.walk(target)
    )  # fmt: skip


def words_in(module: ModuleType) -> set[str]:
    """The words in the rules that a module states."""
    found = set()
    for rule in GRAMMAR.stated(module).values():
        for part in every(GRAMMAR.read(rule)):
            if isinstance(part, GRAMMAR.Word | GRAMMAR.Mark) and part.text.isalpha():
                found.add(part.text.upper())
    return found


def unlike(module: ModuleType, source: str) -> set[str]:
    """Words that a module's code has and its rules have not, or the other way about."""
    name = module.__name__.rpartition(".")[2]
    aside = LOOKED_AT.get(name, set())
    aside = aside | ELSEWHERE.get(name, set())
    return (words_of(source) ^ words_in(module)) - aside - BEGINNINGS


BEGINNINGS: Final = {"DEFINE", "ALTER", "DROP", *parser.HANDLERS, *places.DEFINES, *places.DROPS}
"""Words of the tables: each has a rule."""
MODULES: Final = [module for _, modules in GRAMMAR.SECTIONS for module in modules]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_module_takes_the_words_that_its_rules_have(module: ModuleType) -> None:
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert unlike(module, source) == set()
    planted = source + '\n\ndef more(self) -> None:\n    self.take_word("PLANTED")\n'
    assert unlike(module, planted) == {"PLANTED"}


def test_a_terminal_is_one_token() -> None:
    for samples in SAMPLES.values():
        for sample in samples:
            tokens = all_tokens(sample)
            assert len(tokens.kinds) == 2 and tokens.kinds[0] != PUNCTUATION, sample
            assert (tokens.kinds[0] in (NAME, QUOTED)) == bool(
                re.fullmatch(r"\w+|`.*`", sample)
            ) or (sample[0].isdigit())


def test_the_notation_is_checked() -> None:
    for text in ("[a", "a | ", "a ] b", "a ; b", "any(a"):
        with pytest.raises(ValueError):
            GRAMMAR.read(text)
