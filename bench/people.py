"""Records of the benchmarks: the same for the node and its peers, in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

CITIES: Final = (
    "Adelaide", "Bogota", "Cairo", "Dakar", "Edinburgh", "Fukuoka", "Geneva", "Hanoi", "Istanbul",
    "Jakarta", "Kyiv", "Lima", "Manila", "Nairobi", "Oslo", "Porto", "Quito", "Riga", "Sofia",
    "Tunis",
)  # fmt: skip
TAGS: Final = ("new", "vip", "late", "blocked", "mail", "phone")
TRANSACTION: Final = 2_500
"""Rows of one bulk insert."""


def person(number: int) -> dict[str, Any]:
    """Return a record of about 120 bytes, determined by its number."""
    chance = random.Random(number)
    return {
        "name": f"person {number}",
        "age": chance.randrange(100),
        "city": chance.choice(CITIES),
        "balance": round(chance.uniform(-500, 20_000), 2),
        "active": chance.random() < 0.8,
        "tags": chance.sample(TAGS, chance.randrange(4)),
    }


def people(count: int, first: int = 1) -> list[dict[str, Any]]:
    """Yield `count` records from number `first` on, with their numbers as ids."""
    return [{"id": number, **person(number)} for number in range(first, first + count)]


def parts(count: int, first: int = 1) -> Iterator[list[dict[str, Any]]]:
    """Yield the same records in batches, one per transaction."""
    for start in range(first, first + count, TRANSACTION):
        yield people(min(TRANSACTION, first + count - start), start)
