"""`storenode import` and `export`: exact there and back, and whole whatever breaks in between."""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import io
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from bench.ports import free_port
from protocol import limits
from protocol.values import NONE, RecordId
from storeclient import AsyncClient, Client, OutcomeUnknown, Unreachable, errors
from surfaces.shell import exporting, patience, rows
from surfaces.shell.cells import CsvRows
from surfaces.shell.columns import CellRefused, Census, Column, Guess, from_head
from surfaces.shell.resuming import ResumeFile
from surfaces.shell.transfers import Import, Table, understand_export, understand_import
from tests.processes import (
    PASSWORD,
    USER,
    NodeProcess,
    begin,
    command_line,
    environment,
    run,
    serving,
)
from tests.surfaces.shell.conftest import Here
from tests.tables import case

EVERY_TYPE = """
    DEFINE TABLE t;
    INSERT INTO t [
        { id: 1, a: 1, b: 1.5, c: 12.30dec, s: "x", t: true, at: d'2026-01-02T03:04:05.000006Z',
          d: 1h30m, u: u'018f0000-0000-7000-8000-000000000001', r: t:ana, l: [1, 'a'],
          o: { p: { q: 1dec } } },
        { id: 'ana', a: NULL, b: 2, c: 1dec, s: '', t: false, by: b'AAEC',
          'a b': 'quote " and , comma' },
        { id: "line\\nbreak", a: -9223372036854775807, s: "\\\\N", m: 1, by: b'' },
        { id: u'018f0000-0000-7000-8000-000000000002', s: "\\\\", m: 'mixed' },
        { id: ['a', 1], s: "  spaces\\r\\nlines ", m: NULL, l: [], y: "a\\rb", z: "end\\r",
          '': 'of no name' }
    ]
"""  # fmt: skip


def transfer(here: Here, word: str, table: str, path: Path | str, *words: str) -> tuple[int, str]:
    """Exit code and standard error of an import or export of a table of the test's database."""
    code, _, err = here.run(word, f"{here.place}.{table}", str(path), "--at", here.address, *words)
    return code, err


def table(here: Here, name: str) -> Any:
    return here.script(f"SELECT *, record::id(id) AS id FROM {name}")


def nested(levels: int, row: bool = False) -> Any:
    """An array around so many arrays less one; the outermost is an object where a row is wanted."""
    value: Any = []
    for _ in range(levels - 1 - row):
        value = [value]
    return {"a": value} if row else value


Way = Callable[[int], str | None]
"""Brings a value of so many levels into the node. Answers the code of its refusal."""


def nested_row(levels: int) -> Any:
    return nested(levels, row=True)


def nested_rows(levels: int) -> Any:
    return [nested_row(levels)]


def nested_ways(here: Here, client: Client, path: Path) -> Iterator[tuple[str, Way]]:
    """The ways by which a value comes into the node, by name."""

    def refused(work: Callable[..., object], *given: Any) -> str | None:
        try:
            work(*given)
        except errors.Refused as error:
            return error.code
        return None

    def over_wire(script: str, value: Any) -> str | None:
        return refused(client.run, script, {"v": value})

    def over_http(script: str, value: Any) -> str | None:
        answer = here.node.script(script, ns="shop", db=here.database, params={"v": value})
        return answer["error"]["code"] if "error" in answer else None

    def over_msgpack(script: str, value: Any) -> str | None:
        asked = {"script": script, "ns": "shop", "db": here.database, "params": {"v": value}}
        kind = {"Content-Type": "application/msgpack"}
        reply = here.node.request("POST", "/script", msgpack.packb(asked), kind)
        return reply.json["error"]["code"] if "error" in reply.json else None

    def on_key(method: str, route: str, body: object, kind: str) -> str | None:
        path = f"/kv/shop/{here.database}/s/{route}/k"
        reply = here.node.request(method, path, body, {"Content-Type": kind})
        return None if reply.status < 300 else reply.json["error"]["code"]

    def as_key(value: Any, encode: Callable[[Any], object], kind: str) -> str | None:
        return on_key("PUT", "key", encode(value), kind)

    def as_swap(value: Any, encode: Callable[[Any], object], kind: str) -> str | None:
        return on_key("POST", "swap", encode({"expect": value, "value": value}), kind)

    def imported(row: Any) -> str | None:
        path.write_text(json.dumps({"id": 1, **row}) + "\n")
        code, err = transfer(here, "import", "t", path, "--on-duplicate", "update")
        return None if code == 0 else "TooLarge" if "nest at most 64 deep" in err else err

    def written_out(script: str, value: Any) -> str | None:
        return refused(client.run, script.replace("{}", str(value)))

    def packed(value: Any) -> str | None:
        return refused(client.run, f"RETURN m'{base64.b64encode(msgpack.packb(value)).decode()}'")

    def way(work: Callable[[Any], str | None], make: Callable[[int], Any]) -> Way:
        return lambda levels: work(make(levels))

    for name, make, script in (
        ("a parameter", nested, "RETURN $v"),
        ("CREATE", nested_row, "CREATE t CONTENT $v"),
        ("INSERT of rows", nested_rows, "INSERT INTO t $v"),
        ("INSERT of what was read", nested_row,
         "UPSERT t:2 CONTENT $v; LET $r = SELECT * FROM t:2; DELETE t:2; INSERT INTO t $r"),
        ("INSERT of a subquery", nested_row,
         "UPSERT t:3 CONTENT $v; INSERT INTO t (SELECT * OMIT id FROM t:3)"),
        ("PUBLISH of several", nested_rows, "PUBLISH INTO q VALUES $v"),
        ("SET", nested, "SET 'k' IN s VALUE $v"),
    ):  # fmt: skip
        for surface in (over_wire, over_http, over_msgpack):
            yield f"{name} {surface.__name__}", way(partial(surface, script), make)
    topic = client.topic("shop", here.database, "q")
    yield "publish", way(partial(refused, topic.publish), nested)
    several = way(partial(refused, topic.publish_many), lambda levels: [nested(levels)] * 2)
    yield "publish many", several
    cache = client.cache("shop", here.database, "s")
    yield "a key", way(partial(refused, cache.set, "k"), nested)
    for kind, encode in (
        ("application/json", json.dumps),
        ("application/msgpack", msgpack.packb),
        ("text/plain", str),
    ):
        yield f"a key as {kind}", way(partial(as_key, encode=encode, kind=kind), nested)
        yield f"a swap as {kind}", way(partial(as_swap, encode=encode, kind=kind), nested)
    for script, make in (
        ("IF true { IF true { RETURN ({}) } }", nested),
        ("INSERT INTO t [{}, {}]", nested_row),
        ("PUBLISH INTO q VALUE {}", nested_row),
    ):
        yield script, way(partial(written_out, script), make)
    yield "a packed literal", way(packed, nested)
    yield "import", way(imported, nested_row)


