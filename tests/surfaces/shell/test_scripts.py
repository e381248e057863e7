"""`storenode shell` with -c, -f and standard input."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from language.parser import parse
from protocol import limits
from protocol.errors import Refusal
from storeclient import AsyncClient, OutcomeUnknown, Result
from storeclient.errors import NotWritable
from surfaces.command.arguments import CheckHealth
from surfaces.command.arguments import understand as of_the_node
from surfaces.shell.arguments import Help, NodeAccess, Shell, understand
from surfaces.shell.connecting import client_of
from surfaces.shell.forms import JsonLines, Tables
from surfaces.shell.main import takes
from surfaces.shell.refusals import explain, point_at
from surfaces.shell.scripts import connect
from surfaces.shell.session import ShellSession
from surfaces.shell.shortcuts import ShortcutRefused, Shortcuts
from surfaces.shell.statements import is_complete, may_hold_secret, places
from tests.architecture.sources import ROOT
from tests.cases.format import read as read_cases
from tests.certificates import self_signed
from tests.clients.members import cluster
from tests.processes import PASSWORD, NodeProcess, begin, serving
from tests.surfaces.shell.conftest import Here
from tests.surfaces.shell.terminal import Terminal
from tests.surfaces.wire.peers import PASSWORD as WIRE_PASSWORD
from tests.surfaces.wire.peers import USER as WIRE_USER
from tests.tables import case

FILL = """
    DEFINE TABLE person;
    INSERT INTO person [
        { id: "ana", age: 34, tags: ["a", "b"], owed: 12.30dec, at: d'2026-01-02T03:04:05Z' },
        { id: "bo", age: NULL }
    ];
