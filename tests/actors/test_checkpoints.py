"""Checkpoints: who asks for one, and what becomes of it when that one waits no more."""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext

import pytest

from actors.checkpoints import CheckpointNow, _has_gone_on
from actors.runtime import ask
from protocol.errors import DiskFull, Draining
from tests.actors.parts import checkpoints, on_stepped, outcome, parts, until


def works() -> bool:
    """Whether a checkpoint is under way."""
    return any("CheckpointsActor._work" in repr(task) for task in asyncio.all_tasks())


@on_stepped
async def test_one_that_nobody_waits_for_may_find_the_disk_full() -> None:
    """The log book tells of an error that nobody has asked for."""
    async with parts("stepped") as node:
        await node.durable(node.put("k", b"x"))
        node.disk.capacity = 0
        async with checkpoints(node) as ref:
            assert isinstance(await outcome(ask(ref, CheckpointNow())), DiskFull)
            asked = asyncio.ensure_future(ask(ref, CheckpointNow()))
            while not works():
                await asyncio.sleep(0)
        await until(lambda: not works())
        assert await outcome(asked), "who asked is told something"
    gc.collect()


async def test_what_comes_of_one_that_nobody_waits_for_is_told_where_it_is_a_bug() -> None:
    loop = asyncio.get_running_loop()
    for error, is_bug in (
        (DiskFull("no room"), False),
        (Draining("the node is stopping"), False),
        (RuntimeError("a bug"), True),
    ):
        running: asyncio.Future[int] = loop.create_future()
        running.set_exception(error)
        with pytest.raises(RuntimeError) if is_bug else nullcontext():
            _has_gone_on(running)
