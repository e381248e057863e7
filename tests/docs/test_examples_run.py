"""Every page with examples: they answer what stands below them.

`make cases-accept` writes what is answered now into the pages: read the difference, and put `…` for
what differs from run to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from surfaces.wire import NodeGate
from tests.architecture.sources import ROOT
from tests.cases.test_cases import ACCEPT
from tests.docs.examples import blocks, play
from tests.nodes import running
from tests.surfaces.wire.peers import serving

ELSEWHERE: Final = {
    "README.md": "its tour is of the command line and HTTP too: test_tour.py",
    "docs/search-page.md": "with some of its cities: test_search_page.py",
    "docs/cookbook.md": "with many callers at once: test_cookbook_page.py",
}
PAGES: Final = sorted(
    str(path.relative_to(ROOT))
    for folder in (ROOT, *(ROOT / name for name in ("docs", "clients", "examples")))
    for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
    if "node_modules" not in path.parts and blocks(path.read_text(encoding="utf-8"))
)
DEFINES_ITS_PLACE: Final = "DEFINE NAMESPACE shop;"
"""What a page says that begins with a store in which there is nothing at all."""


def test_pages_are_found() -> None:
    assert set(ELSEWHERE) | {"docs/statements.md", "clients/python/README.md"} <= set(PAGES)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
async def test_every_example_answers_what_it_says(page: str, tmp_path: Path) -> None:
    path = ROOT / page
    (tmp_path / "backups").mkdir()
    told = {"backup_dir": str(tmp_path / "backups")}
    async with (
        running(tmp_path / "store", settings=told) as node,
        serving(NodeGate(node.node)) as surface,
    ):
        if DEFINES_ITS_PLACE in path.read_text(encoding="utf-8"):
            await node.values("DROP NAMESPACE shop")
        else:
            await node.unseal()
        wrong = await play(path, node, surface.address, accept=ACCEPT)
    assert not wrong, "\n\n".join(wrong)
