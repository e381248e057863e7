"""A text that is one value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from language import literals
from language.literals import parse_value
from protocol.errors import Refusal


def outcome(text: str) -> Any:
    """The value with its type, or the name of the refusal and what it says."""
    try:
        value = parse_value(text)
    except Refusal as refusal:
        return type(refusal), str(refusal)
    return type(value), value


@given(st.text(alphabet="'\"\\abc019- \n\0é☃{}[]:,.$", max_size=12))
@example("'hello'")
@example('"it\'s"')
@example("''")
@example("'a\\'b'")
@example("'line\nbreak'")
@example("9223372036854775807")
@example("9223372036854775808")
@example("007")
@example("-0")
@example("1'a'")
def test_what_needs_no_parser_says_what_the_parser_says(text: str) -> None:
    short = outcome(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(literals, "_PLAIN", _Never())
        assert outcome(text) == short


class _Never:
    def fullmatch(self, _text: str) -> None:
        """Nothing is plain."""