def test_a_value_nests_as_deep_whatever_way_it_comes(here: Here, tmp_path: Path) -> None:
    """What stands around it, a frame, a body, parameters, an array of rows, is no part of it."""
    here.script("DEFINE TABLE t; DEFINE TABLE u; DEFINE TOPIC q; DEFINE SPACE s")
    with Client(here.address, user=USER, password=PASSWORD, ns="shop", db=here.database) as client:
        for name, way in nested_ways(here, client, tmp_path / "in.jsonl"):
            with case(name):
                assert way(limits.DEPTH) is None
                assert way(limits.DEPTH + 1) == "TooLarge"
    here.script("DELETE t; CREATE t:1 CONTENT $v", v=nested(limits.DEPTH, True))
    for form in ("jsonl", "csv"):
        path = tmp_path / f"t.{form}"
        assert transfer(here, "export", "t", path) == (0, ANY)
        code, err = transfer(here, "import", "u", path, "--on-duplicate", "update")
        assert code == 0, err
        assert table(here, "u") == table(here, "t") == [{"id": 1, **nested(limits.DEPTH, True)}]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_every_type_there_and_back(here: Here, tmp_path: Path, form: str) -> None:
    here.script(EVERY_TYPE + "; DEFINE TABLE u")
    path = tmp_path / f"t.{form}"
    code, err = transfer(here, "export", "t", path)
    assert code == 0 and "exported 5 records" in err and "as of sequence" in err
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    code, err = transfer(here, "import", "u", path)
    assert (code, "5 inserted, 0 existed already" in err) == (0, True)
    assert table(here, "u") == table(here, "t") != []
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert transfer(here, "export", "t", path)[0] == 2  # nothing is ever replaced


VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**63), 2**63 - 1) | some.text(max_size=6)
    | some.floats(allow_nan=False, allow_infinity=False)
    | some.decimals(-1000, 1000, places=3) | some.binary(max_size=4) | some.uuids()
    | some.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(
        lambda at: at.replace(fold=0, tzinfo=UTC)
    )
    | some.timedeltas(timedelta(-99), timedelta(99))
    | some.builds(RecordId, some.just("t"), some.text(min_size=1, max_size=4)),
    lambda inner: some.lists(inner, max_size=3)
    | some.dictionaries(some.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=60)
