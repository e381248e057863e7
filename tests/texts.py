"""A table with a FULLTEXT index, and questions that every copy of it has to answer alike."""

from __future__ import annotations

from typing import Final

SEED: Final = """
DEFINE ANALYZER IF NOT EXISTS mineral TOKENIZERS class FILTERS lowercase, snowball(english);
DEFINE TABLE IF NOT EXISTS ore;
DEFINE INDEX IF NOT EXISTS text ON ore FIELDS title, body FULLTEXT ANALYZER mineral
    BM25 (1.5, 0.6) BOOST title 2;
"""
WORDS: Final = "['malachite', 'azurite', 'galena', 'chalcopyrite', 'sphalerite', 'cuprites']"
"""Words of the texts, which are long enough to be looked for in files."""


def rows(start: int, end: int) -> str:
    """Statements that write some records, with numbers from one up to another."""
    return f"""
INSERT INTO ore (array::map({start}..{end}, |$n| {{ id: $n, n: $n, title: {WORDS}[$n % 5], body: [
    {WORDS}[$n * 7 % 6], {WORDS}[$n * $n % 6], 'vein',
    IF $n % 11 = 0 {{ 'of galena' }} ELSE {{ 'no' }}
] }})) RETURN NONE;
"""


CHANGES: Final = """
UPDATE ore:3 SET body = 'galena beside galena'; DELETE ore:12; UPDATE ore:14 SET title = NULL;
DELETE ore WHERE n > 100 AND n < 120;
UPSERT ore:x SET title = 'azurite', body = 'a vein of malachite'
"""
QUESTIONS: Final = """
SELECT VALUE id FROM ore WHERE [title, body] @@ 'galena -azurite';
SELECT id, search::score() AS s FROM ore WHERE [title, body] @@ 'malachite OR galena'
    ORDER BY search::score() DESC LIMIT 40;
SELECT id, search::score(body) AS s FROM ore WHERE [title, body] @@ '"of galena" vein';
SELECT id, search::score() AS s, search::highlight(title) AS t FROM ore
    WHERE [title, body] @@ 'cup* azurit~' ORDER BY search::score() DESC LIMIT 30;
SELECT count() AS c FROM ore WHERE [title, body] @@ 'vein' GROUP ALL;
"""
CHECK: Final = "CHECK INDEX text ON ore"
INFO: Final = "INFO FOR INDEX text ON ore"
