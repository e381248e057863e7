"""Sales and products of the analytic rows: the same for the node and its peers, in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

PRODUCTS: Final = 500
COUNTRIES: Final = (
    "AR", "AU", "BR", "CA", "CH", "CL", "CN", "CO", "DE", "EG", "ES", "FR", "GB", "IN", "IT", "JP",
    "KE", "KR", "MX", "NG", "NL", "NZ", "PE", "PL", "PT", "SE", "TR", "US", "VN", "ZA",
)  # fmt: skip
BEGIN: Final = datetime(2025, 1, 1, tzinfo=UTC)
SPAN: Final = timedelta(days=365)


class Sale(NamedTuple):
    """A sale; `product` is the number of its product."""

    id: int
    at: datetime
    amount: Decimal
    qty: int
    rate: float
    country: str
    product: int


def sale(number: int, count: int) -> Sale:
    """Return a sale, determined by its number; sales are spread evenly over the year.

    :param count: number of all sales
    """
    chance = random.Random(number)
    return Sale(
        number,
        BEGIN + number * SPAN / (count + 1),
        Decimal(chance.randrange(100, 1_000_000)).scaleb(-2),
        chance.randrange(1, 100),
        chance.random(),
        chance.choice(COUNTRIES),
        chance.randrange(PRODUCTS),
    )


def parts(count: int, size: int, first: int = 1) -> Iterator[list[Sale]]:
    """Yield the sales from number `first` to `count` in batches."""
    for start in range(first, count + 1, size):
        yield [sale(number, count) for number in range(start, min(start + size, count + 1))]


def product_name(number: int) -> str:
    """Return the name of a product; no two are equal."""
    return f"product {number:03}"
