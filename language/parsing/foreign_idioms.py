"""Hints for idioms of other databases: their equivalents in this language."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from language.keywords import STATEMENTS

_WORDS: Final = {
    "BETWEEN": "`x IN 1..=9` of ints, or `x >= 1 AND x <= 9`",
    "COLUMNS": "`FIELDS`",
    "CONFLICT": "`INSERT INTO t … ON DUPLICATE UPDATE SET …`, or `… IGNORE`",
    "EXCEPT": "`WHERE x NOT IN (SELECT VALUE x FROM …)`",
    "INTERSECT": "`WHERE x IN (SELECT VALUE x FROM …)`",
    "DB": "`DATABASE`",
    "CONSUME": "`TAKE FROM topic AS group`, then `ACK`",
    "DESCRIBE": "`INFO FOR …`",
    "DEL": "`DELETE 'key' FROM space`",
    "EVENT": "`ALTER TABLE t SET ON CHANGE PUBLISH INTO topic`",
    "FLUSHALL": "`DROP SPACE …`",
    "FLUSHDB": "`DROP SPACE …`",
    "HSET": "a record: `UPSERT t:1 SET a = 1`",
    "ILIKE": "`x ~ '(?i)pattern'`",
    "IS": "`x = NULL`, or `x = NONE` for what is absent",
    "INCRBY": "`INCR 'key' IN space BY n`",
    "JOIN": "a path through a link: `a.b.name`, or back `<-t.field`",
    "LIKE": "`x ~ '^a'` or `string::starts(x, 'a')`, which both use an index, or `x CONTAINS 'a'`",
    "LIVE": "a change feed, `GET /watch?table=t` or the client's `watch`",
    "LPUSH": "`PUBLISH INTO topic VALUE …`",
    "MATERIALIZED": "`DEFINE FIELD … VALUE …`, or a table that a feed keeps",
    "MULTI": "`BEGIN … COMMIT`",
    "NS": "`NAMESPACE`",
    "OFFSET": "`START n`",
    "OVER": "`GROUP BY`; there are no window functions",
    "PARTITION": "`GROUP BY`; there are no window functions",
    "PRODUCE": "`PUBLISH INTO topic VALUE …`",
    "RELATE": "a field that holds a link: `SET a = t:1`, read back as `<-t.a`",
    "REMOVE": "`DROP`",
    "ROLLBACK": "`CANCEL`",
    "RPUSH": "`PUBLISH INTO topic VALUE …`",
    "SETEX": "`SET 'key' IN space VALUE … EXPIRE 1m`",
    "SETNX": "`SET 'key' IN space VALUE … IF ABSENT`",
    "SHOW": "`INFO FOR …`",
    "SUBSCRIBE": "`READ FROM topic` or `TAKE FROM topic AS group`; of a table a feed, `GET /watch`",
    "THEN": "`IF c { … }`, or `CASE WHEN c THEN … END`",
    "TRIGGER": "`ALTER TABLE t SET ON CHANGE PUBLISH INTO topic`",
    "TRUNCATE": "`DELETE t`",
    "UNION": "`SELECT … FROM a, b`, or `(SELECT …) + (SELECT …)`",
    "VALUES": "`INSERT INTO t [{ a: 1 }]`",
    "VIEW": "`LET $rows = (SELECT …)` in a script, or `DEFINE FUNCTION`",
    "WITH": "`LET $rows = (SELECT …)` before the statement",
    "XADD": "`PUBLISH INTO topic VALUE …`",
    "XREAD": "`READ FROM topic`",
    "XREADGROUP": "`TAKE FROM topic AS group`",
}
_PAIRS: Final = {
    ("=", "="): "`a = b`",
    ("<", ">"): "`a != b`",
    ("|", "|"): "`OR`, or `+` between strings",
    ("-", ">"): "a path through a link: `a.b.name`",
    ("+", "="): "`a = a + 1`",
    ("-", "="): "`a = a - 1`",
}
_FUNCTIONS: Final = {
    "array_agg": "collect", "avg": "mean", "average": "mean", "coalesce": "`a ?? b`",
    "concat": "`a + b`", "group_concat": "`string::join(collect(a), ',')`", "std": "stddev",
    "string_agg": "`string::join(collect(a), ',')`",
    "ifnull": "`a ?? b`", "length": "string::len", "len": "string::len", "nvl": "`a ?? b`",
    "now": "time::now", "substr": "string::slice", "substring": "string::slice",
    "uuid": "rand::uuid", "values": "`INSERT INTO t [{ a: 1 }]`",
    "array::add": "array::push", "array::append": "array::push", "array::concat": "`a + b`",
    "array::difference": "`SET a -= b`", "array::includes": "`a CONTAINS x`",
    "array::length": "array::len", "array::reduce": "array::fold",
    "array::union": "`array::distinct(a + b)`", "array::unique": "array::distinct",
    "rand": "rand::int", "rand::string": "`type::string(rand::uuid())`",
    "random": "rand::int", "string::concat": "`a + b`", "string::length": "string::len",
    "string::substr": "string::slice", "type::number": "type::int or type::decimal",
    "type::thing": "type::record",
}  # fmt: skip
"""Functions of other databases and their equivalents. Whole names are tried first."""
_DEFINED: Final = frozenset({
    "DATABASE", "FUNCTION", "INDEX", "NAMESPACE", "SPACE", "TABLE", "TOPIC", "USER",
})  # fmt: skip
"""Objects that other databases create with CREATE and this one with DEFINE."""
_CREATED: Final = frozenset({"EVENT", "TRIGGER", "VIEW"})
"""Objects that other databases create and that have another equivalent here."""
_SIGNS: Final = {"&": "`AND`", "!": "`NOT`"}
_LONGEST: Final = 16
"""Maximum length of a word for which a similar statement is searched."""


def meant(texts: Sequence[str], token: int, starts_statement: bool) -> str | None:
    """Return a suggestion for an unexpected token, or None.

    :param starts_statement: True if a statement should start at the token
    """
    text = texts[token]
    before = texts[token - 1] if token else ""
    behind = texts[token + 1] if token + 1 < len(texts) else ""
    if text == "*" and before == "(" and token >= 2 and texts[token - 2].upper() == "COUNT":
        return "`count()` with GROUP ALL or GROUP BY"
    if before.upper() == "FROM" and token >= 2 and texts[token - 2].upper() == "DELETE":
        return "`DELETE t`"
    if token >= 2 and texts[token - 2].upper() == "CREATE":
        noun = before.upper()
        if noun in _DEFINED:
            return f"`DEFINE {noun} …`"
        if noun in _CREATED:
            return _WORDS[noun]
    pair = _PAIRS.get((before, text)) or _PAIRS.get((text, behind)) or _SIGNS.get(text[:1])
    if pair is not None or len(text) > _LONGEST:
        return pair
    word = text.upper()
    if word in _WORDS:
        return _WORDS[word]
    if starts_statement:
        near = difflib.get_close_matches(word, STATEMENTS, n=1, cutoff=0.7)
        return f"`{near[0]}`" if near else None
    return None


def function_meant(name: str, known: Iterable[str]) -> str | None:
    """Return a suggestion for a call of an unknown function, or None."""
    plain = name.lower()[:_NAMED]
    if plain in _FUNCTIONS:
        return _FUNCTIONS[plain]
    for one in known:
        if one.partition("::")[2] == plain:
            return one
    near = difflib.get_close_matches(plain, list(known), 1)
    return near[0] if near else None


_NAMED: Final = 64
"""Maximum length of the part of a name for which similar functions are searched."""
