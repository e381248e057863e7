"""Rows about the history of records in a long log: the cost to read it, near the end or far
back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from bench.figures import Measurement
from bench.nodes import NodeProcess, define_place
from bench.settings import Settings
from storeclient import Client

FRAMES: Final = 1_000_000
"""Frames of the log, all retained: ten times as many as a node keeps by default."""
TOGETHER: Final = 500
"""Commits of one script while the log is made."""
FEW: Final = 10
MANY: Final = 1_000
KEEP: Final = ("--keep-log", "1TiB")

NAMES: Final = ("history", "history-gone")


def rows(settings: Settings, wanted: Callable[[str], bool]) -> Iterator[Measurement]:
    """Measure the wanted rows, on one log."""
    if not any(map(wanted, NAMES)):
        return
    node = NodeProcess(settings.directory / "history", flags=KEEP)
    frames = settings.scaled(FRAMES)
    with node, node.client() as client:
        define_place(client, "hot", "other")
        _fill(client, frames, settings.scaled(MANY))
    with node, node.client() as client:
        if wanted("history"):
            yield _alive(settings, node, client, frames)
        if wanted("history-gone"):
            yield _gone(settings, client, frames)


def _fill(client: Client, frames: int, many: int) -> None:
    """Fill a log: one record changes a few times, another often along its whole length, a third is
    deleted at its beginning."""
    client.query("CREATE hot:few SET n = 0; CREATE hot:many SET n = 0; CREATE hot:gone")
    client.query("DELETE hot:gone")
    every = {"hot:few": max(frames // FEW, 1), "hot:many": max(frames // many, 1)}
    at = 0
    while at < frames:
        statements = []
        for number in range(at, min(at + TOGETHER, frames)):
            statements += [
                f"UPDATE {record} SET n = {number} RETURN NONE"
                for record, distance in every.items()
                if number % distance == distance - 1
            ]
            statements.append(f"CREATE other:{number} SET n = {number} RETURN NONE")
        client.run(";".join(statements))
        at += TOGETHER


def _alive(settings: Settings, node: NodeProcess, client: Client, frames: int) -> Measurement:
    row = Measurement(
        "history", f"history of a record in a log of {frames:,} commits", "ms", "less"
    )
    for record, what in (("few", f"{FEW} changes"), ("many", f"{settings.scaled(MANY):,} changes")):
        text = f"INFO FOR HISTORY OF hot:{record} LIMIT 1000"
        first, changes = _asked(client, text)
        row.notes.append(
            f"{changes} changes the first time after a start: {first:.1f} ms, since each segment"
            " on the way is walked once"
        )
        used = node.cpu_seconds()
        row.sides[what] = [_asked(client, text)[0] for _ in range(settings.rounds)]
        used = (node.cpu_seconds() - used) / settings.rounds * 1000
        row.notes.append(f"{what}: {used:.0f} ms of the node's processor an answer")
    return row


def _gone(settings: Settings, client: Client, frames: int) -> Measurement:
    row = Measurement(
        "history-gone",
        f"history of a record that was deleted {frames:,} commits ago, in as many answers as it"
        " takes",
        "s",
        "less",
    )
    row.sides["all of the log searched"] = [_searched(client) for _ in range(settings.rounds)]
    return row


def _searched(client: Client) -> float:
    began = time.perf_counter()
    found = client.query("INFO FOR HISTORY OF hot:gone")
    while not found["entries"]:
        found = client.query(f"INFO FOR HISTORY OF hot:gone BEFORE {found['next']}")
    return time.perf_counter() - began


def _asked(client: Client, text: str) -> tuple[float, int]:
    """Return the latency in milliseconds, and the number of changes in the answer."""
    began = time.perf_counter()
    found = client.query(text)
    return (time.perf_counter() - began) * 1000, len(found["entries"])
