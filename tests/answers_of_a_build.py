"""`python -m tests.answers_of_a_build`: what this tree makes of many values and of some simulated
nodes, as one line of JSON. Two builds of the same sources must say the same.

`loaded` says only where the modules come from; `planted` does with one seed as with another, as a
build that answers otherwise would.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from importlib import import_module
from typing import Any
from uuid import UUID

from compiling.modules import MODULES
from protocol import binary, foreign, order, values
from tests.simulation.world import World, WorldShape

VALUES = 4_000
WORLDS = 4
PLAIN_KEYS = 4_096
PLAIN_IDLE = 1.0
"""What a compiled ledger and a compiled door of commits have built in."""


def main(words: list[str]) -> None:
    """Say it."""
    loaded = {name: str(import_module(name).__file__) for name in MODULES}
    told: dict[str, Any] = {"loaded": loaded}
    if words != ["loaded"]:
        seed = 1 if words else 0
        told["count"] = VALUES
        told["values"] = of_values(random.Random(seed))
        shape = WorldShape(apply_keys=PLAIN_KEYS, idle_seconds=PLAIN_IDLE)
        told["worlds"] = [World(seed + nth, shape).run() for nth in range(WORLDS)]
    print(json.dumps(told))


def of_values(chance: random.Random) -> str:
    """A hash of what the encodings, the order and the checks make of many values."""
    told = blake2b(digest_size=16)
    before: Any = None
    for _ in range(VALUES):
        value = made(chance, 0)
        for outcome in outcomes(value, before, chance):
            told.update(f"{outcome!r}\n".encode(errors="backslashreplace"))
        before = value
    return told.hexdigest()


def outcomes(value: Any, before: Any, chance: random.Random) -> Iterator[object]:
    """What is made of a value, and of it beside another; refusals too."""
    yield tried(values.check, value)
    packed = tried(binary.pack, value)
    yield packed
    if isinstance(packed, bytes):
        yield tried(binary.unpack, packed)
        yield tried(foreign.unpack_foreign, packed)
        broken = bytearray(packed)
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        yield tried(foreign.unpack_foreign, bytes(broken[: chance.randint(0, len(broken))]))
    yield tried(order.encode, value)
    for function in (values.compare, values.equal, values.identical):
        yield tried(function, value, before)
    yield tried(values.check_record_id, value)


def tried(function: Callable[..., Any], *given: Any) -> object:
    """What a function answers, or raises."""
    try:
        return function(*given)
    except Exception as error:
        return type(error).__name__, str(error), sorted(getattr(error, "detail", {}).items())


def made(chance: random.Random, depth: int) -> Any:
    """Some value, now and then one that is none."""
    simple: list[Callable[[], Any]] = [
        lambda: values.NONE,
        lambda: None,
        lambda: chance.random() < 0.5,
        lambda: chance.choice((0, -1, 2**53, 2**63 - 1, -(2**63), chance.getrandbits(62))),
        lambda: chance.choice((0.0, -0.0, 1e308, float("inf"), chance.uniform(-1e9, 1e9))),
        lambda: Decimal(chance.randint(-(10**34), 10**34)).scaleb(chance.randint(-60, 60)),
        lambda: "".join(chance.choices("abc\0é𝄞\ud800", (9, 9, 9, 1, 3, 2, 0.1), k=8)),
        lambda: chance.randbytes(chance.randrange(12)),
        lambda: timedelta(microseconds=chance.randint(-(2**62), 2**62)),
        lambda: datetime(1, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(10**11)),
        lambda: UUID(int=chance.getrandbits(128)),
        lambda: values.RecordId("t", chance.choice(("a", 7, UUID(int=5), [1, "b"]))),
        lambda: chance.choice((2**64, object, ("a", "tuple"))),
    ]
    if depth < 4 and chance.random() < 0.4:
        count = chance.choice((0, 1, 3, 20))
        if chance.random() < 0.5:
            return [made(chance, depth + 1) for _ in range(count)]
        return {f"f{chance.randrange(50)}": made(chance, depth + 1) for _ in range(count)}
    return chance.choice(simple)()


if __name__ == "__main__":
    main(sys.argv[1:])
