"""R22: the keys of vaults, with the process killed at each step of changing them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import pytest

from actors.node import Node
from actors.runtime import ask
from actors.vaults import rotation
from protocol.errors import WrongKey
from protocol.vaults import ChangePassphrase, Unseal
from storage.engine.memory import MemoryEngine
from tests.actors.nodes import ANA, prepare, running, settings, simulated_environment, value
from tests.actors.parts import play
from tests.simulation.disk import SimulatedDisk

Figure = Callable[[str, object], None]
OLD, NEW = "the old passphrase", "the new passphrase"
RECORDS: Final = 16
CANARY: Final = "canary of a value"


async def change(node: Node, rekey: bool) -> None:
    await ask(node.vaults, ChangePassphrase(ANA, None, OLD, NEW, rekey))


async def rotate(node: Node) -> None:
    await value(node, "ROTATE VAULT v")


ACTS: Final[dict[str, Callable[[Node], Awaitable[None]]]] = {
    "a changed passphrase": lambda node: change(node, rekey=False),
    "all keys made anew": lambda node: change(node, rekey=True),
    "a rotation": rotate,
}


async def unsealed(node: Node) -> str:
    """Which passphrase unseals it."""
    for passphrase in (OLD, NEW):
        try:
            await ask(node.vaults, Unseal(ANA, None, passphrase))
        except WrongKey:
            continue
        return passphrase
    raise AssertionError("neither passphrase unseals it")


async def rotated(node: Node) -> None:
    while (await value(node, "INFO FOR VAULT v"))["rotation"] != "none":
        await asyncio.sleep(0.1)


async def write(node: Node, number: int, text: str) -> None:
    script = "WRITE $id IN VAULT v VALUE $value"
    await value(node, script, {"id": f"k{number}", "value": text})


async def taken(act: str, images: list[Any], acknowledged: list[dict[str, str]]) -> None:
    """Let an act run beside writes. What the disk held at each step, and what had been answered."""
    disk = SimulatedDisk()
    told: dict[str, str] = {}
    async with running(simulated_environment("stepped", disk, MemoryEngine()), settings()) as node:
        await prepare(node)
        await ask(node.vaults, ChangePassphrase(ANA, None, None, OLD))
        await ask(node.vaults, Unseal(ANA, None, OLD))
        await value(node, "DEFINE VAULT v")
        for number in range(RECORDS):
            await write(node, number, CANARY)
            told[f"k{number}"] = CANARY

        def seen(kind: str, path: str) -> None:
            if kind in ("append", "sync") and path.endswith(".storelog"):
                images.append(disk.image())
                acknowledged.append(dict(told))

        async def writer() -> None:
            for number in range(0, RECORDS, 4):
                await write(node, number, f"{CANARY}, later")
                told[f"k{number}"] = f"{CANARY}, later"

        disk.watch = seen
        await asyncio.gather(ACTS[act](node), writer())
        await rotated(node)
        disk.watch = None
        images.append(disk.image())
        acknowledged.append(dict(told))


async def opened(image: Any, acknowledged: dict[str, str]) -> str:
    """A node on what a kill has left; which passphrase it has."""
    disk = SimulatedDisk(image)
    async with running(simulated_environment("stepped", disk, MemoryEngine()), settings()) as node:
        found = await unsealed(node)
        await rotated(node)
        for id, text in acknowledged.items():
            shown = await value(node, "REVEAL $id FROM VAULT v", {"id": id})
            # A write that was on its way may be there, and may not.
            assert shown["value"] in (text, f"{CANARY}, later")
        entries = await value(node, "INFO FOR AUDIT OF VAULT v LIMIT 1000")
        assert all(one["intact"] for one in entries)
        assert [one["seq"] for one in entries] == list(range(len(entries), 0, -1))
    return found


@pytest.mark.parametrize("act", ACTS)
def test_killed_at_each_step(act: str, figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "AT_ONCE", 4)
    images: list[Any] = []
    acknowledged: list[dict[str, str]] = []
    play("stepped", lambda: taken(act, images, acknowledged))
    found = []
    for at in range(0, len(images), max(1, len(images) // 8)):
        found.append(play("stepped", partial(opened, images[at], acknowledged[at])))
    if act != "a rotation":
        assert found[0] == OLD
        assert play("stepped", lambda: opened(images[-1], acknowledged[-1])) == NEW
    figure(f"R22 {act}", f"{len(images)} steps, {len(found)} opened again, 0 values lost")
