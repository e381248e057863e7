"""Stores as scripts, for tests: written, taken apart, and run on another store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from actors.backups.loading import LoadResult, load
from actors.backups.script_files import pieces
from actors.backups.scripts import About, StoreScript
from actors.environment import system_environment
from actors.node import Node, start
from actors.settings import NodeSettings
from language.splitting import Piece
from protocol.requests import ScriptAnswer
from protocol.values import unpaced
from storage.backups.scripts import BEGINS, ScriptEncoder
from storage.catalog import places as catalog_places
from storage.catalog.places import Database, Namespace
from surfaces.command.caller import OPERATOR
from tests.nodes import CHEAP, Running

EVERYTHING = r"""
DEFINE NAMESPACE OVERWRITE shop COMMENT 'with a \'quote\'';
DEFINE DATABASE OVERWRITE shop.main COMMENT 'lines
and tabs\t';
DEFINE NAMESPACE bakery; DEFINE DATABASE bakery.main; DEFINE NAMESPACE empty;
USE bakery.main; DEFINE TABLE loaf; CREATE loaf:rye SET price = 3.20dec, secret = 'canary-bakery';
USE shop.main;
DEFINE TOPIC news KEEP 7d BYTES 1MiB LARGEST 100KiB DEDUP 1h FULL REFUSE COMMENT 'all of it';
DEFINE TOPIC plain; DEFINE TOPIC dead;
DEFINE TABLE person COMMENT 'people';
DEFINE TABLE `select`; DEFINE TABLE `a-b`; DEFINE TABLE nothing;
DEFINE ANALYZER en TOKENIZERS class, camel FILTERS lowercase, ascii, stop(english),
    stop(['le', 'la']), synonyms({ tv: ['television set'], 'x y': [] }), snowball(english)
    COMMENT 'of texts';
DEFINE ANALYZER parts TOKENIZERS blank FILTERS edgengram(2, 10), ngram(1, 2);
DEFINE FUNCTION tax($n: number) -> number { $n * 0.25dec } COMMENT 'of it';
DEFINE FUNCTION net($n: number, $r: option<decimal>) { $n - fn::tax($n) };
DEFINE FUNCTION ping($n: int) { $n };
DEFINE FUNCTION pong($n: int) -> int { IF $n > 0 { fn::ping($n - 1) } ELSE { 0 } };
DEFINE FUNCTION OVERWRITE ping($n: int) -> int { IF $n > 0 { fn::pong($n - 1) } ELSE { 0 } };
CREATE person:ana SET name = 'Ana', age = -3, home = { city: 'Lima', tags: ['a', { b: [1, 2] }] };
CREATE person:1 SET at = d'2026-01-02T03:04:05.123456Z', took = -1w2d3us, raw = b'AAEC';
CREATE person:-9223372036854775808 SET big = 9223372036854775807, f = -0.0, e = 1e300, n = NULL;
CREATE person:`any text; -- not an end` SET s = '; /* \' " ` \\ \u{0}é\u{1f600}\n\r\t#//';
CREATE person:['x', 1, u'00000000-0000-4000-8000-000000000000'] SET link = `select`:1;
CREATE person:u'00000000-0000-4000-8000-000000000001' SET d = 12.300dec, list = [], o = {};
CREATE `select`:`from` CONTENT { where: 1, 'a b': 2, '': 3 };
CREATE `a-b`:1;
DEFINE INDEX words ON person FIELDS text, more.text FULLTEXT ANALYZER en BM25 (2, 0.5)
    BOOST more.text 3 COMMENT 'of texts';
