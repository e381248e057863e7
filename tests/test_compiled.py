"""The compiled tree: what is compiled in it, that it answers as the plain one, and its wheel."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import machine
from compiling.__main__ import MADE_OF, TREE, lacking, left_out
from compiling.modules import MODULES, ROOMS, SUFFIX, compiled, source
from tests import bound
from tests.architecture.sources import ROOT
from tests.processes import NodeProcess

ANSWERS = "tests.answers_of_a_build"


def test_the_list_names_modules_that_are_there() -> None:
    assert [module for module in MODULES if not (ROOT / source(module)).is_file()] == []
    assert sorted(set(MODULES)) == list(MODULES), "one list, in order, each once"


def test_modules_have_no_library_path_of_the_machine_that_made_them(tmp_path: Path) -> None:
    """lintian refuses a package with one; it is another's folder where the package runs."""
    pytest.importorskip("setuptools")
    from compiling.extensions import without_paths

    linker = ["cc", "-shared", "-L/opt/python/lib", "-Wl,-rpath,/opt/python/lib"]
    assert without_paths(linker) == ["cc", "-shared", "-L/opt/python/lib"]
    if lacking():
        pytest.skip(f"not compiled here: {lacking()}")
    (tmp_path / "one.c").write_text("int one(void) { return 1; }\n")
    for words, has in ((linker, True), (without_paths(linker), False)):
        built = tmp_path / f"{has}.so"
        subprocess.run([*words, "-fPIC", str(tmp_path / "one.c"), "-o", str(built)], check=True)
        assert (b"/opt/python/lib" in built.read_bytes()) is has


def test_a_copy_of_the_tree_has_all_but_the_folders_that_git_ignores() -> None:
    for folder in ("debian", "image"):
        path = ROOT / "packaging" / folder
        assert not left_out(str(path), sorted(one.name for one in path.iterdir()))
    (ROOT / "build").mkdir(exist_ok=True)
    found = left_out(str(ROOT), ["build", "compiling", "tests"])
    assert found == {"build"}


def protocols(text: str) -> set[str]:
    """The names of its protocols: compiled, each is a union of itself and everything."""
    classes = (one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.ClassDef))
    return {
        one.name
        for one in classes
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in one.bases)
    }


def never_set(text: str, wide: set[str]) -> list[str]:
    """The attributes of classes whose None is not set where they are compiled: mypyc takes only
    one type and None for optional.

    :param wide: types that are several
    """
    found = []
    for one in ast.walk(ast.parse(text)):
        if isinstance(one, ast.ClassDef):
            for part in one.body:
                match part:
                    case ast.AnnAssign(
                        target=ast.Name(name), annotation=kind, value=ast.Constant(value=None)
                    ) if types(kind, wide) > 2:
                        found.append(f"{one.name}.{name}")
    return found


def types(annotation: ast.expr, wide: set[str]) -> int:
    parts = list(ast.walk(annotation))
    return (
        1
        + sum(isinstance(each, ast.BitOr) for each in parts)
        + sum(isinstance(each, ast.Name) and each.id in wide for each in parts)
    )


def test_each_default_is_set_in_compiled_classes() -> None:
    planted = (
        "class P(Protocol): ...\n"
        "class One:\n    a: int | None = None\n"
        "    b: int | bool | None = None\n    c: P | None = None\n"
    )
    assert never_set(planted, protocols(planted)) == ["One.b", "One.c"]
    texts = {module: (ROOT / source(module)).read_text() for module in MODULES}
    wide = set[str]().union(*map(protocols, texts.values()))
    found = {module: never_set(text, wide) for module, text in texts.items()}
    assert {module: names for module, names in found.items() if names} == {}


HOLD_LITTLE = {
    "actors.rights": ["entries.shown"],
    "actors.scripts.authorizer": ["_in_database.target"],
    "actors.sessions": ["end_with_users.look", "end_with_users.look_at_released"],
    "protocol.text": ["unescape.one"],
    "storage.topics.messages": ["trim_due.stays"],
    "storage.records.records": ["record_id.address"],
}
"""Functions in a function: made once, or what they share with the other is small."""


