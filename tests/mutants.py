"""Mutation testing: small faults in the sources, one at a time, and whether any test sees them.

`make mutants` takes a sample of them from each room, `SAMPLE=n` a room, chosen by `SEED=n`; `ROOM=`
names one room. Mutations and their application are cosmic-ray's. They are made in a copy of the
tree under `build/mutants`. A mutant meets the tests of its room, and first of them those of its own
name and those that import its module: who is only seen from far away counts as not seen. Those
that survive are shown as patches, and the score goes to the end of the output.

Every place of the sources is as likely as any other, however many mutations it has. What stands in
annotations, decorators and docstrings is left alone, since nothing runs there, and so are mutations
that say little: `|` in the place of `+`, `is` in the place of `==`.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.architecture.sources import ROOT

COPY: Final = ROOT / "build" / "mutants"
ROOMS: Final = ("storage", "actors", "surfaces")
TELLING: Final = re.compile(
    r"core/(?!Replace(Binary|Comparison|Unary)Operator)\w+"
    r"|core/ReplaceUnaryOperator_Delete_\w+"
    r"|core/ReplaceComparisonOperator_(?!\w+_Is(Not)?$)\w+"
    r"|core/ReplaceComparisonOperator_Is(Not)?_Is(Not)?"
    r"|core/ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|FloorDiv_Mul|Div_Mul|Mod_FloorDiv"
    r"|BitAnd_BitOr|BitOr_BitAnd|LShift_RShift|RShift_LShift)"
)
"""Mutations that are made, by cosmic-ray's names for them."""
NEAR_SECONDS: Final = 240
ROOM_SECONDS: Final = 1500
"""A mutant under which the tests take longer counts as seen."""

ValueAddress = tuple[int, int]
"""Line, from 1, and column, from 0, in characters."""


@dataclass(frozen=True)
class Mutant:
    """One fault: what is done to which place of which file."""

    file: str
    operator: str
    occurrence: int
    at: ValueAddress

    def __str__(self) -> str:
        return f"{self.file}:{self.at[0]} {self.operator.removeprefix('core/')}"


def silent(source: str) -> list[tuple[ValueAddress, ValueAddress]]:
    """Where nothing runs that a test could see: from and to of each such place."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(annotation=annotation):
                found.append(annotation)
            case ast.arg(annotation=annotation) if annotation is not None:
                found.append(annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found += [*node.decorator_list, *([node.returns] if node.returns else [])]
            case ast.ClassDef():
                found += node.decorator_list
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                found.append(node)
            case ast.Expr(value=ast.Constant(value=str())):
                found.append(node)
    return [
        (
            (node.lineno, node.col_offset),  # type: ignore[attr-defined]
            (node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )
        for node in found
    ]


def is_silent(at: ValueAddress, places: Iterable[tuple[ValueAddress, ValueAddress]]) -> bool:
    """Whether a spot lies in one of these places. A decorator begins with its `@`."""
    return any((start[0], start[1] - 1) <= at < end for start, end in places)


def mutants(file: str) -> list[Mutant]:
    """All that can be made of a file."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    path = COPY / file
    nodes, places = list(ast_nodes(get_ast_from_path(path))), silent(path.read_text())
    found = []
    for name in filter(TELLING.fullmatch, operator_names()):
        kind = get_operator(name)
        if kind.arguments():
            continue  # those that put variables in need to be told which
        spots = [spot for node in nodes for spot in kind().mutation_positions(node)]
        for occurrence, (start, _) in enumerate(spots):
            if not is_silent(start, places):
                found.append(Mutant(file, name, occurrence, start))
    return found


def chosen(room: str, sample: int, seed: int) -> list[Mutant]:
    """A sample of a room's mutants, one of a place."""
    places: dict[tuple[str, ValueAddress], list[Mutant]] = {}
    for path in sorted((COPY / room).rglob("*.py")):
        for mutant in mutants(str(path.relative_to(COPY))):
            places.setdefault((mutant.file, mutant.at), []).append(mutant)
    dice = random.Random(f"{room} {seed}")
    return [dice.choice(places[at]) for at in dice.sample(sorted(places), min(sample, len(places)))]


def near(file: str, tests: dict[str, str]) -> list[str]:
    """The tests of its room to ask first, by path: those of the file's name, and those that import
    it.

    :param tests: text of every test module, by path
    """
    room = f"tests/{file.partition('/')[0]}/"
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.rpartition(".")
    imports = re.compile(
        rf"^(from {re.escape(module)} import|import {re.escape(module)}\b"
        rf"|from {re.escape(package)} import .*\b{name}\b)",
        re.MULTILINE,
    )
    return [
        path
        for path, text in tests.items()
        if path.startswith(room) and (Path(path).name == f"test_{name}.py" or imports.search(text))
    ]


def passes(tests: Sequence[str], seconds: float) -> bool:
    """Whether every one of these tests passes within that time."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    with tempfile.TemporaryDirectory() as place:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{COPY}:{COPY / 'clients' / 'python'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": place,  # with what was compiled of another mutant
        }
        ran = subprocess.Popen(
            words, cwd=COPY, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return ran.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(ran.pid, 9)
            ran.wait()
            return False


@contextmanager
def applied(mutant: Mutant) -> Iterator[str]:
    """The copy with the mutant in it; gives its patch."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    path = COPY / mutant.file
    before = path.read_text()
    after = mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    assert after is not None and after != before, mutant
    path.write_text(after)
    try:
        yield patch(mutant.file, before, after)
    finally:
        path.write_text(before)


def patch(file: str, before: str, after: str) -> str:
    """What was changed, as a patch."""
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), f"a/{file}", f"b/{file}", n=2
    )
    return "".join(lines)


def survives(mutant: Mutant, tests: dict[str, str]) -> str | None:
    """The patch of a mutant that no test sees."""
    first = near(mutant.file, tests)
    with applied(mutant) as shown:
        if first and not passes(first, NEAR_SECONDS):
            return None
        room = f"tests/{mutant.file.partition('/')[0]}"
        return shown if passes([room], ROOM_SECONDS) else None


def copy_tree() -> dict[str, str]:
    """A new copy of what git knows of the tree; the text of its test modules, by path."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)
    return {
        str(path.relative_to(COPY)): path.read_text()
        for path in sorted((COPY / "tests").rglob("test_*.py"))
    }


def main() -> None:
    """Sample, try, tell."""
    asked = argparse.ArgumentParser(prog="make mutants")
    asked.add_argument("--room", choices=ROOMS)
    asked.add_argument("--sample", type=int, default=40)
    asked.add_argument("--seed", type=int, default=1)
    given = asked.parse_args()
    tests = copy_tree()
    seen, made = Counter[str](), Counter[str]()
    began = time.monotonic()
    for room in [given.room] if given.room else ROOMS:
        for mutant in chosen(room, given.sample, given.seed):
            shown = survives(mutant, tests)
            made[room] += 1
            seen[room] += shown is None
            print(f"{'seen    ' if shown is None else 'SURVIVED'} {mutant}", flush=True)
            if shown is not None:
                print(shown, flush=True)
    for room, count in made.items():
        print(f"{room}: {seen[room]} of {count} mutants seen, {seen[room] / count:.0%}")
    print(f"seed {given.seed}, {(time.monotonic() - began) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