@given(some.lists(VALUES | some.just(NONE), min_size=1, max_size=4))
def test_any_column_is_read_back_as_it_was(values: list[Any]) -> None:
    census = Census()
    for value in values:
        census.count({"f": value})
    (column,) = census.columns()
    out = io.StringIO()
    written = CsvRows(out)
    for value in values:
        written.row([column.write(value)])
    cells = [row[0] if row else "" for row in csv.reader(io.StringIO(out.getvalue(), newline=""))]
    found = [from_head(column.head, lambda _: None).read(cell) for cell in cells]
    assert [repr(one) for one in found] == [repr(one) for one in values]


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        ("int", "7", 7),
        ("float", ".5", 0.5),
        ("number", "7.0", 7.0),
        ("decimal", "1.20", Decimal("1.20")),
        ("bool", "TRUE", True),
        ("datetime", "2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("duration", "5m", timedelta(minutes=5)),
        ("array", "[1]", [1]),
        ("string", "\\N", "\\N"),  # no escape where the head says no type
    ],
)
def test_cells_of_others(kind: str, cell: str, value: Any) -> None:
    found = Column("f", kind, exact=False).read(cell)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("int", "7.5"), ("int", "9223372036854775808"), ("int", "x"), ("float", "nan"),
        ("float", "1e999"), ("bool", "yes"), ("datetime", "yesterday"), ("record", "t"),
        ("array", "{}"), ("any", "text"), ("uuid", "x"), ("bytes", "***"), ("string", "\\x"),
        ("int", "\\E"), ("decimal", "Infinity"), ("decimal", "1e99999"),
    ],
)  # fmt: skip
def test_cells_refused(kind: str, cell: str) -> None:
    with pytest.raises(CellRefused, match=r"^f: "):
        Column("f", kind).read(cell)


def test_columns_without_types_take_those_of_the_fields(here: Here, tmp_path: Path) -> None:
    here.script(
        "DEFINE TABLE t; DEFINE FIELD age ON t TYPE option<int | NULL>;"
        "DEFINE FIELD r ON t TYPE option<'a' | 'b'>"
    )
    path = tmp_path / "people.csv"
    path.write_text("﻿id,age,r,price,note\n1,34,a,1.50,\\N\n2,,,2,\n")
    code, err = transfer(here, "import", "t", path, "--types", "id:int,pirce:decimal")
    assert code == 2 and "--types: there is no column 'pirce': the head is id, age, r" in err
    typed = tmp_path / "typed.csv"
    typed.write_text("id:int,rate:int\n1,5\n")
    code, err = transfer(here, "import", "t", typed, "--types", "rate:string")
    assert code == 2 and "--types: rate:string contradicts the head, rate:int" in err
    code, err = transfer(here, "import", "t", path, "--types", "id:int,price:decimal")
    assert code == 0, err
    assert here.script("SELECT * FROM t") == [
        {"id": {"$rec": "t:1"}, "age": 34, "r": "a", "price": {"$dec": "1.50"}, "note": "\\N"},
        {"id": {"$rec": "t:2"}, "price": {"$dec": "2"}},
    ]


def test_what_nothing_says_the_type_of_is_said_and_taken_when_asked(
    here: Here, tmp_path: Path
) -> None:
    here.script("DEFINE TABLE t; DEFINE TABLE u; DEFINE TABLE v; DEFINE TABLE w")
    path = tmp_path / "people.csv"
    path.write_text("id,name,price,zip\n1,Ana,1.50,00501\n22,Bo,,10\n")
    code, err = transfer(here, "import", "t", path)
    head = f"{path}: the head 'id, name, price, zip' has no type for"
    assert code == 0 and f"{head} id: imported as --types id:int" in err
    assert f"{head} price: imported as strings, look like --types price:float; --guess" in err
    assert here.script("SELECT * FROM t") == [
        {"id": {"$rec": "t:1"}, "name": "Ana", "price": "1.50", "zip": "00501"},
        {"id": {"$rec": "t:22"}, "name": "Bo", "zip": "10"},
    ]
    assert transfer(here, "import", "t", path)[0] == 0, "the same ids once more"
    assert len(table(here, "t")) == 2
    code, err = transfer(here, "import", "u", path, "--guess", "--types", "id:string")
    assert code == 0 and f"{head} price: imported as --types price:float" in err
    assert "strings" not in err
    assert [(one["id"], one.get("price")) for one in table(here, "u")] == [("1", 1.5), ("22", None)]
    # One rule for the column: an id that is no plain integer makes all of them strings.
    path.write_text("id,n\n1,1\n007,2\n")
    code, err = transfer(here, "import", "v", path)
    assert code == 0 and "id: taken" not in err
    assert [one["id"] for one in table(here, "v")] == ["007", "1"]
    # What was taken holds to the end of the file, also behind a row that was mended.
    path.write_text("id,n:int\n1,1\n2,x\n3,3\n")
    assert transfer(here, "import", "w", path, "--batch", "1")[0] == 1
    path.write_text("id,n:int\n1,1\n2,2\nx,3\n")
    code, err = transfer(here, "import", "w", path, "--batch", "1")
    assert code == 1 and "line 4: id: cannot read 'x' as int" in err
    assert [one["id"] for one in table(here, "w")] == [1, 2]


