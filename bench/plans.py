"""Access paths of the node for the questions of the demonstration: without indexes and with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Self

from rich.table import Table

from bench.questions import QUESTIONS, Question
from storeclient import Client

INDEXES: Final = {
    "by_country": "country, population",
    "by_population": "population",
    "by_latitude": "latitude",
    "by_timezone": "timezone",
}
"""Fields of each index on the cities. A question over all time zones reads every city anyway: the
last index shows that the planner ignores one that does not pay."""

READY_SECONDS: Final = 300
LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class ExplainedPlan:
    """Output of EXPLAIN ANALYZE for the last statement of a question."""

    access: str
    index: str
    """Name of the index, or empty."""
    rows_read: int
    seconds: float

    @classmethod
    def of(cls, client: Client, question: Question) -> Self:
        """Run the question's script with EXPLAIN ANALYZE, and parse the plan."""
        told = client.query(explained(question), question.params)
        (source,) = told["sources"]
        return cls(
            source["access"],
            source.get("index", ""),
            told["rows_read"],
            told["took"].total_seconds(),
        )


def explained(question: Question) -> str:
    """Return the script of a question with EXPLAIN ANALYZE before its last statement."""
    before, semicolon, last = question.script.rpartition(";")
    return f"{before}{semicolon} EXPLAIN ANALYZE {last}"


def plans(client: Client) -> list[ExplainedPlan]:
    """Return the plans of all questions, in their order."""
    return [ExplainedPlan.of(client, question) for question in QUESTIONS]


def define_indexes(client: Client) -> None:
    """Define all of `INDEXES`, and wait until they are built.

    :raises TimeoutError: an index was not built in time
    """
    for name, fields in INDEXES.items():
        client.query(f"DEFINE INDEX {name} ON city FIELDS {fields}")
    end = time.monotonic() + READY_SECONDS
    for name in INDEXES:
        while (told := _state(client, name)) != "ready":
            if told != "building" or time.monotonic() > end:
                raise TimeoutError(f"index {name} is {told}")
            time.sleep(LOOK_SECONDS)


def _state(client: Client, name: str) -> Any:
    return client.query(f"INFO FOR INDEX {name} ON city")["state"]


def compared(bare: list[ExplainedPlan], indexed: list[ExplainedPlan], same: list[bool]) -> Table:
    """Format the two access paths of each question side by side.

    :param same: True if the answers were equal
    """
    table = Table(
        title="EXPLAIN ANALYZE of the ten: above without the indexes, below with them",
        title_justify="left",
        header_style="dim",
        caption="Access and rows are those of the outer statement; its subqueries count in ms.",
        caption_justify="left",
        show_edge=False,
        show_lines=True,
    )
    table.add_column("question", ratio=1)
    table.add_column("access")
    table.add_column("rows read", justify="right")
    table.add_column("ms", justify="right")
    table.add_column("answer")
    for question, one, two, alike in zip(QUESTIONS, bare, indexed, same, strict=True):
        table.add_row(
            question.asks,
            *("\n".join(pair) for pair in zip(_cells(one), _cells(two), strict=True)),
            "same" if alike else "DIFFERENT",
        )
    return table


def _cells(plan: ExplainedPlan) -> tuple[str, str, str]:
    way = f"{plan.access} {plan.index}".rstrip()
    return way, f"{plan.rows_read:,}", f"{plan.seconds * 1000:.1f}"
