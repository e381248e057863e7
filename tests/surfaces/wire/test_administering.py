"""An owner sees and ends what runs, where as much runs as may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol.frames import MessageKind, WireMessage
from surfaces.wire import NodeGate, WireSettings, WireSurface
from tests.nodes import PASSWORD, Running, running
from tests.surfaces.wire.peers import Peer, connected, until

LONG = "FOR $x IN 0..1000000 { LET $y = $x }"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path / "store") as here:
        yield here


@pytest.fixture
async def surface(here: Running) -> AsyncIterator[WireSurface]:
    surface = WireSurface(NodeGate(here.node), WireSettings("127.0.0.1", 0))
    await surface.start()
    yield surface
    await surface.close()


def value(message: WireMessage | None) -> Any:
    assert message is not None and message.kind is MessageKind.ANSWER, message
    assert message.body is not None
    return message.body["results"][-1]["value"]


def code(message: WireMessage) -> str:
    assert message.kind is MessageKind.ERROR and message.body is not None, message
    return str(message.body["error"]["code"])


async def test_an_owner_sees_and_ends_what_runs_where_there_is_no_room(
    here: Running, surface: WireSurface
) -> None:
    surface._wire.admission.most = 2
    async with AsyncExitStack() as stack:

        async def peer() -> Peer:
            peer = await stack.enter_async_context(connected(surface))
            await peer.greet(user="root", password=PASSWORD)
            return peer

        busy, owner = await peer(), await peer()
        for id in (1, 2):
            busy.say(MessageKind.RUN, id, {"script": LONG})
        await until(lambda: here.node.registry.unfinished == 2)
        assert code(await owner.run(1, "RETURN 1")) == "Busy"
        shown = value(await owner.run(2, "info for running"))
        assert len(shown) == 3, "and itself"
        for number, text in enumerate(("INFO FOR RUNNING; RETURN 1", "INFO FOR RUNNING (", "KILL")):
            assert code(await owner.run(3 + number, text)) == "Busy", text
        owner.say(MessageKind.RUN, 9, {"script": "KILL $id", "params": {"id": shown[0]["id"]}})
        await owner.must_hear(MessageKind.ANSWER, 9)
        await until(lambda: surface.running == 1)
        assert value(await owner.run(10, "RETURN 1")) == 1
        owner.say(MessageKind.RUN, 11, {"script": "KILL $id", "params": {"id": shown[1]["id"]}})
        await owner.must_hear(MessageKind.ANSWER, 11)
    assert surface.running == 0
