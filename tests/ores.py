"""A table with a FULLTEXT and a VECTOR index, and questions that every copy of it answers alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

SEED: Final = """
DEFINE ANALYZER IF NOT EXISTS mineral TOKENIZERS class FILTERS lowercase, snowball(english);
DEFINE TABLE IF NOT EXISTS ore;
DEFINE INDEX IF NOT EXISTS text ON ore FIELDS title, body FULLTEXT ANALYZER mineral
    BM25 (1.5, 0.6) BOOST title 2;
DEFINE INDEX IF NOT EXISTS near ON ore FIELDS place VECTOR DIMENSION 4 DISTANCE EUCLIDEAN;
"""
WORDS: Final = "['malachite', 'azurite', 'galena', 'chalcopyrite', 'sphalerite', 'cuprites']"
"""Words of the texts, which are long enough to be looked for in files."""
DEPTH: Final = 0.7182818284590452
"""First number of each vector, and so of each centroid: its bytes are looked for in files."""


def rows(start: int, end: int) -> str:
    """Statements that write some records, with numbers from one up to another."""
    return f"""
INSERT INTO ore (array::map({start}..{end}, |$n| {{ id: $n, n: $n, title: {WORDS}[$n % 5], body: [
    {WORDS}[$n * 7 % 6], {WORDS}[$n * $n % 6], 'vein',
    IF $n % 11 = 0 {{ 'of galena' }} ELSE {{ 'no' }}
], place: [{DEPTH}, $n * 7919 % 1009 / 100.0, $n * $n % 997 / 100.0, $n * 5381 % 991 / 100.0]
}})) RETURN NONE;
"""


CHANGES: Final = f"""
UPDATE ore:3 SET body = 'galena beside galena', place = [{DEPTH}, 5.01, 5, 5]; DELETE ore:12;
UPDATE ore:14 SET title = NULL;
DELETE ore WHERE n > 100 AND n < 120;
UPSERT ore:x SET title = 'azurite', body = 'a vein of malachite', place = [{DEPTH}, 5, 5, 5.01]
"""
TO: Final = f"[{DEPTH}, 5, 5, 5]"
LISTED: Final = f"SELECT VALUE id FROM ore WHERE place NEAREST 20 TO {TO}"
"""Reads some lists only, if there are several."""
QUESTIONS: Final = f"""
SELECT VALUE id FROM ore WHERE [title, body] @@ 'galena -azurite';
SELECT id, search::score() AS s FROM ore WHERE [title, body] @@ 'malachite OR galena'
    ORDER BY search::score() DESC LIMIT 40;
SELECT id, search::score(body) AS s FROM ore WHERE [title, body] @@ '"of galena" vein';
SELECT id, search::score() AS s, search::highlight(title) AS t FROM ore
    WHERE [title, body] @@ 'cup* azurit~' ORDER BY search::score() DESC LIMIT 30;
SELECT count() AS c FROM ore WHERE [title, body] @@ 'vein' GROUP ALL;
SELECT id, vector::distance() AS d FROM ore WHERE place NEAREST 20 TO {TO} PROBES 100000;
SELECT id, vector::distance() AS d FROM ore
    WHERE place NEAREST 5 TO {TO} PROBES 100000 AND [title, body] @@ 'galena';
SELECT VALUE id FROM ore ORDER BY vector::euclidean(place, {TO}) LIMIT 9;
"""
"""The answers are exact: a NEAREST among them reads all lists."""
CHECK: Final = "CHECK INDEX text ON ore; CHECK INDEX near ON ore"
INFO: Final = "INFO FOR INDEX text ON ore; INFO FOR INDEX near ON ore"


def are_folded(infos: Sequence[Mapping[str, Any]], lists: int = 1) -> bool:
    """True if no record is fresh, by what INFO says, and all vectors are in so many lists."""
    text, near = infos
    ready = text["state"] == near["state"] == "ready"
    fresh = text["fresh"]["records"] or near["fresh"]
    spread = lists == 1 or near["largest_list"] * 8 < near["records"]
    return bool(ready and not fresh and near["lists"] >= lists and spread)


def are_whole(checked: Sequence[Mapping[str, Any]]) -> bool:
    """True if CHECK INDEX finds every record in its index, and no other."""
    return all(
        one["entries"] == one["records"] > 0 and one["missing"] == one["surplus"] == 0
        for one in checked
    )


def share(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Return the recall of an answer."""
    return sum(one in wanted for one in found) / len(wanted)
