"""Orders under load while the node is killed twice; then every one of them is looked at."""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from examples.shop import shop
from examples.shop.over_http import HttpShop
from storeclient import Client, Database, OutcomeUnknown, RecordId

STOCK = 1_000_000
PRODUCTS = [RecordId("product", name) for name in ("lamp", "chair", "table")]
HOST = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.1"  # beside any node of yours
PASSWORD = secrets.token_hex()


def start(directory: Path) -> subprocess.Popen[bytes]:
    """A node; the clients wait for it."""
    command = [sys.executable, "-m", "surfaces.command.main", str(directory / "data")]
    command += ["--http", f"{HOST}:8000", "--serve", f"{HOST}:8001"]
    owner = {"STORE_USER": "root", "STORE_PASSWORD": PASSWORD}
    with open(directory / "node.log", "ab") as log:
        return subprocess.Popen(command, env=os.environ | owner, stdout=log, stderr=log)


def check(db: Database, acknowledged: list[RecordId]) -> list[str]:
    """What is wrong with the shop."""
    orders = {row["id"]: row for row in db.rows("SELECT id, product, count FROM order")}
    shipped = Counter(row["order"] for row in db.rows("SELECT id, order FROM shipment"))
    faults = [f"{order} was acknowledged and is lost" for order in set(acknowledged) - set(orders)]
    faults += [f"{one} was shipped {shipped[one]} times" for one in orders if shipped[one] != 1]
    for product in db.rows("SELECT id, stock FROM product"):
        sold = sum(row["count"] for row in orders.values() if row["product"] == product["id"])
        if product["stock"] + sold != STOCK:
            faults.append(f"{product['id']}: {product['stock']} left and {sold} sold of {STOCK}")
    return faults


def drill(directory: Path, orders: int, work: Callable[[Database], None] = shop.work) -> list[str]:
    """Place orders, half of them over HTTP, and kill the node twice. Answers what is wrong."""
    node = start(directory)
    client = Client(f"{HOST}:8001", user="root", password=PASSWORD, connect_timeout=60)
    acknowledged: list[RecordId] = []

    def buy() -> None:
        while len(acknowledged) < orders:
            with suppress(OutcomeUnknown):  # of a session or a limit: nothing was ordered
                session = shop.sign_up(db, f"{secrets.token_hex()}@wire")
                acknowledged.append(shop.place_order(db, session, secrets.choice(PRODUCTS), 2))

    def buy_over_http() -> None:
        while len(acknowledged) < orders:
            customer = web.sign_up(f"{secrets.token_hex()}@http")
            order = web.place_order(customer, str(secrets.choice(PRODUCTS)), 1)
            acknowledged.append(RecordId.parse(order))

    with ThreadPoolExecutor(8) as pool:
        try:
            db = shop.open_shop(client)
            web = HttpShop(f"http://{HOST}:8000", "root", PASSWORD)
            for product in PRODUCTS:
                db.run("CREATE $product SET stock = $stock", {"product": product, "stock": STOCK})
            workers = [pool.submit(work, db) for _ in range(2)]
            buyers = [pool.submit(way) for way in (buy, buy_over_http) * 2]
            for kill in (1, 2):
                while len(acknowledged) < orders * kill // 3 and not any(map(Future.done, buyers)):
                    time.sleep(0.01)
                node.kill()  # SIGKILL: no time to say or write anything
                node.wait()
                node = start(directory)
            for buyer in buyers:
                buyer.result()
            shipping = db.topic("orders").group("shipping")
            while shipping.info()["pending"] and not any(map(Future.done, workers)):
                time.sleep(0.01)
            return check(db, acknowledged)
        finally:
            client.close()  # which ends the workers
            node.kill()
            node.wait()


if __name__ == "__main__":
    orders = int(sys.argv[1]) if sys.argv[1:] else 2000
    with tempfile.TemporaryDirectory() as directory:
        faults = drill(Path(directory), orders)
    print("\n".join(faults) or f"{orders} orders, two kills: none lost, each shipped once")
    sys.exit(bool(faults))
