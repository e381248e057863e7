"""The same shop over plain HTTP, with nothing but the standard library."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from http.client import HTTPException
from typing import Any

from examples.shop.shop import ORDER, ORDERS_A_MINUTE, SIGN_UP

JSON = {"Content-Type": "application/json"}


class HttpShop:
    """A shop behind `http://host:port`. What it asks may be asked twice, and is in an outage."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self.owner = {"user": user, "password": password}
        self.sign_in()

    def sign_in(self) -> None:
        """Get a token for the password, which would be hashed again at each request."""
        token = self.post("/session", self.owner, JSON)["token"]
        self.head = JSON | {"Authorization": f"Bearer {token}"}

    def post(self, path: str, body: object = None, head: dict[str, str] | None = None) -> Any:
        """The node's answer, waited for while it is away; of a record that is there, none."""
        data = b"" if body is None else json.dumps(body).encode()
        for _ in range(600):
            request = urllib.request.Request(self.url + path, data, head or self.head)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refusal:
                with refusal:
                    error = json.load(refusal)["error"]
                if error["code"] == "AlreadyExists":
                    return None  # done by the first sending, whose answer got lost
                if refusal.code == 401 and head is None:
                    self.sign_in()  # a restart ends all tokens
                elif not error["retry"]:
                    raise RuntimeError(error["code"], error["message"]) from None
            except (OSError, HTTPException):
                pass  # the node is away
            time.sleep(0.1)
        raise TimeoutError(f"{self.url} was away for too long")

    def run(self, script: str, **params: object) -> None:
        """Run a script that creates a record whose id the caller has made."""
        self.post("/script", {"script": script, "params": params, "ns": "shop", "db": "main"})

    def sign_up(self, email: str) -> str:
        """A new customer's record. :raises RuntimeError: `Duplicate`, where the email is taken"""
        customer = f"customer:u'{uuid.uuid4()}'"
        self.run(SIGN_UP, customer={"$rec": customer}, email=email)
        return customer

    def place_order(self, customer: str, product: str, count: int) -> str:
        """Order now; it is on the disk when this returns."""
        counter = f"/kv/shop/main/limits/incr/{urllib.parse.quote(customer)}"
        if self.post(counter)["value"] > ORDERS_A_MINUTE:
            raise PermissionError("too many orders: try again in a minute")
        order = f"order:u'{uuid.uuid4()}'"
        records = {"order": order, "customer": customer, "product": product}
        self.run(ORDER, count=count, **{name: {"$rec": one} for name, one in records.items()})
        return order
