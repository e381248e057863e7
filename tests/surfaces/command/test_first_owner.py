"""The generated password of the first owner, on a disk that may die at any moment."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from actors.first_password import FIRST_PASSWORD
from actors.node import start
from storage.engine.memory import MemoryEngine
from surfaces.command.console import Console
from surfaces.command.first_owner import deliver_password
from tests.actors.nodes import settings, simulated_environment
from tests.logbook import Logbook
from tests.simulation.disk import Image, SimulatedDisk

PATH = f"/store/{FIRST_PASSWORD}"


def nobody_reads(_line: str) -> None:
    """Standard error of a service."""


@pytest.mark.usefixtures("quiet")
def test_the_file_holds_the_password_whenever_it_is_there_and_is_there_with_the_owner() -> None:
    """Who waits for the file, as scripts do, reads no half of it; who has lost power has it, or a
    store that belongs to nobody yet."""
    disk, chance = SimulatedDisk(sector=8), random.Random(1)
    seen: list[bytes | None] = []
    left: list[Image] = []

    def look(_kind: str, _path: str) -> None:
        seen.append(disk.image().get(PATH))
        left.extend(disk.crash_point().images(3, chance))

    async def first_start() -> str:
        tell = partial(deliver_password, disk, "/store", Console(nobody_reads, False), False)
        told = settings(first_owner=None, told_owner=tell)
        disk.watch = look
        node = await start(told, simulated_environment("real", disk, MemoryEngine()))
        look("ready", "")
        disk.watch = None
        await node.stop()
        assert node.generated_owner is not None
        return node.generated_owner.password

    async def belongs_to_somebody(image: Image) -> bool:
        looking = settings(first_owner=None, serves=False)
        node = await start(
            looking, simulated_environment("real", SimulatedDisk(image), MemoryEngine())
        )
        found = node.has_users()
        await node.stop()
        return found

    password = asyncio.run(first_start()).encode() + b"\n"
    assert set(seen) == {None, password}
    assert {image.get(PATH) for image in left} == {None, password}
    unlucky = [image for image in left if PATH not in image and "/store/STORE" in image]
    assert unlucky
    for image in [*chance.sample(unlucky, 5), unlucky[-1]]:
        assert not asyncio.run(belongs_to_somebody(image))
    assert all(PATH in image for image in left[-3:]), "it is ready, and the file may be lost"
    assert asyncio.run(belongs_to_somebody(left[-1]))


@pytest.fixture
def quiet(logbook: Logbook) -> None:
    logbook.allow("first owner")
