"""`python -m bench.demo`: real data in, ten questions, a kill, the same answers.

Loads the cities and countries of the world through the Python client, asks ten questions about
them, kills the node with SIGKILL, starts it again on the same directory and asks once more.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import geonames
from bench.nodes import DATABASE, NAMESPACE, ROOT, NodeProcess
from bench.questions import QUESTIONS, Question
from storeclient import Client

DIRECTORY: Final = ROOT / "build" / "demo"
Values = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a node shows of its store."""

    answers: list[Values]
    """To each question, in their order."""
    state: dict[str, Any]
    """Sequence and hash, as INFO FOR NODE tells them."""


def main() -> int:
    """Run the demonstration and show it. Answers the exit code."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.parent.mkdir(exist_ok=True)
    before, after = run(DIRECTORY, Console())
    return 0 if before == after else 1


def run(directory: Path, console: Console, every: int = 1) -> tuple[Seen, Seen]:
    """What was seen before the kill and after it.

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
        before = _see(client, console)
        console.print(f"State at {_state(before)}. Now SIGKILL.")
        node.kill()
    with node, node.client() as client:
        console.print(f"Started again in {node.start_seconds:.1f} s. The same questions:\n")
        after = _see(client, None)
    for question, first, second in zip(QUESTIONS, before.answers, after.answers, strict=True):
        console.print(f"  {'same' if first == second else 'DIFFERENT'}: {question.asks}")
    console.print(f"State at {_state(after)}: {'the same' if before == after else 'DIFFERENT'}.")
    return before, after


def _see(client: Client, console: Console | None) -> Seen:
    client.use(NAMESPACE, DATABASE)
    answers = []
    for question in QUESTIONS:
        began = time.perf_counter()
        answer = client.query(question.script, question.params)
        if console is not None:
            _show(console, question, answer, time.perf_counter() - began)
        answers.append(answer)
    return Seen(answers, client.query("INFO FOR NODE")["state"])


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


def _state(seen: Seen) -> str:
    return f"sequence {seen.state['sequence']}, hash {seen.state['hash'][:16]}…"


if __name__ == "__main__":
    sys.exit(main())
