"""`-f` and `--health` on real stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.version import VERSION
from tests.processes import run, serving, tree

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


def test_store_filled_by_a_script_gets_its_first_owner_when_it_serves(
    tmp_path: Path, script: Path
) -> None:
    directory = tmp_path / "store"
    run(str(directory), "-f", str(script))
    with serving(directory) as node:
        assert node.script("INFO FOR USERS")["results"][0]["value"]


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


def test_health_says_well_with_sequence_and_state(tmp_path: Path, script: Path) -> None:
    directory = tmp_path / "store"
    ran = run(str(directory), "-f", str(script))
    sequence = ran.stdout.split()[-1]
    first = run(str(directory), "--health")
    assert (first.returncode, first.stderr) == (0, "")
    (line,) = first.stdout.splitlines()
    assert line.startswith(f"well: sequence {sequence}, log from 1, state ")
    assert run(str(directory), "--health").stdout == first.stdout


def test_health_and_the_serving_node_agree_on_the_state(tmp_path: Path, script: Path) -> None:
    directory = tmp_path / "store"
    run(str(directory), "-f", str(script))
    with serving(directory) as node:
        state = node.script("INFO FOR STATE")["results"][0]["value"]
        assert node.stop() == 0
    assert f"sequence {state['sequence']}, " in run(str(directory), "--health").stdout
    assert state["hash"] in run(str(directory), "--health").stdout


def test_help_and_version() -> None:
    assert run("--version").stdout == f"storenode {VERSION}\n"
    helped = run("--help")
    assert helped.returncode == 0
    assert "storenode <data_dir> --health" in helped.stdout
