"""The blocks of the client's README run on a store that is empty, and print what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surfaces.wire import NodeGate
from tests.architecture.sources import ROOT
from tests.cases.test_cases import ACCEPT
from tests.docs.examples import play
from tests.nodes import running
from tests.surfaces.wire.peers import serving

PATH: Final = ROOT / "clients" / "python" / "README.md"


async def test_every_block_prints_what_it_says(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node, serving(NodeGate(node.node)) as surface:
        await node.values("DROP NAMESPACE shop")
        wrong = await play(PATH, node, surface.address, accept=ACCEPT)
    assert not wrong, "\n\n".join(wrong)
