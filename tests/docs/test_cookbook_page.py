"""The recipes of `docs/cookbook.md` run as they stand, and keep what they promise when many use
them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surfaces.wire import NodeGate
from tests.architecture.sources import ROOT
from tests.cases.test_cases import ACCEPT
from tests.docs.examples import Play, play
from tests.nodes import running
from tests.surfaces.wire.peers import serving

PATH: Final = ROOT / "docs" / "cookbook.md"
CLOSES: Final = "client.close()\n"
AT_ONCE: Final = """
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

with ThreadPoolExecutor(8) as pool:
    for work in (
        lambda n: sign_up(uuid4(), "race@example.org", f"number {n}") == "welcome",
        lambda n: allowed("10.0.0.99"),
        lambda n: bool(
            db.query("UPDATE book:2 SET stock = (stock ?? 20) - 5 WHERE (stock ?? 20) >= 5")
        ),
        lambda n: db.cache("locks").lock("one", 30, holder=f"number {n}") is not None,
    ):
        print(sum(pool.map(work, range(24))))
# = 1
# = 3
# = 4
# = 1
"""


async def test_every_recipe_does_what_it_says_and_holds_when_many_come_at_once(
    tmp_path: Path,
) -> None:
    page = PATH.read_text(encoding="utf-8")
    assert page.count(CLOSES) == 1
    async with running(tmp_path / "store") as node, serving(NodeGate(node.node)) as surface:
        if ACCEPT:
            assert not await play(PATH, node, surface.address, accept=True)
            return
        run = Play(PATH.name, node, surface.address)
        await run.page(page.replace(CLOSES, AT_ONCE + CLOSES))
    assert not run.wrong, "\n\n".join(run.wrong)
