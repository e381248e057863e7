"""A page that lives: it shows the orders that are open, and changes by itself when they do.

A mirror keeps them; each browser is told all of them anew by an event stream whenever one of them
has changed. They are few: for many one would send what has changed.
"""

import json
import os
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import storeclient
from storeclient import Client, Mirror

SETTING = (
    "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main; USE shop.main;"
    " DEFINE TABLE IF NOT EXISTS order"
)
OPEN = "shipped = NONE"
PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Orders</title>
<h1>Orders to ship</h1>
<ul></ul>
<script>
  new EventSource("/orders").onmessage = event => {
    document.querySelector("ul").replaceChildren(...JSON.parse(event.data).map(order => {
      const item = document.createElement("li");
      item.textContent = `${order.id}: ${order.count} × ${order.product}`;
      return item;
    }));
  };
</script>
""".encode()


class Page(BaseHTTPRequestHandler):
    """The page, and the stream that it listens to."""

    orders: Mirror

    def do_GET(self) -> None:
        """Answer one or the other."""
        if self.path == "/":
            self.head("text/html; charset=utf-8")
            self.wfile.write(PAGE)
        elif self.path == "/orders":
            self.head("text/event-stream")
            with suppress(ConnectionError, storeclient.Closed):  # the browser has gone, or this has
                self.tell()
        else:
            self.send_error(404)

    def tell(self) -> None:
        """Tell the orders, again and again as they change."""
        while True:
            seq = self.orders.seq
            rows = sorted(self.orders.snapshot().values(), key=lambda row: str(row["id"]))
            text = json.dumps(rows, default=storeclient.json_default)
            self.wfile.write(f"id: {seq}\ndata: {text}\n\n".encode())
            self.orders.changed(seq)

    def head(self, kind: str) -> None:
        """The status line and the fields."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def log_message(self, format: str, *words: object) -> None:
        """Nothing is said of each request."""


def server(orders: Mirror, port: int) -> ThreadingHTTPServer:
    """Serves the page on this machine; port 0 asks the system for a free one."""
    page = type("OrdersPage", (Page,), {"orders": orders})
    found = ThreadingHTTPServer(("127.0.0.1", port), page)
    found.daemon_threads = True
    return found


def main() -> None:
    """Serve the page on port 8080 until interrupted."""
    at, password = os.environ.get("STORE_AT", "127.0.0.1:8001"), os.environ["STORE_PASSWORD"]
    with Client(at, user=os.environ.get("STORE_USER", "root"), password=password) as client:
        client.run(SETTING)
        db = client.database("shop", "main")
        with db.mirror("order", where=OPEN) as orders:
            server(orders, 8080).serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
