"""An order shop on the Python client: sign-up, sessions, a rate limit, orders, a worker."""

import os
import secrets
import sys
import uuid
from contextlib import suppress

from storeclient import Client, Database, RecordId, errors

ORDERS_A_MINUTE = 10
SCHEMA = """
    DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main; USE shop.main;
    DEFINE TABLE IF NOT EXISTS customer;
    DEFINE FIELD IF NOT EXISTS email ON customer TYPE string ASSERT $value ~ '^[^@ ]+@[^@ ]+$';
    DEFINE INDEX IF NOT EXISTS by_email ON customer FIELDS email UNIQUE;
    DEFINE TABLE IF NOT EXISTS product;
    DEFINE FIELD IF NOT EXISTS stock ON product TYPE int ASSERT $value >= 0;
    DEFINE TABLE IF NOT EXISTS order;
    DEFINE FIELD IF NOT EXISTS count ON order TYPE int ASSERT $value > 0;
    DEFINE TABLE IF NOT EXISTS shipment;
    DEFINE TOPIC IF NOT EXISTS orders;
    DEFINE GROUP IF NOT EXISTS shipping ON orders DEADLINE 2s;
    DEFINE SPACE IF NOT EXISTS sessions EXPIRE 30m;
    DEFINE SPACE IF NOT EXISTS limits EXPIRE 1m;
"""
SIGN_UP = "CREATE $customer SET email = $email, since = time::now()"
# One transaction. CREATE is first, so that an order that is sent twice is known before its stock.
ORDER = """
    BEGIN;
    CREATE $order SET customer = $customer, product = $product, count = $count, state = 'placed';
    LET $found = UPDATE $product SET stock -= $count;
    IF $found = [] { THROW 'no such product' };
    PUBLISH INTO orders VALUE { order: $order };
    COMMIT
"""
SHIP = "CREATE shipment SET order = $order; UPDATE $order SET state = 'shipped'"


def open_shop(client: Client) -> Database:
    """The shop's database, defined where it is not yet."""
    client.run(SCHEMA)
    return client.database("shop", "main")


def sign_up(db: Database, email: str) -> str:
    """A new customer's session. :raises errors.Duplicate: the email is taken"""
    customer = RecordId("customer", uuid.uuid4())
    # Sent again when the connection breaks. The id is ours alone: if it is there, that was us.
    with suppress(errors.AlreadyExists):
        db.run(SIGN_UP, {"customer": customer, "email": email}, repeatable=True)
    session = secrets.token_urlsafe()
    db.cache("sessions").set(session, customer, ttl=1800)
    return session


def place_order(db: Database, session: str, product: RecordId, count: int) -> RecordId:
    """Order now; it is on the disk when this returns. :raises errors.AssertFailed: sold out"""
    customer = db.cache("sessions").get(session)
    if customer is None:
        raise PermissionError("the session is over: sign in again")
    # The first INCR makes the key, which ends after the minute that `limits` gives it.
    if db.cache("limits").incr(str(customer)) > ORDERS_A_MINUTE:
        raise PermissionError("too many orders: try again in a minute")
    order = RecordId("order", uuid.uuid4())
    given = {"order": order, "customer": customer, "product": product, "count": count}
    with suppress(errors.AlreadyExists):  # sent twice, it is placed once
        db.run(ORDER, given, repeatable=True)
    return order


def work(db: Database) -> None:
    """Ship orders for ever, each exactly once, however many workers there are and whatever dies."""
    shipping = db.topic("orders").group("shipping")
    with shipping.messages(prefetch=8) as messages:
        for message in messages:
            # The effect and the acknowledgement in one transaction: both are there, or neither.
            shipping.done(message, SHIP, {"order": message.value["order"]})


if __name__ == "__main__":
    address = sys.argv[1] if sys.argv[1:] else "127.0.0.1:8001"
    with Client(address, user="root", password=os.environ["STORE_PASSWORD"]) as client:
        db = open_shop(client)
        db.run("UPSERT product:lamp SET stock = 100")
        session = sign_up(db, f"{secrets.token_hex(4)}@example.org")
        print("placed", place_order(db, session, RecordId("product", "lamp"), 2), flush=True)
        work(db)  # for ever
