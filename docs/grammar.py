"""The grammar of the language: rules as the parser's modules state them, some from its tables.

Each module of `language/parsing` states the rules of its functions in a text, `GRAMMAR`. A rule
that is a function's has its name, `define_table`. What the parser has as a table is made from that:
which statements there are, what DEFINE, ALTER and DROP take, how operators bind, kinds of types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import ModuleType
from typing import Final, NamedTuple

from language import parser
from language.functions import TABLE
from language.keywords import KEYWORDS, RESERVED
from language.parsing import (
    access,
    analyzers,
    backups,
    cluster,
    expressions,
    field_types,
    fields,
    functions,
    indexes,
    links,
    literals,
    operators,
    places,
    records,
    spaces,
    topics,
    vaults,
)

SECTIONS: Final[tuple[tuple[str, tuple[ModuleType, ...]], ...]] = (
    ("Scripts", (parser,)),
    ("Records", (records, literals)),
    ("Expressions", (operators, expressions, links)),
    ("Places and the node", (places,)),
    ("Users and grants", (access,)),
    ("Fields and types", (fields, field_types)),
    ("Functions", (functions,)),
    ("Indexes", (indexes,)),
    ("Analyzers", (analyzers,)),
    ("Cache spaces", (spaces,)),
    ("Topics", (topics,)),
    ("Vaults", (vaults,)),
    ("Backups", (backups,)),
    ("The cluster", (cluster,)),
)
"""Where the rules are stated, under the headings of the page."""

TERMINALS: Final[dict[str, str]] = {
    "word": "a plain word: `[A-Za-z_][A-Za-z0-9_]*`",
    "quoted": "any text in back-quotes",
    "name": "of what a database or store holds: a word, or in back-quotes, with `-` in it",
    "label": "of a field, or an alias: a word, or any text in back-quotes",
    "function": "of [functions.md](functions.md), or `fn::` and a word",
    "parameter": "`$name`",
    "string": "`'…'` or `\"…\"`",
    "int": "`42`",
    "float": "`1.5`, `1e9`",
    "decimal": "`12.30dec`",
    "duration": "`1h30m`",
    "size": "`10MiB`, `500KB`",
    "bytes": "`b'base64'`",
    "datetime": "`d'2026-01-02T03:04:05Z'`",
    "uuid": "`u'…'`",
    "fingerprint": "64 hexadecimal digits: the SHA-256 of a certificate",
    "url": "a string: `'https://etcd1.example:2379'`",
    "packed": "`m'base64'`, any value as msgpack",
}
"""What stands in the rules for a token, or for a few."""

_LEVELS: Final = (
    ("disjunction", operators.OR, "conjunction"),
    ("conjunction", operators.AND, "negation"),
    ("comparison", operators.COMPARISON, "range_value"),
    ("range_value", operators.RANGE, "alternative"),
    ("alternative", operators.COALESCE, "sum"),
    ("sum", operators.SUM, "product"),
    ("product", operators.PRODUCT, "unary"),
)
"""Rules of operators: their levels, and the rules of their operands."""
_UNCHAINED: Final = (operators.COMPARISON, operators.RANGE)


# --- the notation ---------------------------------------------------------------------------------


class Word(NamedTuple):
    """A word of the language, in any case."""

    text: str


class Mark(NamedTuple):
    """A mark, or a word in lower case."""

    text: str


class Named(NamedTuple):
    """Another rule, or a terminal."""

    name: str


class Glue(NamedTuple):
    """No space stands here."""


@dataclass(frozen=True)
class Sequence:
    """One after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Choice:
    """One of them."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Optional:
    """Perhaps."""

    part: Part


@dataclass(frozen=True)
class Repeated:
    """As often as one likes, or not at all."""

    part: Part


@dataclass(frozen=True)
class Unordered:
    """Some of them, each at most once, in any order: any number without commas, or at least one
    with commas."""

    parts: tuple[Part, ...]
    commas: bool


Part = Word | Mark | Named | Glue | Sequence | Choice | Optional | Repeated | Unordered

_RULE: Final = re.compile(r"^([a-z_]+) = (.*(?:\n +.*)*)$", re.MULTILINE)
_TOKEN: Final = re.compile(r'\s*("[^"]+"|[A-Z][A-Z0-9_]*|(?:any|list)\(|[a-z_]+|[][(){}|^])')
_CLOSING: Final = {"[": "]", "{": "}", "(": ")", "any(": ")", "list(": ")"}


def read(text: str) -> Part:
    """What a rule says. :raises ValueError: it is not of the notation"""
    reader = _Reader(text)
    found = reader.choice()
    if reader.tokens:
        raise ValueError(f"not of the notation: {reader.tokens[:3]} in {text}")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"not of the notation: {text[at : at + 20]!r}")
            self.tokens.append(match[1])
            at = match.end()

    def alternatives(self) -> tuple[Part, ...]:
        found = [self._sequence()]
        while self.tokens and self.tokens[0] == "|":
            del self.tokens[0]
            found.append(self._sequence())
        return tuple(found)

    def choice(self) -> Part:
        found = self.alternatives()
        return found[0] if len(found) == 1 else Choice(found)

    def _sequence(self) -> Part:
        found: list[Part] = []
        while self.tokens and self.tokens[0] not in "|])}":
            found.append(self._part(self.tokens.pop(0)))
        if not found:
            raise ValueError("an empty alternative")
        return found[0] if len(found) == 1 else Sequence(tuple(found))

    def _part(self, token: str) -> Part:
        if token in _CLOSING:
            inside = self.alternatives()
            if not self.tokens or self.tokens.pop(0) != _CLOSING[token]:
                raise ValueError(f"`{token}` is not closed")
            one = inside[0] if len(inside) == 1 else Choice(inside)
            return {
                "[": Optional(one),
                "{": Repeated(one),
                "(": one,
                "any(": Unordered(inside, commas=False),
                "list(": Unordered(inside, commas=True),
            }[token]
        if token == "^":
            return Glue()
        if token[0] == '"':
            return Mark(token[1:-1])
        return Word(token) if token[0].isupper() else Named(token)


# --- the rules ------------------------------------------------------------------------------------


def stated(module: ModuleType) -> dict[str, str]:
    """The rules that a module states, by their names."""
    return dict(_RULE.findall(module.GRAMMAR))


def made() -> dict[str, dict[str, str]]:
    """The rules that are made from tables, by the headings that they stand under."""
    handlers = {word: _rule_of(work) for word, work in parser.HANDLERS.items()}
    return {
        "Scripts": {
            "statement": _either({**handlers, "": "evaluate"}.values()),
            "answering": _either(_rule_of(work) for _, work in sorted(parser.ANSWERING.items())),
            "define": _either(map(_rule_of, places.DEFINES.values())),
            "alter": _either(map(_rule_of, places.ALTERS.values())),
            "drop": _either(map(_rule_of, places.DROPS.values())),
        },
        "Expressions": dict(_operators()),
        "Fields and types": {"kind": " | ".join(f'"{kind}"' for kind in sorted(field_types.KINDS))},
    }


def rules() -> dict[str, str]:
    """Every rule, by its name."""
    found: dict[str, str] = {}
    for group in (*made().values(), *(stated(one) for _, modules in SECTIONS for one in modules)):
        twice = found.keys() & group.keys()
        assert not twice, f"stated twice: {twice}"
        found.update(group)
    return found


def _rule_of(work: object) -> str:
    """The rule of a function of the parser."""
    name = getattr(work, "__name__", "")
    return str(name).strip("_")


def _either(names: object) -> str:
    return " | ".join(dict.fromkeys(names))  # type: ignore[call-overload]


def _operators() -> list[tuple[str, str]]:
    found = []
    for name, level, operand in _LEVELS:
        marks = [mark for mark, binds in operators.LEVELS.items() if binds == level]
        marks = marks or ["..", "..="]
        one = " | ".join(mark if mark[0].isupper() else f'"{mark}"' for mark in marks)
        one = f"({one})" if len(marks) > 1 else one
        rest = f"[{one} {operand}]" if level in _UNCHAINED else f"{{{one} {operand}}}"
        if level == operators.COMPARISON:
            rest = f"{rest[:-1]} | nearest]"
        found.append((name, f"{operand} {rest}"))
    return found


# --- the page -------------------------------------------------------------------------------------

_HEAD: Final = """# Grammar