def nested(text: str) -> list[str]:
    """The functions in functions. Compiled, each holds itself and what it shares with the other
    until the collector comes by; those without a name don't."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{outer.name}.{inner.name}"
        for outer in ast.walk(ast.parse(text))
        if isinstance(outer, functions)
        for inner in ast.walk(outer)
        if isinstance(inner, functions) and inner is not outer
    ]


def test_no_compiled_function_holds_what_it_shares() -> None:
    assert nested("def a():\n    def b(): ...\n    return lambda: b\n") == ["a.b"]
    found = {module: nested((ROOT / source(module)).read_text()) for module in MODULES}
    assert {module: names for module, names in found.items() if names} == HOLD_LITTLE


def test_a_checkout_stays_plain() -> None:
    """An extension module in it would be what runs after its source was changed."""
    if (ROOT / MADE_OF).exists():
        pytest.skip("this is the compiled tree")
    assert compiled(ROOT) == []


def test_what_a_tree_holds_is_told(tmp_path: Path) -> None:
    assert machine.build(tmp_path) == "plain"
    (tmp_path / ROOMS[0]).mkdir()
    (tmp_path / ROOMS[0] / f"values{SUFFIX}").touch()
    assert compiled(tmp_path) == [f"{ROOMS[0]}.values"]
    assert machine.build(tmp_path).startswith("compiled, 1 modules by mypyc ")
    assert machine.interpreter().startswith("CPython 3.")


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert lacking() == "there is no C compiler 'no-such-compiler'"


def test_what_the_compiler_has_bound_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    from actors.commits import idle_marks
    from protocol import binary, limits, values

    bound._sources.cache_clear()
    monkeypatch.setattr(bound, "COMPILED", frozenset({"protocol.binary", "protocol.values"}))
    try:
        assert bound.bound(binary, "pack") and bound.bound(values.RecordId, "__eq__")
        assert bound.bound(values.NONE, "anything")
        assert bound.bound(limits, "CONTAINERS"), "a constant that a compiled module uses"
        assert bound.bound(limits, "SESSIONS") is None, "one that none uses"
        assert bound.bound(idle_marks, "IDLE_SECONDS") is None
        assert bound.bound(os, "write") is None
    finally:
        bound._sources.cache_clear()


@pytest.fixture(scope="module")
def tree() -> Path:
    """The compiled tree, made if it is not there or not of these sources."""
    if bound.COMPILED:
        return ROOT
    if lacks := lacking():
        pytest.skip(lacks)
    subprocess.run([sys.executable, "-m", "compiling"], cwd=ROOT, check=True)
    return TREE


def answers(tree: Path, *words: str) -> dict[str, Any]:
    """What `answers_of_a_build` says of a tree."""
    ran = subprocess.run(
        [sys.executable, "-m", ANSWERS, *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


@pytest.mark.hard
def test_it_holds_the_modules_of_the_list(tree: Path) -> None:
    assert compiled(tree) == list(MODULES)
    loaded = answers(tree, "loaded")["loaded"]
    assert {name for name, file in loaded.items() if file.endswith(SUFFIX)} == set(MODULES)


@pytest.mark.hard
def test_it_answers_as_the_plain_one(tree: Path, figure: Callable[[str, object], None]) -> None:
    if tree == ROOT:
        pytest.skip("there is no plain tree to compare with")
    plain, native = answers(ROOT), answers(tree)
    assert [file for file in plain["loaded"].values() if file.endswith(SUFFIX)] == []
    assert plain["values"] == native["values"] and plain["worlds"] == native["worlds"]
    planted = answers(tree, "planted")
    assert planted["values"] != native["values"] and planted["worlds"] != native["worlds"]
    figure("compiled and plain", f"{native['count']} values, {len(native['worlds'])} worlds: alike")


@pytest.mark.hard
def test_its_wheel_is_of_this_interpreter_and_serves(tree: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=tree,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert "-none-any" not in wheel.name and f"-cp3{sys.version_info[1]}-" in wheel.name
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert sorted(path.name.partition("-")[0] for path in site.iterdir()) == ["storenode"] * 2
    assert compiled(site / "storenode") == list(MODULES)
    (tmp_path / "run.py").write_text("import sys, storenode; sys.exit(storenode.main())\n")
    found = {"PYTHONPATH": f"{tmp_path}:{site}", "PYTHONSAFEPATH": "1"}
    node = NodeProcess(tmp_path / "store", more=found, module="run").start()
    try:
        assert node.script("INFO FOR NODE")["results"][0]["value"]["build"] == "compiled"
        loaded = Path(f"/proc/{node.process.pid}/maps").read_text()
        assert str(site / "storenode") in loaded and SUFFIX in loaded
        assert node.stop() == 0
    finally:
        node.end()
