"""Pages of products, kept in a cache that is emptied of what has changed, by a watch of the table.

A reader that has loaded a product just before it changes must not put the old page there after the
new one is known of. So what has changed is not deleted: its key says which commit changed it, and a
page is put only where the key still says what its reader saw.
"""

import os
from contextlib import suppress

from storeclient import NONE, Client, Database, Position, RecordId, errors

SETTING = (
    "DEFINE NAMESPACE IF NOT EXISTS shop; DEFINE DATABASE IF NOT EXISTS shop.main; USE shop.main;"
    " DEFINE TABLE IF NOT EXISTS product; DEFINE SPACE IF NOT EXISTS pages"
)
PAGE_SECONDS = 3600.0
CHANGED_SECONDS = 60.0
"""Longer than any reader takes to make a page."""
WATCHED = "watched"
"""The key that says where the watch has come to."""


def page(db: Database, product: RecordId) -> str:
    """The page of a product."""
    cache, key = db.cache("pages"), str(product)
    found = cache.get(key, NONE)
    if found is not NONE and "page" in found:
        return str(found["page"])
    rows = db.query("SELECT name, price FROM $product", {"product": product})
    text = f"<h1>{rows[0]['name']}</h1><p>{rows[0]['price']}</p>" if rows else "<h1>Sold out</h1>"
    cache.compare_and_set(key, found, {"page": text}, PAGE_SECONDS)
    return text


class Emptier:
    """Empties the cache, until it is stopped."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.cache = db.cache("pages")
        kept = self.cache.get(WATCHED)
        self.watch = db.watch("product", Position(**kept) if kept else self.all_anew())

    def run(self) -> None:
        """Follow the table. What can't be told any more may be anything: then all goes."""
        while True:
            try:
                return self.follow()
            except (errors.LogPruned, errors.Diverged, errors.Unknown):
                self.watch = self.db.watch("product", self.all_anew())

    def follow(self) -> None:
        """Empty the cache of what changes."""
        for commit in self.watch.commits():
            self.keep(self.watch.position)  # of the commits before: they are dealt with
            for change in commit.changes:
                self.cache.set(str(change.id), {"changed": commit.seq}, CHANGED_SECONDS)

    def all_anew(self) -> Position:
        """Empty it of everything; what has to be watched from then on."""
        position = self.db.run("SELECT * FROM product LIMIT 1").position
        after = ""
        while keys := self.cache.keys("product:", after):
            for key in keys:
                self.cache.set(key, {"changed": position.seq}, CHANGED_SECONDS)
            after = keys[-1]
        return position

    def keep(self, position: Position | None) -> None:
        """Where to go on after a restart."""
        if position is not None:
            kept = {"seq": position.seq, "store": position.store, "epoch": position.epoch}
            self.cache.set(WATCHED, kept)


def main() -> None:
    """Empty the cache of the node at STORE_AT until it is interrupted."""
    at, password = os.environ.get("STORE_AT", "127.0.0.1:8001"), os.environ["STORE_PASSWORD"]
    with Client(at, user=os.environ.get("STORE_USER", "root"), password=password) as client:
        client.run(SETTING)
        Emptier(client.database("shop", "main")).run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
