"""`@@` in the filter of a feed: the analyzer is that of the index when the feed is opened."""

from __future__ import annotations

from typing import NoReturn

import pytest

from language.filters import Filter
from language.search.analysis import Analyzer
from language.search.definitions import Definition, TokenFilter
from protocol.binary import pack
from protocol.errors import BadRequest
from protocol.paths import Path
from protocol.values import RecordId, unpaced

LOWER = Analyzer(Definition(("class",), (TokenFilter("lowercase"),)))


def _analyzer_of(paths: tuple[Path, ...]) -> Analyzer:
    assert set(paths) == {("title",), ("body", "text")}
    return LOWER


def _no_index(paths: tuple[Path, ...]) -> NoReturn:
    raise BadRequest("there is no index")


def test_a_filter_finds_text() -> None:
    found = Filter("[title, body.text] @@ 'tin -gold' AND n = 1", {}, _analyzer_of)
    for fields, passes in (
        ({"title": "Tin", "n": 1}, True),
        ({"body": {"text": ["a", "TIN"]}, "n": 1}, True),
        ({"title": "tin", "body": {"text": "gold"}, "n": 1}, False),
        ({"title": "tin", "n": 2}, False),
        ({"body": RecordId("t", 1), "title": "tin", "n": 1}, True),
    ):
        key = b"key"
        assert found.passes(key, pack(fields), lambda _: RecordId("t", 1), unpaced) is passes


def test_a_filter_without_an_index_is_refused() -> None:
    for analyzer_of in (_no_index, None):
        with pytest.raises(BadRequest):
            Filter("title @@ 'tin'", {}, analyzer_of)
    with pytest.raises(BadRequest):
        Filter("search::matches(title, 'tin', 'en')", {}, _analyzer_of)
