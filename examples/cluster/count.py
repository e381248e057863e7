"""Numbers are written to a cluster while somebody breaks it; in the end each node is asked for all
that were acknowledged.

A number is written once. One that was refused was not done, and the next is tried; one whose answer
was lost may have been: it is no loss if it is missing, and nothing to wonder at if it is there.
"""

import argparse
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

from storeclient import Client, OutcomeUnknown, Unreachable, errors

SETTING = (
    "DEFINE NAMESPACE IF NOT EXISTS tour; DEFINE DATABASE IF NOT EXISTS tour.main; USE tour.main;"
    " DEFINE TABLE IF NOT EXISTS number; DELETE number"
)
STALLED_SECONDS = 1.0
"""A pause of the writes that is worth a line."""


class Lost(Exception):
    """A node does not have what was acknowledged."""


@dataclass
class Told:
    """What the writer heard."""

    acknowledged: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    refused: int = 0
    seq: int = 0
    """Where the newest of them stands in the store."""


def sign_in(at: str) -> Client:
    """A client of one node, or of those whose addresses have commas between."""
    user, password = os.environ.get("STORE_USER", "root"), os.environ["STORE_PASSWORD"]
    return Client(at, user=user, password=password)


def write(client: Client, seconds: float) -> Told:
    """Write the next number as soon as the one before was answered, until Ctrl-C at the latest."""
    client.query(SETTING)
    client.use("tour", "main")
    told = Told()
    with suppress(KeyboardInterrupt):
        write_all(client, told, time.monotonic() + seconds)
    return told


def write_all(client: Client, told: Told, end: float) -> None:
    """Write until then, by the monotonic clock."""
    last = shown = time.monotonic()
    number = 0
    while time.monotonic() < end:
        number += 1
        try:
            told.seq = client.run("CREATE number SET n = $n", {"n": number}).seq
        except OutcomeUnknown:
            told.unknown.add(number)
            continue
        except (Unreachable, errors.NotWritable, errors.NotEnoughReplicas, errors.Busy):
            told.refused += 1
            time.sleep(0.05)
            continue
        told.acknowledged.add(number)
        now = time.monotonic()
        if now - last > STALLED_SECONDS:
            print(f"no write for {now - last:.1f} s", flush=True)
        if now - shown > 1:
            print(f"{len(told.acknowledged)} acknowledged", flush=True)
            shown = now
        last = now


def look(at: str, told: Told) -> str:
    """Ask one node for all of them. :raises Lost: one is missing"""
    with sign_in(at) as client:
        client.use("tour", "main")
        rows = client.query("SELECT VALUE n FROM number", after=told.seq)
    missing = told.acknowledged - set(rows)
    if missing:
        raise Lost(f"{at} lacks {len(missing)} that were acknowledged: {sorted(missing)[:10]}")
    return f"{at} holds all {len(told.acknowledged)}"


def main() -> None:
    """Write for a while, then look."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=60, help="how long; Ctrl-C ends it")
    asked = words.parse_args()
    nodes = os.environ["STORE_AT"]
    with sign_in(nodes) as client:
        told = write(client, asked.seconds)
    print(
        f"{len(told.acknowledged)} acknowledged, {len(told.unknown)} with an unknown end,"
        f" {told.refused} refused"
    )
    for at in nodes.split(","):
        try:
            print(look(at, told))
        except (Unreachable, errors.StatementTimeout) as error:
            print(f"{at} does not show them: {error}")


if __name__ == "__main__":
    try:
        main()
    except Lost as found:
        sys.exit(str(found))