def test_columns_are_parted_by_the_sign_that_is_given(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t; DEFINE TABLE u; DEFINE TABLE v")
    path = tmp_path / "prices.csv"
    path.write_text('id;name;n\n1;"a;b";2\n')
    code, err = transfer(here, "import", "t", path)
    assert code == 1 and "without any ','; try --delimiter ';'" in err
    # Nothing is in: what the file looked like then holds no more.
    assert transfer(here, "import", "t", path, "--delimiter", ";", "--guess")[0] == 0
    (tmp_path / "prices.tsv").write_text("id\tname\tn:int\n1\ta;b\t2\n")
    assert transfer(here, "import", "u", tmp_path / "prices.tsv")[0] == 0
    assert transfer(here, "import", "v", tmp_path / "prices.tsv", "--delimiter=tab")[0] == 0
    assert table(here, "t") == table(here, "u") == table(here, "v")
    assert table(here, "t") == [{"id": 1, "name": "a;b", "n": 2}]
    for sign in ("", ";;", '"'):
        code, err = transfer(here, "import", "t", path, f"--delimiter={sign}")
        assert code == 2 and "--delimiter" in err
    code, err = transfer(here, "export", "t", tmp_path / "new.tsv")
    assert code == 2 and "unknown format" in err


def test_cells_that_stand_for_nothing_are_read_as_empty_ones(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t; DEFINE TABLE u")
    path = tmp_path / "birds.csv"
    path.write_text("id,mass,sex,at,of\n1,3750,male,2007-11-11,NA\n2,NA,n/a,,x\n3,-,NA,NA,-\n")
    code, err = transfer(here, "import", "t", path, "--guess")
    assert code == 0
    head = f"{path}: the head 'id, mass, sex, at, of' has no type for"
    assert (
        f"{head} mass, at: imported as strings, look like --types mass:int,at:datetime except for"
        " -, NA; --guess --null - --null NA applies these"
    ) in err
    assert table(here, "t")[1]["mass"] == "NA"
    code, err = transfer(here, "import", "u", path, "--types", "of:int")
    assert (
        code == 1
        and "line 2: of: cannot read 'NA' as int; --null NA reads it as an empty cell" in err
    )
    code, err = transfer(here, "import", "u", path, "--guess", "--null", "NA", "--null=-")
    assert code == 0 and "strings" not in err
    assert table(here, "u") == [
        {"id": 1, "mass": 3750, "sex": "male", "at": {"$dt": "2007-11-11T00:00:00Z"}},
        {"id": 2, "sex": "n/a", "of": "x"},
        {"id": 3},
    ]
    rows = tmp_path / "birds.jsonl"
    for flag in ("--guess", "--null=NA", "--types=a:int"):
        code, err = transfer(here, "import", "t", rows, flag)
        assert code == 2 and f"{flag.partition('=')[0]} is for CSV" in err


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ("1 -2 0", "int"), ("1 1.5 2e3", "float"), ("1 -0", "float"), ("007", None), ("+1", None),
        ("9223372036854775807", "int"), ("9223372036854775808", None), ("1e999", None),
        ("true FALSE", "bool"), ("true 1", None), ("1_0", None), ("", None), ("1 x", None),
        ("018f0000-0000-7000-8000-000000000001", "uuid"),
        (".5 -.5e3 5.", "float"), ("1 .", None),
        ("018f000000007000800000000000000f", None), ("1 NA", None), ("NA", None), ("NaN 1.5", None),
        ("2026-01-02T03:04:05Z 2026-01-02T03:04:05+01:00", "datetime"), ("2026", "int"),
    ],
)  # fmt: skip
def test_what_a_column_looks_like(cells: str, kind: str | None) -> None:
    guess = Guess(["a"])
    for cell in ["", *cells.split(" ")]:
        guess.count("a", cell)
        guess.count("of another", "1")
    assert guess.types() == ({} if kind is None else {"a": kind})


