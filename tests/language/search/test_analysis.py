"""Analyzers: what tokenizers and filters make of texts and of queries, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from language.search.analysis import Analyzer
from language.search.definitions import Definition, TokenFilter, check_definition
from language.search.matching import matches
from language.search.query import parse_query
from protocol import limits
from protocol.errors import BadRequest, Refusal, TooLarge, TypeRefused, Unknown
from protocol.values import PACE, unpaced

LOWER = TokenFilter("lowercase")


def made(*filters: TokenFilter, tokenizers: tuple[str, ...] = ("class",)) -> Analyzer:
    definition = Definition(tokenizers, filters)
    check_definition(definition)
    return Analyzer(definition)


def terms(analyzer: Analyzer, text: str) -> list[str]:
    return [token.term for token in analyzer.tokens(text)]


def found(analyzer: Analyzer, query: Any, text: Any) -> bool:
    tree = parse_query(query, analyzer)
    return tree is not None and matches(tree, (analyzer.postings(text)[0],), unpaced)


@pytest.mark.parametrize(
    ("tokenizers", "text", "expected"),
    [
        (("class",), "Wi-Fi 6e, x² 10:30_am", ["Wi", "Fi", "6", "e", "x²", "10", "30", "am"]),
        (("class",), "e\u0301te\u0301 हिन्दी", ["e\u0301te\u0301", "हिन्दी"]),
        (("blank",), " Wi-Fi\t(6e)\u3000x ", ["Wi-Fi", "(6e)", "x"]),
        (("punct",), "Wi-Fi (6e) «x» 10:30", ["Wi", "Fi", "6e", "x", "10", "30"]),
        (("camel",), "parseHTMLPage now", ["parse", "HTML", "Page", "now"]),
        (("class", "camel"), "utf8Name", ["utf", "8", "Name"]),
        (("class",), "", []),
    ],
)  # fmt: skip
def test_tokenizers_cut_words(tokenizers: tuple[str, ...], text: str, expected: list[str]) -> None:
    analyzer = made(tokenizers=tokenizers)
    assert terms(analyzer, text) == expected
    assert [text[one.start : one.end] for one in analyzer.tokens(text)] == expected
    assert sorted(analyzer.postings(text)[0]) == sorted(set(expected))


def test_filters_run_in_their_order() -> None:
    english = made(LOWER, TokenFilter("ascii"), TokenFilter("stop", ("english",)),
                   TokenFilter("snowball", ("english",)))  # fmt: skip
    assert terms(english, "The Cafés were Running") == ["cafe", "run"]
    assert [one.position for one in english.tokens("The Cafés were Running")] == [1, 3]
    assert terms(made(TokenFilter("stop", (["the"],)), LOWER), "The the") == ["the"]
    assert terms(made(LOWER), "ＦＵＬＬ Straße ﬁ") == ["full", "strasse", "fi"]


def test_parts_of_words() -> None:
    edge = made(LOWER, TokenFilter("edge", (2, 4)))
    assert terms(edge, "Copper a") == ["co", "cop", "copp", "a"]
    assert found(edge, "cop", "Copper") and found(edge, "copper", "coppery")
    assert not found(edge, "opp", "Copper")
    grams = made(LOWER, TokenFilter("ngram", (2, 3)))
    assert found(grams, "ppe", "Copper") and found(grams, "coppe", "Copper")
    assert not found(grams, "copx", "Copper") and not found(grams, "copper", "cop oppe per")


def test_synonyms_are_of_the_query() -> None:
    one_way = made(LOWER, TokenFilter("synonyms", ({"TV": ["television set", "telly"]},)),
                   TokenFilter("snowball", ("english",)))  # fmt: skip
    assert found(one_way, "tv", "two television sets") and found(one_way, "tv", "a TV")
    assert not found(one_way, "television", "a tv") and not found(one_way, "tv", "set television")
    assert not found(one_way, '"tv show"', "telly show")
    both = made(LOWER, TokenFilter("synonyms", ([["tv", "telly"], ["car", "auto"]],)))
    assert (
        found(both, "telly", "tv") and found(both, "tv", "telly") and not found(both, "tv", "car")
    )


def test_scripts_without_spaces() -> None:
    plain = made(LOWER)
    assert terms(plain, "東京都のWi-Fi") == ["東京", "京都", "都の", "の", "wi", "fi"]
    for query in ("東", "京都", "東京都", "の", '"東京都の wi"', "東京*", "都~"):
        assert found(plain, query, "東京都のWi-Fi"), query
    assert not found(plain, "東都", "東京都") and not found(plain, "京東", "東京")
    assert found(plain, "ガギ", "ｶﾞｷﾞ")
    assert terms(made(tokenizers=("blank",)), "東京都 x") == ["東京都", "x"]
    assert terms(made(TokenFilter("cjk"), tokenizers=("blank",)), "東京 x") == ["東京", "京", "x"]


def test_signs_that_mean_nothing_are_text() -> None:
    plain = made(LOWER)
    for query in ("", "-", '"', '""', "OR", "OR OR", "*", "~", "-*", '-"', "()", "-tin", "- OR -"):
        assert not found(plain, query, "tin copper"), query
    for query in (
        "tin OR",
        "OR tin",
        'tin "',
        "tin -",
        "(tin)",
        "tin ~2",
        "gold OR OR tin",
        "tin~0",
    ):
        assert parse_query(query, plain) is not None, query
    assert found(plain, "(tin)", "tin") and found(plain, "gold OR tin copper", "tin copper")
    assert not found(plain, "gold OR -tin", "tin") and found(plain, "gold OR -tin", "gold")
    assert found(plain, "wi-fi", "Wi-Fi") and not found(plain, "wi-fi", "fi wi")
    assert found(plain, ["-tin"], "tin") and found(plain, ["tin copper"], "tin copper")


def test_an_array_of_strings_is_one_text_with_gaps() -> None:
    plain = made(LOWER)
    assert found(plain, "tin copper", ["tin", "copper"])
    assert not found(plain, '"tin copper"', ["tin", "copper"])
    assert not found(plain, {"phrase": ["tin copper", 99]}, ["tin", "copper"])
    assert found(plain, "tin", [1, None, "tin"])
    for other in (None, 1, {"a": "tin"}, [["tin"]]):
        assert not found(plain, "tin", other)


def test_long_words_and_texts_are_bounded() -> None:
    plain = made(LOWER)
    long = "a" * 100
    (term,) = terms(plain, long)
    assert len(term.encode()) == limits.TERM_BYTES
    assert found(plain, long, long) and not found(plain, long + "b", long)
    assert found(plain, "a" * 5_000, "a" * 5_000)
    text = "x " * (limits.SEARCH_TEXT_CHARACTERS // 2) + "tin"
    assert not found(plain, "tin", text) and not found(plain, "tin", ["x", text])
    assert len(plain._known) <= 4


def test_queries_are_bounded() -> None:
    plain = made(LOWER)
    queries: tuple[Any, ...] = (
        "x " * (limits.QUERY_WORDS + 1),
        "x-" * 5_000_000,
        f'"{"y " * 300}"',
        ["x"] * 300,
        {"any": ["x y"] * 150},
        {"prefix": "x " * 300},
        "y" * (limits.QUERY_CHARACTERS + 1),
        ["y" * limits.QUERY_CHARACTERS, "z"],
        {"any": [[]] * 2_000},
        {"all": [{"any": [[]] * 600}, {"any": [[]] * 600}]},
    )
    for query in queries:
        with pytest.raises(TooLarge):
            parse_query(query, plain)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (1, TypeRefused), (None, TypeRefused), ([1], TypeRefused), ({}, TypeRefused),
        ({"any": "x"}, TypeRefused), ({"some": ["x"]}, TypeRefused),
        ({"any": ["x", {"not": "y"}]}, BadRequest),
        ({"fuzzy": ["x", 3]}, BadRequest), ({"phrase": ["x", -1]}, BadRequest),
        ({"phrase": [1, 1]}, TypeRefused), ({"prefix": 1}, TypeRefused), ({"not": 1}, TypeRefused),
        ({"all": [{"not": 1}]}, TypeRefused),
    ],
)  # fmt: skip
def test_other_values_are_no_queries(query: Any, kind: type[Refusal]) -> None:
    with pytest.raises(kind):
        parse_query(query, made(LOWER))


def test_not_alone_finds_nothing() -> None:
    plain = made(LOWER)
    assert parse_query({"not": "x"}, plain) is None
    assert parse_query({"all": [{"not": "x"}]}, plain) is None


class Ticks:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_walks_over_long_texts_give_way() -> None:
    plain, ticks = made(LOWER), Ticks()
    often, _ = plain.postings("a b " * 20_000)
    for query in ('"' + "a b " * 100 + 'a a"', {"phrase": ["a b " * 100 + "a a a", 1]}):
        ticks.count = 0
        assert not matches(_tree(plain, query), (often,), ticks)
        assert ticks.count >= 20_000 * 100 // PACE
    many, _ = plain.postings(" ".join(f"word{number}" for number in range(10_000)))
    for query in ("worx*", "wordxxxx~"):
        ticks.count = 0
        assert not matches(_tree(plain, query), (many,), ticks)
        assert ticks.count >= 10
    grams = made(TokenFilter("ngram", (1, 20)))
    ticks.count = 0
    grams.postings(" ".join(f"{number:0200}" for number in range(20)), ticks)
    assert ticks.count >= 20


def test_terms_of_a_text_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEARCH_TERMS", 100)
    grams = made(TokenFilter("ngram", (1, 20)))
    found, words = grams.postings("abcdefghijklmnopqrstuvwxyz 0123456789012345678901 ab")
    assert len(found) == 100 and words == 3
    assert found["ab"] == [0, 2]
    assert list(grams._known) == ["ab"]


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        (Definition(("words",)), Unknown),
        (Definition(("class",), (TokenFilter("upper"),)), Unknown),
        (Definition(("class",), (TokenFilter("snowball", ("klingon",)),)), Unknown),
        (Definition(("class",), (TokenFilter("stop", ("klingon",)),)), Unknown),
        (Definition(("class",), (TokenFilter("snowball"),)), BadRequest),
        (Definition(("class",), (TokenFilter("lowercase", (1,)),)), BadRequest),
        (Definition(("class",), (TokenFilter("edge", (3, 2)),)), BadRequest),
        (Definition(("class",), (TokenFilter("edge", (1, 21)),)), BadRequest),
        (Definition(("class",), (TokenFilter("ngram", ("a", 2)),)), TypeRefused),
        (Definition(("class",), (TokenFilter("stop", ([1],)),)), TypeRefused),
        (Definition(("class",), (TokenFilter("synonyms", ({"a": "b"},)),)), TypeRefused),
        (Definition(("class",), (TokenFilter("snowball", (1,)),)), TypeRefused),
        (Definition(("class",), (TokenFilter("stop", (["a"] * 10_001,)),)), TooLarge),
        (Definition(("class",), (TokenFilter("synonyms", ([["a"]] * 10_001,)),)), TooLarge),
    ],
)
def test_definitions_are_checked(definition: Definition, kind: type[Refusal]) -> None:
    with pytest.raises(kind):
        check_definition(definition)


def _tree(analyzer: Analyzer, query: Any) -> Any:
    found = parse_query(query, analyzer)
    assert found is not None
    return found