DEFINE FIELD age ON person TYPE option<int> ASSERT $value > -100 COMMENT 'in years';
DEFINE FIELD home ON person TYPE option<object>;
DEFINE FIELD home.city ON person TYPE option<string> DEFAULT 'Oslo';
DEFINE FIELD total ON person TYPE option<number> VALUE fn::net(age ?? 1) ;
DEFINE FIELD OVERWRITE name ON person TYPE option<string | int> READONLY;
DEFINE FIELD OVERWRITE never ON person TYPE string;
DEFINE FIELD kind ON `a-b` TYPE option<'x' | 1 | NULL | record<person | `select`> | array<int, 3>>;
DEFINE INDEX by_name ON person FIELDS name UNIQUE COMMENT 'one each';
DEFINE INDEX by_home ON person FIELDS home.city, home.tags[*];
DEFINE TABLE OVERWRITE `a-b` SCHEMAFULL ON CHANGE OF kind PUBLISH INTO plain COMMENT 'strict';
ALTER TABLE `select` SET ON CHANGE PUBLISH INTO plain;
PUBLISH INTO news VALUE { a: 1 } KEY 'k' ID 'i' HEADERS { h: 'v', `x y`: '' };
PUBLISH INTO news VALUES [1, 'two', NULL, [3]];
PUBLISH INTO news VALUE 'later' DELAY 30d;
PUBLISH INTO news VALUE 'again' ID 'j';
PUBLISH INTO plain VALUES ['a', 'b', 'c', 'd']; TRIM TOPIC plain BEFORE 2;
DEFINE READER r ON plain AT 3; DEFINE READER behind ON news;
DEFINE GROUP g ON plain DEADLINE 30s IN FLIGHT 5 DELIVERIES 3 DEAD LETTER dead BACKOFF 1s, 10s
    ORDERED BY KEY AT 2;
DEFINE GROUP h ON news DEADLINE 1h AT END;
DEFINE SPACE sessions EXPIRE 30m COMMENT 'short';
DEFINE SPACE counters;
SET 'a' IN sessions VALUE { x: [1, person:ana] };
SET 'b' IN sessions VALUE 'forever'; PERSIST 'b' IN sessions;
INCR 'hits' IN counters BY 41; SET 'none' IN counters VALUE NULL;
SET 'gone' IN counters VALUE 1 EXPIRE AT d'2020-01-01T00:00:00Z';
LOCK 'held' IN counters HOLDER 'me' EXPIRE 1h;
DEFINE USER bo ROLE member PASSWORD 'correct horse battery' COMMENT 'helps';
DEFINE USER cy ROLE editor ON DATABASE shop.main PASSWORD 'correct horse battery';
DEFINE USER di ROLE owner ON NAMESPACE bakery PASSWORD 'correct horse battery';
GRANT READ, INFO ON DATABASE shop.main TO bo; GRANT CONSUME ON TOPIC shop.main.news TO bo;
GRANT INFO ON NODE TO bo; GRANT READ ON TABLE shop.main.nothing TO bo;
DROP TABLE nothing;
"""
"""A store with every kind of thing in it."""


class Operated(Running):
    """A node and short ways to use it, for whoever may open its directory."""

    async def answer(self, script: str, *more: Any, **fields: Any) -> ScriptAnswer:
        return await super().answer(script, *more, **{"caller": OPERATOR, **fields})


def written(node: Node, places: Sequence[Sequence[str]] | None = None) -> bytes:
    """A store as a script. :param places: the names of each"""
    with node.committer.begin_transaction() as tx:
        found: list[Namespace | Database] | None = None
        if places is not None:
            found = []
            for names in places:
                namespace = catalog_places.namespace(tx, names[0])
                found.append(
                    namespace
                    if len(names) == 1
                    else catalog_places.database(tx, namespace, names[1])
                )
        script = StoreScript(tx, About(node.store.id, node.committer.commit_index), unpaced, found)
        return b"".join(script.chunks())


async def loaded(script: bytes, directory: Path) -> tuple[Node, LoadResult]:
    """A store that a script was run on."""
    told = NodeSettings(str(directory), serves=False, password_cost=CHEAP)
    node = await start(told, system_environment())
    return node, await load(node.scripts, pieces_of(script), OPERATOR)


def pieces_of(script: bytes) -> Iterator[Piece]:
    """The statements of a script."""
    return pieces(lambda offset, count: script[offset : offset + count])


def sealed(body: str, statements: int = 1) -> bytes:
    """A script whose head and last line are right, whatever stands between."""
    sealing = ScriptEncoder()
    return sealing.add(BEGINS + body) + sealing.end(statements)


def statements(script: bytes) -> str:
    """What a script says, without what differs from day to day: head and digest."""
    text = script.decode()
    body = re.sub(r"\A(-- [^\n]*\n)+", "", text)
    return re.sub(r"-- end [^\n]*\n\Z", "", body)