def test_on_duplicate(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t; INSERT INTO t [{ id: 1, a: 1, b: 1 }]")
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": 1, "a": 2}\n\n{"id": 2, "c d": 3}\n{"id": 3}\n{"id": 1, "a": 4}\n')
    code, err = transfer(here, "import", "t", path)
    assert code == 0 and "2 inserted, 2 existed already" in err
    assert here.script("SELECT VALUE a FROM t:1") == [1]
    # Two rows for one record can't be in one statement: they come one after the other.
    assert transfer(here, "import", "t", path, "--on-duplicate", "update")[0] == 0
    assert here.script("SELECT a, b, `c d` FROM t:1, t:2") == [
        {"a": 4, "b": 1}, {"c d": 3}
    ]  # fmt: skip


def test_who_may_read_exports_and_who_may_write_imports(here: Here, tmp_path: Path) -> None:
    """INFO of the table is no part of either."""
    here.script("DEFINE TABLE t; CREATE t:1 SET a = 1; DEFINE TABLE u")
    here.script(
        f"DEFINE USER mover ROLE member ON DATABASE {here.place} PASSWORD 'moves rows about';"
        f" GRANT READ ON TABLE {here.place}.t TO mover;"
        f" GRANT READ, WRITE ON TABLE {here.place}.u TO mover"
    )
    owner = dict(here.environment)
    here.environment.update(STORE_USER="mover", STORE_PASSWORD="moves rows about")
    try:
        assert transfer(here, "export", "t", tmp_path / "t.csv")[0] == 0
        assert transfer(here, "import", "u", tmp_path / "t.csv")[0] == 0
    finally:
        here.environment.update(owner)
        here.script("DROP USER mover")
    assert table(here, "u") == [{"id": 1, "a": 1}]


def test_a_pipe_is_imported_as_standard_input_is(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE u")
    pipe = tmp_path / "rows.jsonl"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=('{"id": 1, "a": 1}\n',))
    writing.start()
    code, err = transfer(here, "import", "u", pipe)
    writing.join()
    assert (code, "1 inserted" in err) == (0, True)
    assert table(here, "u") == [{"id": 1, "a": 1}]
    assert [one.name for one in tmp_path.iterdir()] == [pipe.name]


@pytest.mark.parametrize("batch", ["2", "1000"])
def test_a_later_row_of_a_record_comes_later(here: Here, tmp_path: Path, batch: str) -> None:
    here.script("DEFINE TABLE u")
    path = tmp_path / "u.jsonl"
    rows = [
        {"id": "j", "a": 1, "b": 1}, {"id": "k", "a": 1}, {"id": "l", "a": 1},
        {"id": "k", "a": 3, "b": 3}, {"id": "l", "a": 5, "b": 2},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = "--on-duplicate", "update", "--batch", batch
    assert transfer(here, "import", "u", path, *words)[0] == 0
    assert table(here, "u") == [rows[0], {"id": "k", "a": 3, "b": 3}, {"id": "l", "a": 5, "b": 2}]


@pytest.mark.parametrize(("begin", "between", "end"), [("", "\n", "\n"), ("[", ",\n", "]\n")])
def test_a_refused_row_is_named_and_gone_on_from(
    here: Here, tmp_path: Path, begin: str, between: str, end: str
) -> None:
    """Of lines, and of one array."""
    here.script("DEFINE TABLE t; DEFINE FIELD n ON t TYPE int ASSERT $value != 700")
    path = tmp_path / "t.json"
    path.write_text(begin + between.join(f'{{"n": {n}}}' for n in range(1000)) + end)
    code, err = transfer(here, "import", "t", path, "--batch", "300")
    assert (
        code == 1 and "line 701: AssertFailed" in err and "700 rows before it are imported" in err
    )
    assert here.script("SELECT count() AS n FROM t GROUP ALL")[0]["n"] == 700
    path.write_text(path.read_text().replace('{"n": 700}', '{"n": "x"}'))
    code, err = transfer(here, "import", "t", path)
    assert code == 1 and "line 701: TypeRefused" in err and "700 rows" in err
    path.write_text(path.read_text().replace('{"n": "x"}', '{"n": 7}'))
    code, err = transfer(here, "import", "t", path)
    assert (code, "1000 inserted, 0 existed already" in err) == (0, True)
    assert exact(here.script("SELECT VALUE n FROM t"), [*range(700), 7, *range(701, 1000)])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"n": 1}\n[1]\n', "line 2: expected an object"),
        ("b.jsonl", '{"n": 1}\n{"n": \n', "line 2: "),
        ("b.json", '[{"n": 1},\n]', "line 2: expected an object"),
        ("c.json", '[{"n": 1}\n{"n": 2}]', "line 2: expected a comma, not '{'"),
        ("d.json", '[{"n": 1},\n{"n": "2', "line 2: the object is not closed"),
        ("e.json", '[{"n": 1},\n{"n":\n x}]', "line 2: not JSON"),
        ("f.json", '[{"n": 1}\n', "line 2: the array is not closed"),
        ("g.json", '[{"n": 1}]\n[{"n": 2}]', "line 2: extra text after the array"),
        ("d.csv", "n:int\n1\nx\n", "line 3: n: cannot read 'x' as int"),
        ("e.csv", 'n:int,s\n1,"a\nb"\n2\n', "line 4: 1 cells, but the head has 2"),
        ("f.csv", 'n:int\n1\n"x\n', "line 3: unexpected end of data"),
    ],
)
def test_what_cannot_be_read(here: Here, tmp_path: Path, name: str, text: str, said: str) -> None:
    here.script("DEFINE TABLE t")
    (tmp_path / name).write_text(text)
    code, err = transfer(here, "import", "t", tmp_path / name)
    assert code == 1 and said in err and "1 rows before it are imported" in err
    assert here.script("SELECT VALUE n FROM t") == [1]


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_an_array_is_read_as_json_reads_it(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is laid out, and wherever what is read of it at a time ends."""
    monkeypatch.setattr(rows, "_CHUNK", chunk)
    one = {"a": '"\\', "b": [{"c": "]}"}, [1, {}]], "ü": "\U0001f600\x7f"}
    for text in ("[]", " [ ]\n", json.dumps([one, {}, one]), json.dumps([{}, one], indent=1)):
        data = "\ufeff".encode() + text.encode()
        found = list(rows.json_rows(rows.FileLines(io.BytesIO(data)), 0))
        assert [row.fields for row in found] == json.loads(text)
        for number, row in enumerate(found, 1):
            behind = list(rows.json_rows(rows.FileLines(io.BytesIO(data)), row.end))
            assert behind == found[number:]


def test_other_refusals(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t")
    path = tmp_path / "t.jsonl"
    code, err = transfer(here, "import", "t", path)
    assert code == 2 and "No such file" in err
    path.write_text("{}\n")
    code, err = transfer(here, "import", "nix", path)
    assert code == 1 and "Unknown" in err
    code, err = transfer(here, "export", "nix", tmp_path / "out.jsonl")
    assert code == 1 and "Unknown" in err
    (tmp_path / "h.csv").write_text("a,a\n1,2\n")
    code, err = transfer(here, "import", "t", tmp_path / "h.csv")
    assert code == 1 and "line 1: duplicate column 'a' in the head" in err
    (tmp_path / "h.csv").write_text("a,,b\n1,2,3\n")
    code, err = transfer(here, "import", "t", tmp_path / "h.csv")
    assert code == 1 and "line 1: column 2 of the head has no name" in err
    path.write_text('{\n  "n": 1\n}\n')
    code, err = transfer(here, "import", "t", path)
    assert code == 1 and "expected one object per line, or one array of objects" in err
    for sign in ";\t|":
        (tmp_path / "h.csv").write_text(f"a{sign}b\n1{sign}2\n")
        code, err = transfer(here, "import", "t", tmp_path / "h.csv")
        assert code == 1 and "try --delimiter" in err


def test_a_resume_file_of_something_else(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t; DEFINE TABLE u; DEFINE FIELD n ON t TYPE int")
    path, resume = tmp_path / "t.jsonl", tmp_path / "t.jsonl.resume"
    path.write_text('{"n": 1}\n{"n": "x"}\n')
    assert transfer(here, "import", "t", path)[0] == 1
    code, err = transfer(here, "import", "u", path)
    assert code == 2 and "belongs to: import into" in err
    kept = resume.read_text()
    resume.write_text(kept.replace(json.loads(kept)["store"], "another"))
    assert "began with another store" in transfer(here, "import", "t", path)[1]
    resume.write_text("{}")
    assert "has another format" in transfer(here, "import", "t", path)[1]
    resume.write_text(kept)
    path.write_text('{"n": 2}\n{"n": 3}\n')
    code, err = transfer(here, "import", "t", path)
    assert code == 2 and "changed among the 1 imported rows" in err


def test_standard_input_and_output(here: Here) -> None:
    here.script("DEFINE TABLE t")
    code, _, err = here.run(
        "import", f"{here.place}.t", "-", "--at", here.address, stdin=b'{"id": 1, "n": 2}\n'
    )
    assert code == 0, err
    again = here.run(
        "import", f"{here.place}.t", "-", "--at", here.address, stdin=b'{"id": 1, "n": 2}\n'
    )
    assert "0 inserted, 1 existed already" in again[2]
    words = ("export", f"{here.place}.t", "-", "--format", "csv", "--at", here.address)
    assert here.run(*words)[:2] == (0, "id:record,n:int\nt:1,2\n")


class Full(io.BytesIO):
    """A temporary file on a disk that has room for nothing."""

    def write(self, _data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("named", [False, True])
def test_a_copy_that_finds_no_room_is_said_to_be_at_fault(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    here.script("DEFINE TABLE t")
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    rows = b'{"id": 1}\n'
    pipe, sends = tmp_path / "pipe", threading.Thread(target=lambda: None)
    if named:
        os.mkfifo(pipe)
        sends = threading.Thread(target=pipe.write_bytes, args=(rows,))
    sends.start()
    source = str(pipe) if named else "-"
    words = ("import", f"{here.place}.t", source, "--format", "jsonl", "--at", here.address)
    code, out, err = here.run(*words, stdin=rows)
    sends.join()
    assert (code, out) == (2, "")
    assert "the temporary file for a copy" in err and "No space left" in err
    assert "nothing was sent" in err and str(pipe) not in err


def test_standard_input_that_can_not_be_read_is_said_to_be_at_fault(
    here: Here, tmp_path: Path
) -> None:
    written = os.open(tmp_path / "written", os.O_WRONLY | os.O_CREAT)
    words = ("import", f"{here.place}.t", "-", "--format", "jsonl", "--at", here.address)
    try:
        found = subprocess.run(
            command_line(*words), env=environment(), stdin=written, capture_output=True, timeout=60
        )
    finally:
        os.close(written)
    assert found.returncode == 2, found.stderr
    assert found.stderr.startswith(b"storenode: standard input: Bad file descriptor")


# --- nothing lost, nothing twice -----------------------------------------------------------------


def exact(found: list[Any], wanted: list[Any]) -> bool:
    """Whether just these are there, each just once."""
    return Counter(map(str, found)) == Counter(map(str, wanted))


def numbers(path: Path, count: int) -> list[int]:
    """A file of rows without ids."""
    path.write_text("n:int\n" + "".join(f"{n}\n" for n in range(count)))
    return list(range(count))


def test_an_import_done_twice_inserts_nothing_twice(here: Here, tmp_path: Path) -> None:
    here.script("DEFINE TABLE t")
    path = tmp_path / "t.csv"
    wanted = numbers(path, 50)
    for _ in range(2):
        assert transfer(here, "import", "t", path)[0] == 0
    assert exact(here.script("SELECT VALUE n FROM t"), wanted)
    other = tmp_path / "other.csv"
    other.write_text(path.read_text() + "50\n")  # another file: none of its rows is lost
    assert "51 inserted" in transfer(here, "import", "t", other)[1]


def test_an_import_through_two_kills(tmp_path: Path) -> None:
    """The node is killed in the middle of an import, which goes on when it is back; then the import
    is killed, and the same command goes on."""
    store, path = tmp_path / "store", tmp_path / "t.csv"
    wanted = numbers(path, 6_000)
    at = f"127.0.0.1:{free_port()}"
    serves = ("--serve", at, "--http", "127.0.0.1:0")
    with serving(store, *serves) as node:
        node.script("DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t")
        words = ("import", "a.b.t", str(path), "--at", at, "--batch", "5")
        first = begin(*words, more={}, stderr=subprocess.PIPE)
        inserted(node, 500)
        node.kill()
    with serving(store, *serves) as node:
        there = inserted(node, 0)
        inserted(node, there + 200)  # by itself
        assert first.poll() is None, "it came to its end before it could be killed"
        first.kill()
        _, err = first.communicate()
        assert b"retrying" in err
        again = run(*words)
        assert again.returncode == 0, again.stderr
        found = node.script("SELECT VALUE n FROM t", ns="a", db="b")["results"][0]["value"]
        assert exact(found, wanted) and there < len(wanted)
    assert {one.name for one in tmp_path.iterdir()} == {"store", "t.csv"}


def test_an_interrupt_while_standard_input_is_waited_for(here: Here) -> None:
    words = ("import", f"{here.place}.t", "-", "--at", here.address)
    process = begin(*words, more={}, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b'{"id": 1}\n' * 100_000)  # more than a pipe holds: it is being read
        code = None
        while code is None:  # one that comes just before a read begins is seen when that has ended
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(5)
        assert code == 130 and process.stderr.read() == b"storenode: interrupted\n"


def inserted(node: NodeProcess, least: int) -> int:
    """How many records there are, once there are so many."""
    for _ in itertools.count():
        answer = node.script("SELECT count() AS n FROM t GROUP ALL", ns="a", db="b")
        rows = answer["results"][0]["value"]
        count = rows[0]["n"] if rows else 0
        if count >= least:
            return int(count)
    raise AssertionError


def test_a_batch_whose_answer_is_lost_is_sent_again(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.script("DEFINE TABLE t")
    path = tmp_path / "t.csv"
    wanted = numbers(path, 100)
    run, count = AsyncClient.run, itertools.count()
    problems: list[Callable[[], Exception]] = [
        lambda: OutcomeUnknown("planted"),
        lambda: Unreachable("planted"),
        lambda: errors.refused({"code": "Busy", "retry": True}),
    ]

    async def lossy(self: AsyncClient, script: str, *arguments: Any, **named: Any) -> Any:
        answer = await run(self, script, *arguments, **named)
        attempt = next(count) % 4 if "INSERT" in script else 3
        if attempt < 3:
            raise problems[attempt]()  # it ran, and nobody hears of it
        return answer

    monkeypatch.setattr(AsyncClient, "run", lossy)
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0)
    assert transfer(here, "import", "t", path, "--batch", "20")[0] == 0
    assert exact(here.script("SELECT VALUE n FROM t"), wanted)
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", -1)
    code, err = transfer(here, "import", "t", path)
    assert code == 3 and "run the same command again to continue" in err


# --- an export in pages --------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_an_export_goes_on_where_it_was(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, ended: bool
) -> None:
    """In the moment that it began in, if the node still keeps that."""
    ids: list[Any] = [*range(40), *(f"k{n}" for n in range(40)), *([n, "x"] for n in range(20))]
    here.script("DEFINE TABLE t; INSERT INTO t $rows", rows=[{"id": one} for one in ids])
    here.script("UPDATE t:0 SET early = 1; UPDATE t:k9 SET late = 1.5")
    monkeypatch.setattr(exporting, "PAGE_ROWS", 7)
    monkeypatch.setattr(exporting, "PAGE_ROWS_MOST", 7)
    path = tmp_path / f"t.{form}"
    save, saves = ResumeFile.save, itertools.count()

    def breaking(self: ResumeFile, progress: Any) -> None:
        if next(saves) == 5:
            raise OSError(5, "planted")  # the page is written, and not noted
        save(self, progress)

    monkeypatch.setattr(ResumeFile, "save", breaking)
    assert transfer(here, "export", "t", path)[0] == 2
    (unfinished,) = tmp_path.glob(f"t.{form}.*.part")
    assert not path.exists()
    with unfinished.open("ab") as part:
        part.write(b'{"torn')
    here.script("CREATE t:zz")
    if ended:
        here.script("DEFINE USER u ROLE owner PASSWORD 'ends all moments'; DROP USER u")
    code, err = transfer(here, "export", "t", path)
    count = 101 if ended else 100
    assert code == 0 and f"exported {count} records" in err
    assert ("each as of a sequence from" in err) == ended
    lines = path.read_text().splitlines()
    if form == "csv":
        assert lines.pop(0) == "id:record,early:int,late:float"  # of both runs
    found = [json.loads(line)["id"]["$rec"] if form == "jsonl" else line for line in lines]
    assert len(set(found)) == len(found) == count
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_an_export_makes_files_of_its_own_and_opens_no_others(
    here: Here, tmp_path: Path, form: str
) -> None:
    here.script("DEFINE TABLE t; CREATE t:1")
    others = {name: tmp_path / f"t.{form}.{name}" for name in ("part", "csv-part", "resume.new")}
    (tmp_path / "precious").write_text("somebody's")
    others["part"].write_text("somebody's")
    others["csv-part"].symlink_to(tmp_path / "precious")
    others["resume.new"].symlink_to(tmp_path / "precious")
    before = {one.name for one in tmp_path.iterdir()}
    assert transfer(here, "export", "t", tmp_path / f"t.{form}")[0] == 0
    assert {one.name for one in tmp_path.iterdir()} == before | {f"t.{form}"}
    assert all(one.read_text() == "somebody's" for one in others.values())
    assert transfer(here, "export", "nothing", tmp_path / f"u.{form}")[0] == 1
    assert {one.name for one in tmp_path.iterdir()} == before | {f"t.{form}"}


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_gets_the_name_of_an_export_meanwhile_is_not_replaced(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    here.script("DEFINE TABLE t; CREATE t:1")
    path, save = tmp_path / f"t.{form}", ResumeFile.save

    def come(self: ResumeFile, progress: Any) -> None:
        path.write_text("somebody's")
        save(self, progress)

    with monkeypatch.context() as patches:
        patches.setattr(ResumeFile, "save", come)
        code, err = transfer(here, "export", "t", path)
    assert (code, "file exists" in err) == (2, True)
    assert path.read_text() == "somebody's"
    path.rename(tmp_path / "elsewhere")
    code, err = transfer(here, "export", "t", path)
    assert code == 0 and "exported 1 records" in err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["elsewhere", path.name]


def test_an_export_whose_moment_ends_behind_its_last_page_is_whole(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.script("DEFINE TABLE t; CREATE t:1; CREATE t:2")
    run = AsyncClient.run

    async def late(self: AsyncClient, script: str, *given: Any, **named: Any) -> Any:
        if script == "":
            here.script("DEFINE USER late ROLE owner PASSWORD 'ends all moments'; DROP USER late")
        return await run(self, script, *given, **named)

    monkeypatch.setattr(AsyncClient, "run", late)
    path = tmp_path / "t.jsonl"
    code, err = transfer(here, "export", "t", path)
    assert code == 0 and "exported 2 records" in err, err
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_page_that_is_too_large_is_asked_for_smaller(here: Here, tmp_path: Path) -> None:
    big = "x" * 1_000_000
    here.script(
        "DEFINE TABLE t; FOR $n IN 0..18 { CREATE type::record('t', $n) SET s = $big }", big=big
    )
    path = tmp_path / "t.jsonl"
    code, err = transfer(here, "export", "t", path)
    assert code == 0 and "exported 18 records" in err, err
    assert path.stat().st_size > 18 * len(big)


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import", "expected a table and a file"),
        ("import a.b.c", "expected a table and a file"),
        ("export a.b f.csv", "'a.b' is not a full table name"),
        ("export a.b.c-/ f.csv", "invalid table name"),
        ("export a.b.c f", "unknown format"),
        ("export a.b.c f --format xml", "'xml' is not one of jsonl, csv"),
        ("import a.b.c f.csv --on-duplicate replace", "is not one of ignore, update"),
        ("import a.b.c f.csv --types n:integer", "--types: 'n:integer'"),
        ("import a.b.c f.csv --types n:int,n:float", "duplicate column 'n'"),
        ("import a.b.c f.csv --batch 0", "--batch: '0'"),
        ("import a.b.c f.csv --serve :1", "a directory of that name is written ./import"),
    ],
)
def test_words_refused(line: str, said: str, here: Here) -> None:
    code, _, err = here.run(*line.split())
    assert code == 2 and said in err


def test_the_words() -> None:
    asked = understand_import(["a.b.c", "f.CSV", "--types", "x y:int,a:b:any"], {})
    assert isinstance(asked, Import) and asked.table == Table("a", "b", "c")
    assert (asked.form, asked.types) == ("csv", {"x y": "int", "a:b": "any"})
    assert understand_import(["-h"], {}) != understand_export(["-h"], {})
