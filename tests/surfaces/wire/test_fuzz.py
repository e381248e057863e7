"""S4: mutated frames. Each is answered or its connection closed; the node goes on, always.

A frame is made of a valid one by flipping, cutting, repeating, inserting or nesting its parts, is
sent to a real surface after a greeting, and followed by a PING of its own id. What may come back:
answers to either, then a PONG; or a last word and the end. Nothing at all is a hang.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from protocol import limits
from protocol.frames import MessageKind, encode
from protocol.values import NONE, RecordId
from surfaces.wire import NodeGate, WireSettings, WireSurface
from surfaces.wire.connection import WireConnection
from tests.nodes import PASSWORD as OWNER_PASSWORD
from tests.nodes import running
from tests.surfaces.wire.peers import PASSWORD, USER, FakeNode, Peer, connected, serving, until

HANG_SECONDS = 10.0
"""A frame that is neither answered nor closed by then never will be: far above the second that is
the goal, because a loaded machine must not look like a hang."""
PARALLEL = 8
MARK = 2**52
"""Ids of the PINGs that follow each frame; no mutation of a small id reaches them by chance."""

HELLO = encode(
    MessageKind.HELLO,
    0,
    {"magic": "STORE", "major": 1, "minor": [0, 1], "user": USER, "password": PASSWORD},
)
WATCH = encode(MessageKind.WATCH, 7, {"ns": "shop", "db": "main", "table": "t", "from": 0})
UNWATCH = encode(MessageKind.UNWATCH, 7)
SEEDS = [
    encode(MessageKind.RUN, 1, {"script": "RETURN $v", "params": {"v": 1}, "ns": "a", "db": "b"}),
    encode(
        MessageKind.RUN,
        2,
        {
            "script": "RETURN $v",
            "params": {
                "v": [NONE, None, 1.5, Decimal("1.20"), timedelta(1), RecordId("t", ["a", 1])]
            },
            "timeout": timedelta(seconds=1),
            "stream": False,
        },
    ),
    encode(MessageKind.CANCEL, 1),
    encode(MessageKind.PING, 3),
    encode(
        MessageKind.WATCH,
        6,
        {
            "ns": "shop",
            "db": "main",
            "table": "t",
            "from": 0,
            "actions": ["create"],
            "before": True,
            "where": "a > 1",
            "store": "s",
            "epoch": 1,
        },
    ),
    encode(MessageKind.UNWATCH, 6),
    encode(MessageKind.AUTH, 4, {"user": USER, "password": PASSWORD}),
    encode(MessageKind.BYE, 0),
    HELLO,
    encode(MessageKind.ANSWER, 5, {"results": [], "seq": 1}),
]


def mutate(rng: random.Random, seeds: Sequence[bytes] = SEEDS) -> bytes:
    """One frame, no longer what it was. Mostly the length is made to fit again, so that what is
    inside gets looked at."""
    data = bytearray(rng.choice(seeds)[4:])
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        choice = rng.randrange(7)
        if choice == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif choice == 1 and data:
            data[at % len(data)] = rng.choice((0xC1, 0xC6, 0xC9, 0xDB, 0xDD, 0xDF, 0xFF, 0xD4))
        elif choice == 2:
            data[at:at] = rng.randbytes(rng.randint(1, 9))
        elif choice == 3:
            del data[at : at + rng.randint(1, 9)]
        elif choice == 4:
            data[at:at] = bytes((rng.choice((0x91, 0x81)),)) * rng.choice((3, 70, 2000))
        elif choice == 5:
            data += data[at:]
        else:
            other = rng.choice(seeds)[4:]
            data[at:] = other[rng.randrange(len(other)) :]
    length = len(data)
    if rng.random() < 0.05:
        length = rng.choice((0, 1, length + 1, 2**24, 2**24 + 1, 2**32 - 1))
    return length.to_bytes(4, "big") + bytes(data)


def unfinished(data: bytes) -> bool:
    """Whether more bytes are needed to end the last frame of `data`."""
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if length > limits.FRAME_BYTES:
            return False
        at += 4 + length
    return at > len(data)


class Hang(AssertionError):
    """A frame was neither answered nor its connection closed."""


class Fuzzer:
    """Sends frames on a few connections at once, each replaced when it ends."""

    def __init__(
        self, surface: WireSurface, hello: bytes = HELLO, seeds: Sequence[bytes] = SEEDS
    ) -> None:
        self.surface = surface
        self.hello = hello
        self.seeds = seeds
        self.outcomes: Counter[str] = Counter()

    async def run(self, seed: int, count: int) -> None:
        """Send `count` frames in all."""
        shares = [count // PARALLEL + (n < count % PARALLEL) for n in range(PARALLEL)]
        async with asyncio.TaskGroup() as group:
            for n, share in enumerate(shares):
                group.create_task(self._one(random.Random(f"{seed}-{n}"), share))

    async def _one(self, rng: random.Random, count: int) -> None:
        while count > 0:
            async with connected(self.surface) as peer:
                peer.writer.write(self.hello)
                await peer.must_hear(MessageKind.WELCOME)
                while count > 0:
                    frame = mutate(rng, self.seeds)
                    count -= 1
                    try:
                        async with asyncio.timeout(HANG_SECONDS):
                            goes_on = await self._send(peer, frame, MARK + count)
                    except TimeoutError:
                        raise Hang(frame.hex()) from None
                    if not goes_on:
                        break

    async def _send(self, peer: Peer, frame: bytes, mark: int) -> bool:
        """Whether the connection goes on."""
        peer.writer.write(frame + encode(MessageKind.PING, mark))
        if unfinished(frame):
            # It claims more than it brings: the PING is inside it, and the node rightly waits.
            peer.writer.write_eof()
        try:
            while (message := await peer.hear()) is not None:
                self.outcomes[message.kind.name] += 1
                if message.kind is MessageKind.PONG and message.id == mark:
                    return True
        except ConnectionError:
            self.outcomes["reset"] += 1
            return False
        self.outcomes["closed"] += 1
        return False


async def sweep(seed: int, count: int, figure: Callable[[str, object], None]) -> None:
    node = FakeNode()
    async with serving(node) as surface:
        fuzzer = Fuzzer(surface)
        await fuzzer.run(seed, count)
        async with connected(surface) as peer:
            await peer.sign_in()
            assert (await peer.run(1, "RETURN")).kind is MessageKind.ANSWER
        node.release_all()
        await until(lambda: surface.held == 0 and surface.running == 0)
    shown = ", ".join(f"{name} {n}" for name, n in sorted(fuzzer.outcomes.items()))
    figure("S4 wire frames mutated", f"{count}, 0 crashes, 0 hangs ({shown})")


async def test_mutated_frames(figure: Callable[[str, object], None]) -> None:
    await sweep(1, 1_000, figure)


@pytest.mark.hard
async def test_many_mutated_frames(figure: Callable[[str, object], None]) -> None:
    await sweep(2, 30_000, figure)


async def test_mutated_frames_before_the_real_node(
    tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    """With a token, a feed that is open, and without AUTH: wrong passwords are slowed down on
    purpose."""
    async with running(tmp_path / "store") as here:
        gate = NodeGate(here.node)
        surface = WireSurface(gate, WireSettings("127.0.0.1", 0))
        await surface.start()
        session = await gate.sign_in("root", OWNER_PASSWORD, "here")
        greeting = {"magic": "STORE", "major": 1, "minor": [0, 1], "token": session.token}
        hello = encode(MessageKind.HELLO, 0, greeting)
        seeds = [*SEEDS[:6], WATCH, UNWATCH, hello]
        fuzzer = Fuzzer(surface, hello + WATCH, seeds)
        await here.values("DEFINE TABLE t; CREATE t:1; CREATE t:2")
        await fuzzer.run(3, 600)
        assert fuzzer.outcomes[MessageKind.CHANGE.name] > 100, "hardly a feed was open"
        await until(lambda: surface.held == 0 and surface.running == 0)
        assert len(here.node.open_feeds) == 0
        assert here.node.failure is None
        assert await here.value("RETURN 1") == 1
        await surface.close()
    figure("S4 wire frames mutated, real node", f"600, {dict(fuzzer.outcomes)}")


class TestPlantedFaults:
    """The sweep sees what it is there to see."""

    async def test_a_frame_that_is_swallowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A surface that meets a refused frame with silence hangs its peer."""
        monkeypatch.setattr(f"{__name__}.HANG_SECONDS", 0.5)
        monkeypatch.setattr(WireConnection, "break_off", lambda self, refusal: None)
        async with serving(FakeNode()) as surface:
            with pytest.raises(ExceptionGroup) as found:
                await Fuzzer(surface).run(1, 500)
            assert found.group_contains(Hang)
