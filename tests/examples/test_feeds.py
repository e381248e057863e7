"""The programs of examples/feeds/ do what they say, as their page says to run them."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.feeds import cache, page, search
from storeclient import NONE, Client, Database, RecordId
from tests.architecture.sources import ROOT
from tests.processes import PASSWORD, USER, NodeProcess, environment, serving

SECONDS = 60


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with serving(tmp_path / "store") as node:
        yield node


def at(node: NodeProcess) -> str:
    return "{}:{}".format(*node.address("wire"))


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(at(node), user=USER, password=PASSWORD) as client:
        yield client


@contextmanager
def program(name: str, node: NodeProcess, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of them, in a process of its own."""
    ran = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", f"examples.feeds.{name}", *words],
        env=environment(PYTHONPATH=f"{ROOT}:{ROOT / 'clients' / 'python'}", STORE_AT=at(node)),
        cwd=ROOT,
    )
    try:
        yield ran
        assert ran.poll() is None, "it has ended"
    finally:
        ran.kill()
        ran.wait()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class TestCache:
    def shop(self, client: Client) -> Database:
        client.run(cache.SETTING)
        return client.database("shop", "main")

    def test_what_changes_is_shown_though_the_program_was_killed(
        self, node: NodeProcess, client: Client
    ) -> None:
        db, lamp = self.shop(client), RecordId("product", "lamp")
        db.run("CREATE product:lamp SET name = 'Lamp', price = 1")
        assert cache.page(db, lamp) == "<h1>Lamp</h1><p>1</p>"
        pages = db.cache("pages")
        with program("cache", node):
            until(lambda: "changed" in pages.get(str(lamp)))
            assert cache.page(db, lamp) == "<h1>Lamp</h1><p>1</p>"
            assert "page" in pages.get(str(lamp))
            db.run("UPDATE product:lamp SET price = 2")
            until(lambda: cache.page(db, lamp) == "<h1>Lamp</h1><p>2</p>")
            db.run("UPDATE product:lamp SET price = 3")  # where that is kept: the position before
            until(lambda: pages.get(cache.WATCHED) is not None)
        db.run("UPDATE product:lamp SET price = 4; DELETE product:lamp")
        with program("cache", node):
            until(lambda: cache.page(db, lamp) == "<h1>Sold out</h1>")

    def test_a_late_reader_does_not_put_back_what_is_old(self, client: Client) -> None:
        db, lamp = self.shop(client), RecordId("product", "lamp")
        db.run("CREATE product:lamp SET name = 'Lamp', price = 1")
        emptier = cache.Emptier(db)
        thread = threading.Thread(target=emptier.run)
        thread.start()
        query = Database.query

        def late(self: Database, *words: object, **more: object) -> object:
            """Between a reader's load and its store, the product changes."""
            found = query(self, *words, **more)  # type: ignore[arg-type]
            db.run("UPDATE product:lamp SET price = 2")
            until(lambda: db.cache("pages").get(str(lamp), NONE) is not NONE)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Database, "query", late)
            assert cache.page(db, lamp) == "<h1>Lamp</h1><p>1</p>"
        assert cache.page(db, lamp) == "<h1>Lamp</h1><p>2</p>"
        emptier.watch.stop()
        thread.join()


class TestSearch:
    def test_the_index_follows_though_the_program_was_killed(
        self, node: NodeProcess, client: Client, tmp_path: Path
    ) -> None:
        path = str(tmp_path / "articles.db")
        client.run(search.SETTING)
        db = client.database("press", "main")
        db.run("CREATE article:1 SET title = 'Rain', text = 'It rains in the north'")
        with program("search", node, path):
            until(lambda: Path(path).exists() and self.found(path, "rains") == ["article:1"])
            db.run("CREATE article:2 SET title = 'Sun', text = 'The north is dry'")
            until(lambda: self.found(path, "north") == ["article:1", "article:2"])
        db.run("UPDATE article:1 SET text = 'It snows'; DELETE article:2")
        db.run("CREATE article:3 SET title = 'North'")
        with program("search", node, path):
            until(lambda: self.found(path, "north") == ["article:3"])
            assert self.found(path, "snows") == ["article:1"]
            db.run("BEGIN; DROP TABLE article; DEFINE TABLE article; COMMIT")
            db.run("CREATE article:4 SET title = 'Snows'")
            until(lambda: self.found(path, "snows") == ["article:4"])
            assert self.found(path, "north") == []

    def found(self, path: str, words: str) -> list[str]:
        try:
            return sorted(search.find(path, words))
        except sqlite3.OperationalError:
            return []  # it is being made

    def test_each_commit_is_there_once_and_its_position_with_it(
        self, client: Client, tmp_path: Path
    ) -> None:
        path = str(tmp_path / "articles.db")
        client.run(search.SETTING)
        db = client.database("press", "main")
        index = search.Index(db, path)
        seq = db.run("CREATE article:1 SET title = 'One'").seq
        commit = next(iter(index.watch.commits()))
        index.write(commit)
        index.write(commit)
        assert search.find(path, "one") == ["article:1"]
        again = search.Index(db, path)
        assert again.watch.position is not None
        assert (again.watch.position.seq, again.watch.position.store is None) == (seq, False)


@pytest.mark.parametrize("name", ["cache", "search"])
def test_a_program_that_is_interrupted_ends_without_complaint(
    name: str, node: NodeProcess, client: Client, tmp_path: Path
) -> None:
    ran = subprocess.Popen(
        [sys.executable, "-m", f"examples.feeds.{name}", str(tmp_path / "kept.db")],
        env=environment(PYTHONPATH=f"{ROOT}:{ROOT / 'clients' / 'python'}", STORE_AT=at(node)),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        # As on a terminal: whoever runs tests in the background may have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until(lambda: any("WATCH" in str(one) for one in client.query("INFO FOR RUNNING")))
        ran.send_signal(signal.SIGINT)
        assert ran.communicate(timeout=SECONDS)[1] == b""
        assert ran.returncode == 0
    finally:
        ran.kill()
        ran.communicate()


class TestPage:
    def test_a_browser_is_told_of_each_change(self, client: Client) -> None:
        client.run(page.SETTING)
        db = client.database("shop", "main")
        db.run("CREATE order:1 SET product = 'lamp', count = 2")
        with db.mirror("order", where=page.OPEN) as orders:
            server = page.server(orders, 0)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            host = f"http://127.0.0.1:{server.server_address[1]}"
            with urllib.request.urlopen(f"{host}/", timeout=SECONDS) as shown:
                assert b"EventSource" in shown.read()
            with urllib.request.urlopen(f"{host}/orders", timeout=SECONDS) as events:
                assert self.told(events) == {"order:1": 2}
                db.run("CREATE order:2 SET product = 'desk', count = 1")
                assert self.told(events) == {"order:1": 2, "order:2": 1}
                db.run("UPDATE order:1 SET shipped = time::now()")
                assert self.told(events) == {"order:2": 1}
            server.shutdown()
            server.server_close()
            thread.join()

    def told(self, events: object) -> dict[str, int]:
        """What the stream says next of the orders."""
        while not (line := events.readline()).startswith(b"data: "):  # type: ignore[attr-defined]
            assert line, "the stream has ended"
        rows = json.loads(line.removeprefix(b"data: "))
        return {row["id"]: row["count"] for row in rows}