"""

WAITING = "READ FROM t AFTER 0 WAIT 1m"


def test_tables(here: Here) -> None:
    here.script(FILL)
    script = "SELECT * FROM person; LET $x = 1; SELECT VALUE age FROM person; RETURN $x"
    assert here.shell("-c", script) == (
        0,
        "id            age   tags         owed    at\n"
        "─────────────────────────────────────────────────────────────\n"
        "person:ana     34   ['a', 'b']   12.30   2026-01-02T03:04:05Z\n"
        "person:bo    NULL\n"
        "2 rows\n"
        "done\n"
        "value\n"
        "─────\n"
        "   34\n"
        " NULL\n"
        "2 rows\n"
        "1\n",
        "",
    )  # fmt: skip


def test_what_was_done_to_records_is_counted(here: Here) -> None:
    here.script(FILL)
    table = {
        "DELETE person:ana; DELETE person": ["1 record deleted", "1 record deleted"],
        "INSERT INTO person [{ id: 1 }, { id: 2 }] RETURN NONE": ["2 records inserted"],
        "CREATE person:3 RETURN NONE; UPSERT person:3 SET a = 1 RETURN NONE": [
            "1 record created",
            "1 record written",
        ],
        "BEGIN; UPDATE person SET a = 2 RETURN NONE; COMMIT": ["done", "3 records updated", "done"],
        "FOR $n IN 1..3 { DELETE type::record('person', $n) }": ["2 records changed"],
        "DELETE person WHERE a = 7; SELECT * FROM person WHERE a = 7": [
            "0 records deleted",
            "0 rows",
        ],
    }
    for script, said in table.items():
        with case(script):
            assert here.shell("-c", script) == (0, "".join(f"{line}\n" for line in said), "")
    here.script("DELETE person")


def test_json(here: Here) -> None:
    code, out, _ = here.shell("--json", "-c", FILL + "LET $x = 2; RETURN { x: $x, n: 12.30dec }")
    rows, value = map(json.loads, out.splitlines())
    assert code == 0
    assert rows[0]["id"] == {"$rec": "person:ana"} and rows[1]["age"] is None
    assert value == {"x": 2, "n": {"$dec": "12.30"}}


def test_csv(here: Here) -> None:
    here.script(FILL)
    assert here.shell("--csv", "-c", "SELECT * FROM person; SELECT VALUE age FROM person") == (
        0,
        "id,age,tags,owed,at\n"
        'person:ana,34,"[""a"",""b""]",12.30,2026-01-02T03:04:05Z\n'
        "person:bo,,,,\n\n"
        'value\n34\n""\n',
        "",
    )  # fmt: skip


def test_a_file_and_standard_input_are_one_script(here: Here, tmp_path: Path) -> None:
    script = "DEFINE TABLE t;\nLET $n = 2;\nBEGIN;\nCREATE t:1 SET n = $n;\nCOMMIT;\n"
    (tmp_path / "fill.storeql").write_text(script)
    code, _, err = here.shell("-f", str(tmp_path / "fill.storeql"))
    assert (code, err) == (0, "")
    query = b"SELECT VALUE n FROM t"
    assert here.shell("--json", "-f", "-", stdin=query) == (0, "[2]\n", "")
    assert here.shell("--json", stdin=query) == (0, "[2]\n", "")


def test_a_refusal_has_its_place_under_a_caret(here: Here, tmp_path: Path) -> None:
    code, out, err = here.shell("-c", "RETURN 1;\n  SELECT * FRM t")
    assert (code, out) == (1, "")
    assert err == (
        "storenode: UnexpectedToken: found `FRM`, expected FROM\n"
        "2 |   SELECT * FRM t\n"
        "  |            ^\n"
    )  # fmt: skip
    path = tmp_path / "late.storeql"
    path.write_text("DEFINE TABLE t;\n  SELECT * FROM nix;")
    code, out, err = here.shell("-f", str(path))
    assert (code, out) == (1, "done\n")
    assert err == (
        f"storenode: {path}:2:3: Unknown: there is no table {here.place}.nix\n"
        "2 |   SELECT * FROM nix;\n"
        "  |   ^\n"
        "1 of its statements ran before it\n"
    )


def test_the_caret_stands_under_its_place() -> None:
    assert point_at("名 = x", 1, 5) == "1 | 名 = x\n  |      ^"  # two cells wide
    assert point_at("a\tb", 1, 3) == "1 | a\\tb\n  |    ^"
    shown, caret = point_at("x" * 500 + "!" + "y" * 500, 1, 501).split("\n")
    assert shown[caret.index("^")] == "!" and shown.count("…") == 2 and len(shown) < 140
    assert point_at("", 3, 9) == "3 | \n  | ^"  # a place that the text has not
    assert point_at("a", -5, -7) == "-5 | \n   | ^"  # nor has any


def test_a_refused_password_is_not_shown(here: Here) -> None:
    code, _, err = here.shell("-c", "DEFINE USER ana ROLE owner PASSWORD 'hush hush' COMENT 'x'")
    assert code == 1 and "UnexpectedToken" in err and "hush" not in err


def test_exit_codes(here: Here, tmp_path: Path) -> None:
    assert here.shell("-f", str(tmp_path / "none"))[0] == 2
    assert here.shell("-c", "RETURN 1", "-f", "x")[0] == 2
    (tmp_path / "latin").write_bytes(b"RETURN '\xe9'")
    assert here.shell("-f", str(tmp_path / "latin")) == (
        2,
        "",
        f"storenode: {tmp_path}/latin: not UTF-8 at byte 8\n",
    )
    here.environment["STORE_PASSWORD"] = "another one"
    code, _, err = here.shell("-c", "RETURN 1")
    assert code == 3 and "SignInRefused" in err
    del here.environment["STORE_PASSWORD"]
    here.patch.setattr("surfaces.shell.connecting.TERMINAL", str(tmp_path / "no terminal"))
    code, _, err = here.shell("-c", "RETURN 1")
    assert code == 2 and "no password for root and no terminal" in err


def test_what_can_not_be_sent_is_a_matter_of_usage(here: Here, tmp_path: Path) -> None:
    code, _, err = here.shell("-c", "RETURN '\udcff'")
    assert (code, "-c: not UTF-8" in err) == (2, True)
    script = tmp_path / "long.storeql"
    script.write_bytes(b"RETURN 1 --".ljust(limits.SCRIPT_BYTES, b"x"))
    code, _, err = here.shell("-f", str(script))
    assert (code, "a request has at most" in err) == (2, True)
    code, _, err = here.run("shell", "a..b:8001", "-c", "RETURN 1")
    assert (code, "is not an address" in err) == (2, True)
    assert here.shell("--json", "-c", "-- one\nRETURN 1") == (0, "1\n", "")


def test_without_the_client(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "storeclient", None)
    code, _, err = here.shell("-c", "RETURN 1")
    assert code == 2 and "pip install ./clients/python" in err


def test_nobody_answers(here: Here) -> None:
    here.patch.setattr("surfaces.shell.connecting.CONNECT_SECONDS", 0.05)
    code, _, err = here.run("shell", "127.0.0.1:1", "-c", "RETURN 1")
    assert code == 3 and "no connection to 127.0.0.1:1" in err


def test_a_connection_that_breaks_under_a_script(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise OutcomeUnknown("the connection ended before the answer came")

    monkeypatch.setattr(AsyncClient, "run", broken)  # a real break: test_prompt.test_an_outage
    code, _, err = here.shell("-c", "RETURN 1")
    assert code == 4 and "OutcomeUnknown" in err and "check before" in err


def test_an_interrupt_cancels_the_statement_at_the_node(here: Here) -> None:
    here.script("DEFINE TOPIC t")
    words = ("shell", here.address, "--use", here.place, "-c", WAITING)
    shell = begin(*words, more={}, stderr=subprocess.PIPE, text=True)
    _wait_running(here.node)
    shell.send_signal(signal.SIGINT)
    _, err = shell.communicate(timeout=60)
    assert shell.returncode == 130 and "Cancelled" in err
    assert len(here.script("INFO FOR RUNNING")) == 1  # the one that asks


def _wait_running(node: NodeProcess) -> None:
    while True:
        answer = node.script("INFO FOR RUNNING")
        if any("READ" in (one["text"] or "") for one in answer["results"][0]["value"]):
            return


def test_tls(here: Here, tmp_path: Path) -> None:
    chain, key = self_signed(tmp_path, "localhost")
    words = ("--serve", "127.0.0.1:0", "--http", "127.0.0.1:0")
    pair = ("--cert", str(chain), "--cert-key", str(key))
    with serving(tmp_path / "store", *words, *pair) as node:
        trusting = here.run("shell", node.at("wire"), "--ca", str(chain), "-c", "RETURN 1")
        assert trusting == (0, "1\n", "")
        code, _, err = here.run("shell", node.at("wire"), "--tls", "-c", "RETURN 1")
        assert code == 3 and "not trusted" in err
        code, _, err = here.run("shell", node.at("wire"), "--ca", str(key), "-c", "RETURN 1")
        assert code == 2 and "no certificates" in err
        with_tls, in_clear = ("--ca", str(chain)), ()
        for of, surface, flags, says in (
            (node, "wire", in_clear, "this port speaks TLS: connect with it; in the shell"),
            (node, "http", in_clear, "this port speaks HTTP: use the port of the wire"),
            (node, "http", with_tls, "this port speaks HTTP: use the port of the wire"),
            (here.node, "http", in_clear, "this port speaks HTTP: use the port of"),
            (here.node, "http", with_tls, "does not speak TLS"),
            (here.node, "wire", with_tls, "does not speak TLS"),
        ):
            with case(of is node, surface, flags):
                code, _, err = here.run("shell", of.at(surface), *flags, "-c", "RETURN 1")
                assert code == 3 and says in err, err
        with pytest.raises(HTTPError) as refused:  # in clear, where HTTPS is spoken
            urlopen("http://{}:{}/".format(*node.address("http")))
        assert refused.value.code == 400 and b"use https://" in refused.value.read()


async def test_the_node_that_takes_changes_is_named_and_gone_to() -> None:
    async with cluster(3) as three:
        three.leader = three.members[1]
        access = NodeAccess(three.addresses[0], WIRE_USER, WIRE_PASSWORD)
        told: list[str] = []
        session = ShellSession(partial(client_of, access, "a", "b"), told.append)
        shortcuts = Shortcuts(session, JsonLines(io.StringIO()), told.append)
        try:
            assert (await session.connect()).node == "n0"
            with pytest.raises(NotWritable) as refused:
                await session.run("CREATE t:1")
            assert (
                f"\n{three.addresses[1]} takes changes: \\leader or --leader connects to it"
                in explain(refused.value, "CREATE t:1")
            )
            await shortcuts.run("\\leader")
            assert told == ["connected to node n1, which takes changes"]
            assert (await session.run("CREATE t:1")).value == "n1"
            three.leader = three.members[2]
            assert (await session.run("CREATE t:2")).value == "n2"
            assert session.place == ("a", "b")
            three.leader = None
            with pytest.raises(ShortcutRefused, match="knows no node that takes changes"):
                await shortcuts.run("\\leader")
        finally:
            await session.close()
        three.leader = three.members[1]
        session = ShellSession(partial(client_of, access, None, None), told.append)
        assert (await connect(session, leader=True)).node == "n1"
        await session.close()


def test_a_token(here: Here) -> None:
    token = here.node.request("POST", "/session").json["token"]
    here.environment = {}
    assert here.shell("--token", token, "-c", "RETURN 1") == (0, "1\n", "")
    here.environment = {"STORE_TOKEN": token}
    assert here.shell("-c", "RETURN 1") == (0, "1\n", "")


def test_what_would_order_a_terminal_about_is_written_out(here: Here) -> None:
    code, out, _ = here.shell("-c", "RETURN ['a\\u{1b}[2J\\u{202e}b', '\\u{9b}']")
    assert (code, out) == (0, "['a\\u{1b}[2J\\u{202e}b', '\\u{9b}']\n")
    code, out, _ = here.shell("-c", "SELECT 1 AS `\\u{1b}[2J` FROM [{}]; INFO FOR STORE")
    assert code == 0 and "\\u{1b}[2J" in out and "\x1b" not in out
    raw = io.BytesIO()
    out_stream = io.TextIOWrapper(raw, encoding="utf-8")
    tables = Tables(out_stream, terminal=True, width=80)
    for tables.expanded in (True, False):
        tables.rows("\x1b[2J", [{"\x1b[2J": "\x9b", "b": "two\nlines"}])
    out_stream.flush()
    drawn = raw.getvalue().decode()
    assert "\x1b[2J" not in drawn and drawn.count("\\u{9b}") == 2


HOSTILE = "\x1b]0;pwn\x07\x9b31m\u202e\x7f\r"


def test_no_form_orders_a_terminal_about(here: Here, tmp_path: Path) -> None:
    """Also what is meant for programs, when a person lets it be shown."""
    fill = "DEFINE TABLE h; CREATE h:1 SET v = $v, o = { in: $v }; CREATE h:2 SET `k\\u{9b}` = 1"
    here.script(fill, v=HOSTILE)
    asks = ("shell", here.address, "--use", here.place)
    moves = ("export", f"{here.place}.h", "-", "--at", here.address, "--format")
    forms = [(*asks, "--json", "-c", "SELECT * FROM h"), (*asks, "--csv", "-c", "SELECT * FROM h"),
             (*moves, "jsonl"), (*moves, "csv")]  # fmt: skip
    with ExitStack() as stack:
        terminals = [
            stack.enter_context(Terminal(*words, home=tmp_path, STORE_PASSWORD=PASSWORD))
            for words in forms
        ]
        for words, terminal in zip(forms, terminals, strict=True):
            with case(words):
                raw = terminal.rest()
                assert terminal.process.returncode == 0
                shown = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", raw).decode()  # an export's bar
                assert "pwn" in shown and not re.search("[\x07\x1b\x7f-\x9f\u202e]", shown)


def test_json_is_the_same_value_whatever_is_written_out(here: Here) -> None:
    here.script("DEFINE TABLE h; CREATE h:1 SET v = $v", v=HOSTILE)
    _, out, _ = here.shell("--json", "-c", "SELECT VALUE v FROM h")
    assert json.loads(out) == [HOSTILE] and "\x9b" not in out


def test_csv_goes_to_programs_as_it_is(here: Here) -> None:
    here.script("DEFINE TABLE h; CREATE h:1 SET v = $v", v=HOSTILE)
    _, out, _ = here.shell("--csv", "-c", "SELECT v FROM h")
    assert HOSTILE in out


def test_what_a_shortcut_asks_is_not_pointed_at(here: Here) -> None:
    code, _, err = here.shell("-c", "\\d nix")
    place = f"{here.place}.nix"
    assert (code, err) == (1, f"storenode: Unknown: there is no table {place}\n")


def test_a_row_is_a_line_for_a_program(here: Here) -> None:
    code, out, _ = here.shell("-c", "SELECT 'two\\nlines' AS a, 1 AS b FROM [{}]")
    assert (code, out) == (
        0,
        "a            b\n--------------\ntwo\\nlines   1\n1 row\n".replace("-", "─"),
    )


SHORTCUTS = [
    ("\\d", ["tables of", "person", "2"]), ("\\d person", ["fields of person", "age", "by_age"]),
    ("\\d `person`", ["fields of `person`"]), ("\\t", ["jobs"]), ("\\t jobs", ["workers", "lag"]),
    ("\\s", ["sessions"]), ("\\s sessions", ["1h", "keys"]), ("\\l", ["namespace", "shop"]),
    ("\\u", ["root", "owner"]), ("\\n", ["version", "serving"]), ("\\r", ["INFO FOR RUNNING"]),
    ("\\log", ["DEFINE FUNCTION greet", "refused"]), ("\\log root", ["DEFINE INDEX by_age"]),
    ("\\f string::up", ["string::upper("]),
    ("\\f fn::", ["fn::greet($name: string) -> string", "says hello"]), ("\\?", ["\\use <ns.db>"]),
]  # fmt: skip


def test_shortcuts(here: Here) -> None:
    here.script(
        FILL + "DEFINE FIELD age ON person TYPE option<int | NULL>;"
        "DEFINE INDEX by_age ON person FIELDS age; DEFINE TOPIC jobs;"
        "DEFINE GROUP workers ON jobs DEADLINE 1m; DEFINE SPACE sessions EXPIRE 1h;"
        "DEFINE FUNCTION greet($name: string) -> string { 'hello ' + $name } COMMENT 'says hello'"
    )
    for line, shown in SHORTCUTS:
        code, out, err = here.shell("-c", line)
        assert (code, err) == (0, ""), line
        assert all(one in out for one in shown), (line, out)
    rows = json.loads(here.shell("--json", "-c", "\\d")[1])
    assert rows == [
        {
            "table": "person",
            "records": 2,
            "schemafull": False,
            "indexes": ["by_age"],
            "comment": None,
        }
    ]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("\\zz", 2, "unknown shortcut \\zz"),
        ("\\use", 2, "\\use needs <ns.db>"),
        ("\\u ana", 2, "too many arguments: write \\u"),
        ("\\d a b", 2, "too many arguments: write \\d [table]"),
        ("\\d a;b", 2, "invalid name"),
        ("\\use nix.nix", 1, "Unknown"),
        ("\\i f", 2, "\\i works only at the prompt"),
    ],
)
def test_shortcuts_refused(here: Here, line: str, code: int, said: str) -> None:
    ended, out, err = here.shell("-c", line)
    assert (ended, out) == (code, "") and said in err


def test_rows_that_are_none_are_shown_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    tables = Tables(sys.stdout, terminal=False)
    tables.result(Result(7, "rows", 1, timedelta()))
    assert capsys.readouterr().out == "7\n"


def test_many_columns_are_drawn_as_records(capsys: pytest.CaptureFixture[str]) -> None:
    tables = Tables(sys.stdout, terminal=True, width=40)
    tables.rows("rows", [{f"f{n}": n for n in range(9)}])
    out = capsys.readouterr().out
    assert "f8" in out and len(out.splitlines()) > 9
    tables.expanded = False
    tables.rows("rows", [{"a": 1}] * 1001)
    assert "1 more are not shown" in capsys.readouterr().out


# --- the command line ----------------------------------------------------------------------------


def test_the_words_of_a_shell() -> None:
    assert understand([], {}) == Shell(NodeAccess("127.0.0.1:8001", "root", None))
    environment = {"STORE_USER": "ana", "STORE_PASSWORD": "p", "STORE_TOKEN": ""}
    asked = understand(["db:1", "--user", "bo", "--csv", "--use=a"], environment)
    assert asked == Shell(NodeAccess("db:1", "bo", "p"), "a", None, form="csv")
    assert "'p'" not in repr(asked)
    assert understand(["--token", "t"], environment) == Shell(
        NodeAccess("127.0.0.1:8001", None, None, "t")
    )
    assert isinstance(understand(["-h"], {}), Help)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a b", "one address"),
        ("--json --csv", "--json contradicts --csv"),
        ("--token t --user u", "--token contradicts --user"),
        ("--use a.b.c", "--use"),
        ("--timeout soon", "--timeout"),
        ("--timeout 0s", "above zero"),
        ("--http :1", "a directory of that name is written ./shell"),
        ("--jsn", "did you mean --json?"),
        ("[::1]x -c 1", "is not an address"),
    ],
)
def test_words_refused(line: str, said: str, here: Here) -> None:
    code, out, err = here.run("shell", *line.split())
    assert (code, out) == (2, "") and said in err


def test_a_directory_called_shell() -> None:
    for word in ("shell", "import", "export"):
        assert takes([word]) and not takes([f"./{word}"]) and not takes(["--health", word])
        assert of_the_node([f"./{word}", "--health"], {}) == CheckHealth(f"./{word}")
    assert not takes([])


# --- what is told of a text before the node sees it ----------------------------------------------


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("RETURN 1;", True),
        ("RETURN 1", False),
        ("", False),
        ("RETURN 1; -- done", True),
        ("RETURN 1 -- ;", False),
        ("RETURN 'a;", False),
        ("RETURN 'a;';", True),
        ('RETURN "a;', False),
        ("RETURN b'a;", False),
        ("SELECT `a;", False),
        ("RETURN 1; /* and", False),
        ("CREATE t SET a = {", False),
        ("CREATE t SET a = { b: 1;", False),
        ("IF true { RETURN 1;", False),
        ("IF true { RETURN 1; };", True),
        ("BEGIN;", False),
        ("BEGIN; CREATE t;", False),
        ("BEGIN; CREATE t; COMMIT READER r ON t AT 1;", False),
        ("BEGIN; CREATE t; COMMIT;", True),
        ("begin; cancel;", True),
        ("SELECT begin FROM t;", True),
        ("RETURN 1);", True),  # the node says what is wrong
        ("RETURN @", True),
        ("x" * 5000 + ";", True),
    ],
)
def test_a_text_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def unfinished(texts: list[str]) -> list[str]:
    """Those that the prompt would not run when they end with a semicolon."""
    return [text for text in texts if not is_complete(text + "\n;")]


def test_every_text_of_the_language_is_complete() -> None:
    """A rule of the grammar that the prompt does not know would make a statement that can't be run
    there: every case of the language that parses is asked for."""
    texts = []
    for path in sorted((ROOT / "tests" / "cases").rglob("*.case")):
        for one in read_cases(path).cases:
            with contextlib.suppress(Refusal):
                parse(one.script)
                texts.append(one.script)
    texts = [text for text in texts if " BEGIN" not in f" {text}".upper()]  # some never commit
    assert len(texts) > 500 and unfinished(texts) == []


def test_planted_open_ends_are_found() -> None:
    planted = ["RETURN 1", "RETURN (1", "BEGIN; RETURN 1"]
    assert unfinished(planted) == planted[1:]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("ALTER USER ana SET PASSWORD 'x';", True),
        ("alter user ana set pasword 'x'", True),
        ("ALTER USER ana SET 'x'", True),
        ("DEFINE USER ana ROLE owner PASSHASH 'x'", True),
        ("UNSEAL WITH PASSPHRASE 'x'", True),
        ("DEFINE USER ana PASSWRD 'x", True),
        ("SELECT * FROM user WHERE name = 'ana'", False),
        ("DEFINE SPACE sessions COMMENT 'c'", False),
        ("SELECT * FROM t", False),
    ],
)
def test_a_text_may_hold_a_secret(text: str, secret: bool) -> None:
    assert may_hold_secret(text) is secret


def test_where_the_uses_of_a_script_lead() -> None:
    text = "RETURN 1; USE a.b; USE NAMESPACE c; SELECT `use` FROM t"
    assert places(text, 4) == [("a", "b"), ("c", None)]
    assert places(text, 2) == [("a", "b")]
    assert places("USE a.b; NOVELTY OF A LATER VERSION", 2) == []
