"""A search page: cities as one types, with room for a typo, matches marked, large cities first.

The cities are those of docs/search-page.md, whose first two steps make the table and its index.
"""

import json
import os
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from storeclient import Client, Database, search

FIND = """
    SELECT search::highlight(name) AS name, country FROM city WHERE [name, also] @@ $query
    ORDER BY search::score() * math::pow(population, 0.3) DESC LIMIT 10"""
MOST = 100
"""Characters of a search box."""
PAGE = b"""<!doctype html>
<meta charset="utf-8">
<title>Cities</title>
<input type="search" maxlength="100" placeholder="City" aria-label="City" autofocus>
<ol></ol>
<script>
  const box = document.querySelector("input");
  box.addEventListener("input", async () => {
    const typed = box.value;
    const answer = await fetch(`/find?text=${encodeURIComponent(typed)}`);
    const cities = await answer.json();
    if (box.value !== typed) return; // a later answer is on its way
    document.querySelector("ol").replaceChildren(...cities.map(city => {
      const item = document.createElement("li");
      item.innerHTML = city.name; // escaped by the node, but for the marks
      item.append(`, ${city.country}`);
      return item;
    }));
  });
</script>
"""


def find(db: Database, text: str) -> list[dict[str, Any]]:
    """Return the cities that somebody may mean, the likeliest first."""
    query = search.any(search.boost(text, 4), search.prefix(text), search.fuzzy(text))
    found: list[dict[str, Any]] = db.query(FIND, {"query": query})
    return found


class Page(BaseHTTPRequestHandler):
    """The page, and what it asks as one types."""

    db: Database

    def do_GET(self) -> None:
        """Answer one or the other."""
        address = urlsplit(self.path)
        if address.path == "/":
            self.answer("text/html; charset=utf-8", PAGE)
        elif address.path == "/find":
            text = parse_qs(address.query).get("text", [""])[0][:MOST]
            self.answer("application/json", json.dumps(find(self.db, text)).encode())
        else:
            self.send_error(404)

    def answer(self, kind: str, body: bytes) -> None:
        """Send a whole answer."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:
        """Nothing is said of each request."""


def server(db: Database, port: int) -> ThreadingHTTPServer:
    """Serves the page on this machine; port 0 asks the system for a free one."""
    found = ThreadingHTTPServer(("127.0.0.1", port), type("CitiesPage", (Page,), {"db": db}))
    found.daemon_threads = True
    return found


def main() -> None:
    """Serve the page on port 8080 until interrupted."""
    at, password = os.environ.get("STORE_AT", "127.0.0.1:8001"), os.environ["STORE_PASSWORD"]
    with Client(at, user=os.environ.get("STORE_USER", "root"), password=password) as client:
        server(client.database("shop", "main"), 8080).serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
