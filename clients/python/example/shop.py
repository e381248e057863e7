"""A small shop: a queue of orders with a pool of workers, a cached page, and a live list.

python clients/python/example/shop.py 127.0.0.1:8001 root PASSWORD [ORDERS]
"""

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass

from storeclient import AsyncClient, AsyncDatabase, AsyncDelivery, RecordId, errors, into

WORKERS = 4


@dataclass
class Item:
    id: RecordId
    name: str
    stock: int


@dataclass
class Order:
    item: RecordId
    count: int


async def define(client: AsyncClient) -> AsyncDatabase:
    await client.run("""
        DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.example;
        USE shop.example; DEFINE TABLE IF NOT EXISTS item; DEFINE TABLE IF NOT EXISTS sold;
        DEFINE SPACE IF NOT EXISTS pages; DEFINE TOPIC IF NOT EXISTS orders;
        DEFINE GROUP IF NOT EXISTS packers ON orders DEADLINE 10s; DELETE sold;
        UPSERT item:1 SET name = 'lamp', stock = 1000;
        UPSERT item:2 SET name = 'desk', stock = 1000
    """)
    return client.database("shop", "example")


async def pack(message: AsyncDelivery) -> bool:
    """Pack an order: the stock, the sale and the acknowledgement change in one transaction."""
    order = into(Order, message.value)
    script = "UPDATE $item SET stock -= $count; CREATE sold SET item = $item, count = $count"
    try:
        return await message.done(script, {"item": order.item, "count": order.count}) is not None
    except errors.Conflict:
        await message.nack(delay=0.05)  # another worker sells the same item
        return False


async def work(db: AsyncDatabase, orders: int) -> None:
    """Have a pool of workers pack orders until there are that many."""
    packed = 0

    async def worker() -> None:
        nonlocal packed
        async for message in messages:
            if await pack(message):
                packed += 1
            if packed >= orders:
                await messages.stop()  # and with it the other workers

    group = db.topic("orders").group("packers")
    async with group.messages(prefetch=2 * WORKERS, extend=True) as messages:
        await asyncio.gather(*(worker() for _ in range(WORKERS)))


async def page(db: AsyncDatabase, id: RecordId) -> str:
    """Return the page of an item, made once a minute."""

    async def load() -> str:
        item = into(Item, await db.query("SELECT * FROM ONLY $id", {"id": id}))
        return f"<h1>{item.name}</h1><p>{item.stock} left</p>"

    return str(await db.cache("pages").get_or_set(f"item/{id}", 60, load))


async def show(db: AsyncDatabase) -> None:
    """Print the list of items whenever it changes."""
    async with db.mirror("item") as items:
        while True:
            seq = items.seq
            print(", ".join(f"{item['name']}: {item['stock']}" for item in items.values()))
            await items.changed(seq)


async def main(
    address: str = "127.0.0.1:8001", user: str = "root", password: str = "", orders: str = "20"
) -> None:
    async with AsyncClient(address, user=user, password=password) as client:
        db = await define(client)
        items = [into(Item, row) for row in await db.query("SELECT * FROM item ORDER BY id")]
        showing = asyncio.create_task(show(db))
        sold = [Order(items[n % len(items)].id, 1) for n in range(int(orders))]
        await db.topic("orders").publish_many(sold)
        await work(db, len(sold))
        for item in items:
            print(await page(db, item.id))
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
        print(await db.query("SELECT VALUE count() FROM ONLY sold GROUP ALL"), "sold")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
