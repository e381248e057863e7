"""A full-text index of articles in SQLite (FTS5), fed by a watch of the table.

Where the watch has come to is kept in the transaction that writes the index: whatever is killed
when, the index has every commit exactly once.
"""

import os
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

from storeclient import Client, Commit, Database, Position, errors

SETTING = (
    "DEFINE NAMESPACE IF NOT EXISTS press; DEFINE DATABASE IF NOT EXISTS press.main;"
    " USE press.main; DEFINE TABLE IF NOT EXISTS article"
)
TABLES = """
CREATE VIRTUAL TABLE IF NOT EXISTS article USING fts5(id UNINDEXED, title, text);
CREATE TABLE IF NOT EXISTS watched (seq INTEGER, store TEXT, epoch INTEGER);
"""


def find(path: str, words: str) -> list[str]:
    """Records whose title or text has the words, the best first."""
    with closing(sqlite3.connect(path)) as sql:
        found = sql.execute("SELECT id FROM article WHERE article MATCH ? ORDER BY rank", (words,))
        return [id for (id,) in found]


class Index:
    """The index in a file, and the watch that feeds it."""

    def __init__(self, db: Database, path: str) -> None:
        self.db = db
        self.sql = sqlite3.connect(path)
        self.sql.executescript(TABLES)
        kept = self.sql.execute("SELECT seq, store, epoch FROM watched").fetchone()
        self.watch = db.watch("article", Position(*kept) if kept else self.read_all())

    def run(self) -> None:
        """Follow the table until somebody stops the watch."""
        while True:
            try:
                for commit in self.watch.commits():
                    self.write(commit)
                return
            except (errors.LogPruned, errors.Diverged, errors.Unknown):
                self.watch = self.db.watch("article", self.read_all())

    def write(self, commit: Commit) -> None:
        """Index what a commit has changed, all or nothing."""
        with self.sql:
            for change in commit.changes:
                self.sql.execute("DELETE FROM article WHERE id = ?", (str(change.id),))
                if change.value is not None:
                    self.add([change.value])
            self.keep(commit.position)

    def read_all(self) -> Position:
        """Index all there is at one moment; what has to be watched from then on."""
        with self.db.moment() as then, self.sql:
            self.sql.execute("DELETE FROM article")
            self.add(then.rows("SELECT * FROM article"))
            self.keep(then.position)
            return then.position

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Index rows that are not there."""
        self.sql.executemany(
            "INSERT INTO article VALUES (?, ?, ?)",
            ((str(row["id"]), row.get("title"), row.get("text")) for row in rows),
        )

    def keep(self, position: Position) -> None:
        """All up to there is in the index."""
        kept = (position.seq, position.store, position.epoch)
        self.sql.execute("DELETE FROM watched")
        self.sql.execute("INSERT INTO watched VALUES (?, ?, ?)", kept)


def main() -> None:
    """Feed the index in the file that is named, until interrupted."""
    at, password = os.environ.get("STORE_AT", "127.0.0.1:8001"), os.environ["STORE_PASSWORD"]
    with Client(at, user=os.environ.get("STORE_USER", "root"), password=password) as client:
        client.run(SETTING)
        Index(client.database("press", "main"), sys.argv[1]).run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
