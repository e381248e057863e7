"""Load on Redis through redis-py: `load.py PORT`, see bench/peer_clients/README.md."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis

PAGE = 1000


async def rows(redis: Any) -> int:
    """Read the stream of rows page by page, and return how many there are."""
    count, begin = 0, "-"
    while page := await redis.xrange("rows", begin, "+", PAGE):
        count += len([fields for _, fields in page])
        begin = f"({page[-1][0]}"
    return count


async def load(redis: Any, operation: str, depth: int, count: int) -> None:
    """Do the operations."""
    work = {
        "get": lambda n: redis.get(f"k{n % 1000}"),
        "set": lambda n: redis.set(f"k{n % 1000}", n),
        "publish": lambda n: redis.xadd("topic", {"value": n}),
    }
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work[operation](number)

    if operation == "rows":
        found = await rows(redis)
        assert found == count, f"{found} rows"
    else:
        await asyncio.gather(*(worker() for _ in range(depth)))


async def main() -> None:
    """Answer each line."""
    port = int(sys.argv[1])
    pool = BlockingConnectionPool(port=port, max_connections=256, decode_responses=True)
    async with Redis(connection_pool=pool) as redis:
        while line := await asyncio.to_thread(sys.stdin.readline):
            await load(redis, **json.loads(line))
            print("{}", flush=True)


asyncio.run(main())
