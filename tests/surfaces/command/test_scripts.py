"""`-f` and `--health` on real stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.version import BUILD, VERSION
from tests.actors.backups.scripts import sealed
from tests.processes import PASSWORD, run, serving, tree

FILL = """
    DEFINE NAMESPACE shop;
    USE NAMESPACE shop;
    DEFINE DATABASE main;
    USE shop.main;
    DEFINE TABLE city;
    CREATE city:oslo SET people = 709037, dear = 12.30dec;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "fill.storeql"
    path.write_text(FILL)
    return path


def test_new_directory_is_filled_and_served(tmp_path: Path, script: Path) -> None:
    directory = tmp_path / "store"
    ran = run(str(directory), "-f", str(script))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("ran 6 statements, sequence ")
    with serving(directory) as node:
        answer = node.script("SELECT VALUE people FROM city:oslo", ns="shop", db="main")
        assert answer["results"][0]["value"] == [709037]


def test_script_on_a_store_that_exists_prints_what_return_answers(
    tmp_path: Path, script: Path
) -> None:
    directory = tmp_path / "store"
    run(str(directory), "-f", str(script))
    script.write_text("USE shop.main; RETURN (SELECT people, dear FROM city:oslo)")
    ran = run(str(directory), "-f", str(script))
    assert (ran.returncode, ran.stderr) == (0, "")
    value, summary = ran.stdout.splitlines()
    assert json.loads(value) == [{"people": 709037, "dear": {"$dec": "12.30"}}]
    assert summary.startswith("ran 2 statements, sequence ")


def test_refused_statement_is_placed_and_what_ran_stays(tmp_path: Path, script: Path) -> None:
    directory = tmp_path / "store"
    script.write_text(FILL + "    CREATE town:rome SET people = 1;\n    CREATE city:rome;")
    ran = run(str(directory), "-f", str(script))
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"storenode: {script}:8:5: Unknown: ")
    assert line.endswith("; 6 ran before it")
    script.write_text("USE shop.main; RETURN (SELECT VALUE id FROM city)")
    ran = run(str(directory), "-f", str(script))
    assert json.loads(ran.stdout.splitlines()[0]) == [{"$rec": "city:oslo"}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"DEFINE NAMESPACE a;\n  SELEKT 1", "script:2:3: UnexpectedToken: "),
        (b"\xff", "script: not UTF-8 at byte 0"),
        (None, "script: No such file or directory"),
    ],
)
def test_file_that_is_no_script_leaves_the_directory_alone(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "script"
    if content is not None:
        path.write_bytes(content)
    before = tree(tmp_path)
    ran = run(str(tmp_path / "store"), "-f", str(path))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert says in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert tree(tmp_path) == before


def test_script_does_not_get_around_the_users_of_a_store(tmp_path: Path, script: Path) -> None:
    directory = tmp_path / "store"
    with serving(directory) as node:
        assert node.stop() == 0
    script.write_text("ALTER USER root SET PASSWORD 'another password'")
    ran = run(str(directory), "-f", str(script))
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "has users" in ran.stderr and "another password" not in ran.stderr
    with serving(directory) as node:
        assert node.script("RETURN 1")["results"][0]["value"] == 1


def test_health_and_the_serving_node_agree_on_the_state(tmp_path: Path, script: Path) -> None:
    directory = tmp_path / "store"
    run(str(directory), "-f", str(script))
    with serving(directory) as node:
        state = node.script("INFO FOR STATE")["results"][0]["value"]
        assert node.stop() == 0
    health = run(str(directory), "--health").stdout
    assert health.startswith(f"well: sequence {state['sequence']}, log from 1, state ")
    assert state["hash"] in run("check", str(directory)).stdout


def test_help_and_version() -> None:
    assert run("--version").stdout == f"storenode {VERSION} ({BUILD})\n"
    helped = run("--help")
    assert helped.returncode == 0
    assert "storenode <data_dir> --health" in helped.stdout
    assert run("check", "--help").stdout.startswith("usage: storenode check ")


# --- scripts that were written as backups ---------------------------------------------------------

LARGE = """
    USE shop.main; DEFINE TABLE log;
    LET $text = 'TEXT'; FOR $i IN 0..17 { CREATE log SET at = $i, text = $text };
    DEFINE USER root ROLE owner PASSWORD 'SECRET'
""".replace("TEXT", "0123456789" * 100_000).replace("SECRET", PASSWORD)


def test_a_store_is_dumped_and_made_again_from_its_script(tmp_path: Path, script: Path) -> None:
    store, again, dump = tmp_path / "store", tmp_path / "again", tmp_path / "all.storeql"
    script.write_text(FILL + LARGE)
    assert run(str(store), "-f", str(script)).returncode == 0
    wrote = run(str(store), "--dump", str(dump))
    assert wrote.returncode == 0, wrote.stderr
    assert all(line.startswith("reading it back, bytes: ") for line in wrote.stderr.splitlines())
    assert wrote.stdout.startswith("wrote ") and wrote.stdout.endswith(f"to {dump}\n")
    assert dump.stat().st_size > 16 << 20
    assert dump.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.glob("all*")] == ["all.storeql"]
    taken = run(str(store), "--dump", str(dump))
    assert (taken.returncode, taken.stderr) == (
        1, f"storenode: {dump} exists; choose another name\n",
    )  # fmt: skip
    ran = run(str(again), "-f", str(dump))
    assert (ran.returncode, ran.stdout[:4]) == (0, "ran "), ran.stderr
    with serving(again) as node:
        answer = node.script(
            "SELECT count() AS n, sum(string::len(text)) AS long FROM log GROUP ALL",
            ns="shop", db="main",
        )  # fmt: skip
        assert answer["results"][0]["value"] == [{"n": 17, "long": 17_000_000}]
    more = run(str(again), "-f", str(dump))
    assert more.returncode == 1 and "has users" in more.stderr


def test_a_cut_script_leaves_the_directory_alone(tmp_path: Path, script: Path) -> None:
    store, dump = tmp_path / "store", tmp_path / "all.storeql"
    run(str(store), "-f", str(script))
    run(str(store), "--dump", str(dump))
    whole = dump.read_bytes()
    changed = whole.replace(b"oslo", b"olso")
    for content, code in ((whole[:-100], "BackupCut"), (changed, "BackupCorrupt")):
        dump.write_bytes(content)
        ran = run(str(tmp_path / "new"), "-f", str(dump))
        assert ran.returncode == 1 and code in ran.stderr, ran.stderr
        assert not (tmp_path / "new").exists()


def test_a_script_stops_at_what_is_refused_and_keeps_what_ran(tmp_path: Path) -> None:
    dump = tmp_path / "all.storeql"
    body = "DEFINE NAMESPACE a;\nDEFINE DATABASE a.b; USE a.b;\nDEFINE TABLE t;\n\nCREATE u:1;\n"
    dump.write_bytes(sealed(body + "CREATE t:1;\n", statements=6))
    ran = run(str(tmp_path / "new"), "-f", str(dump))
    assert ran.returncode == 1
    assert f"storenode: {dump}:6:1: Unknown: " in ran.stderr and "; 4 ran before it" in ran.stderr
    read = tmp_path / "read"
    read.write_text("USE a.b; RETURN (SELECT * FROM t)")
    assert run(str(tmp_path / "new"), "-f", str(read)).stdout.startswith("[]\n")