Made from the parser's own tables, and from the rules that stand beside its functions. The tests
write scripts by these rules and have each of them parsed. What statements do is said in
[statements.md](statements.md).

| | |
|---|---|
| `WORD` | a word of the language, in any case |
| `"…"` | these characters |
| `rule` | what another rule says, or a token |
| `[a]`, `{a}` | a or nothing; a as often as one likes, or not at all |
| `a \\| b`, `(a)` | one of them; what stands together |
| `any(a \\| b)` | each of them at most once, in any order |
| `list(a \\| b)` | the same, at least one of them, with commas between |
| `^` | no space stands here; elsewhere spaces and comments stand as one likes |

| token | written |
|---|---|
"""


def page() -> list[str]:
    """The lines of `docs/grammar.md`."""
    lines = [*_HEAD.splitlines(), *(f"| `{name}` | {text} |" for name, text in TERMINALS.items())]
    tables = made()
    for title, modules in SECTIONS:
        lines += ["", f"## {title}", "", "```"]
        for module in modules:
            lines += module.GRAMMAR.strip().splitlines()
            for name, rule in tables.pop(title, {}).items():
                lines += _wrapped(f"{name} = {rule}")
        lines += ["```"]
        for module in modules:
            note = getattr(module, "GRAMMAR_NOTE", "")
            lines += ["", *note.strip().splitlines()] if note else []
    lines += ["", "## Words", "", "Never a field's name where an expression begins:"]
    lines += _listed(RESERVED)
    lines += ["", "A name that is one of these is shown in back-quotes, which is always right:"]
    lines += _listed(KEYWORDS - RESERVED)
    lines += ["", f"Functions, {len(TABLE)} of them: [functions.md](functions.md)."]
    return lines


def _listed(words: frozenset[str]) -> list[str]:
    return _wrapped(", ".join(f"`{word}`" for word in sorted(words)) + ".", "")


def _wrapped(text: str, indent: str = "    ") -> list[str]:
    """A text in lines of at most a hundred characters."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + len(word) > 98:
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]
