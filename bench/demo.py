"""`python -m bench.demo`: real data in, ten questions, indexes, a kill, the same answers.

It loads the cities and countries of the world through the Python client and asks ten questions
about them. It defines indexes and asks again, with EXPLAIN in addition. Then it kills the node with
SIGKILL, restarts it on the same directory, and asks once more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import geonames
from bench.nodes import DATABASE, NAMESPACE, ROOT, NodeProcess
from bench.plans import INDEXES, ExplainedPlan, compared, define_indexes, plans
from bench.questions import QUESTIONS, Question
from storeclient import Client

DIRECTORY: Final = ROOT / "build" / "demo"
Values = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ShownState:
    """Answers and state of a store, as a node shows them."""

    answers: list[Values]
    """Answers to the questions, in their order."""
    state: tuple[int, str]
    """Sequence and hash, from INFO FOR STATE, and from `--health` after the node was killed."""
    plans: list[ExplainedPlan] = field(compare=False)
    """Access path of each answer; times are left out, because they differ in each run."""


@dataclass(frozen=True, slots=True)
class Course:
    """The states of one store during the demonstration, in order."""

    bare: ShownState
    """Before indexes are defined."""
    indexed: ShownState
    restarted: ShownState
    """After SIGKILL and another start."""

    @property
    def same(self) -> bool:
        """True if all answers are equal and the kill left the state as it was."""
        return self.bare.answers == self.indexed.answers and self.indexed == self.restarted


def main() -> int:
    """Run the demonstration and print it. Return the exit code."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.parent.mkdir(exist_ok=True)
    return 0 if run(DIRECTORY, Console()).same else 1


def run(directory: Path, console: Console, every: int = 1) -> Course:
    """Run the demonstration.

    :param directory: where the store is made; it must not exist
    :param every: load only every second, third, … city
    """
    node = NodeProcess(directory)
    with node, node.client() as client:
        console.print(f"A node serves {directory}: HTTP {node.http}, wire {node.wire}")
        began = time.perf_counter()
        held = geonames.load(client, every)
        took = time.perf_counter() - began
        console.print(f"Loaded {held[0]} countries and {held[1]:,} cities in {took:.1f} s\n")
        bare = _see(client, console)
        began = time.perf_counter()
        define_indexes(client)
        took = time.perf_counter() - began
        defined = ", ".join(f"{name} ({fields})" for name, fields in INDEXES.items())
        console.print(f"Defined and built in {took:.1f} s: {defined}\n")
        indexed = _see(client, None)
        console.print(compared(bare.plans, indexed.plans, _alike(bare, indexed)), "")
        console.print(f"State at {_state(indexed)}. Now SIGKILL.")
        node.kill()
    killed = _checked(directory)  # before a sign-in, which the audit trail would record
    with node, node.client() as client:
        console.print(f"Started again in {node.start_seconds:.1f} s. The same questions:\n")
        restarted = replace(_see(client, None), state=killed)
    for question, same in zip(QUESTIONS, _alike(indexed, restarted), strict=True):
        console.print(f"  {'same' if same else 'DIFFERENT'}: {question.asks}")
    verdict = "the same" if indexed == restarted else "DIFFERENT"
    console.print(f"State at {_state(restarted)}: {verdict}.")
    return Course(bare, indexed, restarted)


def _see(client: Client, console: Console | None) -> ShownState:
    client.use(NAMESPACE, DATABASE)
    answers = []
    for question in QUESTIONS:
        began = time.perf_counter()
        answer = client.query(question.script, question.params)
        if console is not None:
            _show(console, question, answer, time.perf_counter() - began)
        answers.append(answer)
    state = client.query("INFO FOR STATE")
    return ShownState(answers, (state["sequence"], state["hash"]), plans(client))


def _checked(directory: Path) -> tuple[int, str]:
    """Return sequence and hash of a store while no node serves it."""
    command = [sys.executable, "-m", "surfaces.command.main", str(directory), "--health"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = re.search(r"well: sequence (\d+), .*state (\w+)", told)
    assert found is not None, told
    return int(found[1]), found[2]


def _alike(one: ShownState, other: ShownState) -> list[bool]:
    return [first == second for first, second in zip(one.answers, other.answers, strict=True)]


def _show(console: Console, question: Question, answer: Values, seconds: float) -> None:
    shown = Table(
        title=f"{question.asks} [dim]{seconds * 1000:.0f} ms[/dim]",
        title_justify="left",
        show_edge=False,
        header_style="dim",
    )
    for name in answer[0] if answer else ("no answer",):
        numbers = answer and isinstance(answer[0][name], int | float)
        shown.add_column(name, justify="right" if numbers else "left")
    for row in answer:
        shown.add_row(*(_text(row.get(name, "")) for name in answer[0]))
    console.print(shown, "")


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _state(seen: ShownState) -> str:
    sequence, digest = seen.state
    return f"sequence {sequence}, hash {digest[:16]}…"


if __name__ == "__main__":
    sys.exit(main())
