"""Parser of numbers, prefixed values, variables, and field paths."""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from language import tree
from language.lexer import DURATION, INT, PARAM, STRING
from language.parsing.cursor import TokenCursor
from protocol import limits
from protocol.errors import BadRequest, NumberTooLarge, TooLarge
from protocol.foreign import unpack_foreign
from protocol.paths import EACH, Path, Step
from protocol.text import parse_datetime, parse_duration
from protocol.values import check_decimal
from protocol.weights import weigh

_FLOAT_CHARACTERS: Final = 1100
"""Maximum length of a float literal: somewhat more than the longest exact double in decimal digits.
"""
_NUMBER_CHARACTERS: Final = 64
"""Maximum length of a number literal without leading zeros."""


GRAMMAR: Final = """
path = label {"." (label | "*") | "[" ("*" | string | ["-"] int) "]"}
paths = path {"," path}
"""


class LiteralParser(TokenCursor):
    """Parser of literals and paths."""

    height = 0
    """Height of the last parsed expression, in nodes."""
    packed_bytes = 0
    """Memory of the packed values in the text, in bytes."""

    def number(self, negative: bool) -> tree.Constant:
        """Parse a number or duration.

        :param negative: True if a minus sign precedes it
        """
        kind, text = self.kinds[self.i], self.texts[self.i]
        self.height = 1
        with self.placed(self.i):
            if kind == INT:
                value: Any = _integer(text, negative)
            elif kind == DURATION:
                value = parse_duration("-" + text if negative else text)
            elif text.endswith("dec"):
                value = _decimal(text[:-3], negative)
            else:
                value = _float(text, negative)
        self.i += 1
        return tree.Constant(value)

    def prefixed_string(self, text: str) -> tree.Constant:
        """Parse bytes, a datetime, a uuid or a packed value: a string with a letter before it."""
        inner = text[2:-1]
        value: Any
        if text[0] == "m":
            return self._packed(inner)
        try:
            if text[0] == "b":
                value = base64.b64decode(inner, validate=True)
            elif text[0] == "d":
                value = parse_datetime(inner)
            elif len(inner) == 36:
                value = UUID(inner)
            else:
                raise ValueError(inner)
        except (ValueError, binascii.Error, BadRequest):
            wanted = {"b": "bytes as base64: b'…'", "d": "a datetime: d'2026-01-02T03:04:05Z'"}
            self.unexpected(wanted.get(text[0], "a uuid of 36 characters: u'…'"))
        self.i += 1
        return tree.Constant(value)

    def _packed(self, inner: str) -> tree.Constant:
        """Parse a packed value, a value in its stored form.

        It counts as one token, whatever its size, and adds no depth. The packed values of one text
        are limited together.
        """
        with self.placed(self.i):
            try:
                packed = base64.b64decode(inner, validate=True)
            except ValueError:
                self.unexpected("a value packed as msgpack, as base64: m'…'")
            value = unpack_foreign(packed, self._tick)
            size = weigh(value, self._tick)
            self.packed_bytes += size
            if self._memory is not None:
                self._memory.tree += size
            if self.packed_bytes > limits.SCRIPT_MEMORY_BYTES:
                raise TooLarge(
                    f"the packed values of a script take at most {limits.SCRIPT_MEMORY_BYTES} bytes"
                    " of memory together",
                    limit=limits.SCRIPT_MEMORY_BYTES,
                )
        self.i += 1
        return tree.Constant(value)

    def variable(self) -> str:
        """Parse a variable. Return its name without the `$`."""
        if self.kinds[self.i] != PARAM:
            self.unexpected("a variable: $name")
        name = self.texts[self.i][1:]
        if len(name) > limits.NAME_CHARACTERS:
            self.refuse(TooLarge, f"a name has at most {limits.NAME_CHARACTERS} characters")
        self.i += 1
        return name

    def path(self) -> Path:
        """Parse a field path, `a.b[0].c`, as in SET and OMIT."""
        steps: list[Step] = [self.label("field name")]
        while True:
            if self.take_mark("."):
                steps.append(EACH if self.take_mark("*") else self.label("field name"))
            elif self.take_mark("["):
                steps.append(self._position())
                self.expect_mark("]")
            else:
                return tuple(steps)
            if len(steps) > limits.DEPTH:
                self.refuse(TooLarge, f"a path has at most {limits.DEPTH} steps")

    def _position(self) -> Step:
        if self.take_mark("*"):
            return EACH
        if self.kinds[self.i] == STRING:
            return self.string("a field name")
        negative = self.take_mark("-")
        if self.kinds[self.i] != INT:
            self.unexpected("a position, a field name as a string, or `*`")
        value = self.number(negative).value
        assert isinstance(value, int)
        return value

    def paths(self) -> tuple[Path, ...]:
        """Parse paths separated by commas."""
        found = [self.path()]
        while self.separated():
            found.append(self.path())
            self.at_most(found, "paths")
        return tuple(found)


def _integer(text: str, negative: bool) -> int:
    if len(text) > _NUMBER_CHARACTERS:
        text = text.lstrip("0") or "0"
    if len(text) <= _NUMBER_CHARACTERS:
        value = -int(text) if negative else int(text)
        if limits.INT_MIN <= value <= limits.INT_MAX:
            return value
    raise NumberTooLarge("an integer does not fit 64 bits")


def _float(text: str, negative: bool) -> float:
    if len(text) > _FLOAT_CHARACTERS:
        raise NumberTooLarge(f"a float is written with at most {_FLOAT_CHARACTERS} characters")
    value = float(text)
    if value - value != 0.0:
        raise NumberTooLarge("a float is out of range")
    return -value if negative else value


def _decimal(text: str, negative: bool) -> Decimal:
    if len(text) > 2 * _NUMBER_CHARACTERS:
        raise NumberTooLarge(f"a decimal has at most {limits.DECIMAL_DIGITS} digits")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise NumberTooLarge(
            f"a decimal's exponent lies within ±{limits.DECIMAL_EXPONENT}"
        ) from None
    check_decimal(value)
    return value.copy_negate() if negative else value
