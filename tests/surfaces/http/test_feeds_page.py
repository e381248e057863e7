"""A page in a real browser follows a table live: it signs in, survives a restart of the node, and
goes on from where it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.ports import free_port
from tests.browsers import CHROMIUM, launched
from tests.processes import PASSWORD, USER, NodeProcess

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium")


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def pages() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(HERE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


def signed_in(page: Page, address: str, pages: str) -> None:
    page.goto(f"{pages}/live.html#{address}")
    page.fill("#user", USER)
    page.fill("#password", PASSWORD)
    page.click("button")


def test_a_page_follows_a_table_through_a_restart(
    tmp_path: Path, browser: Browser, pages: str
) -> None:
    port = free_port()
    words = ("--http", f"127.0.0.1:{port}", "--serve", "127.0.0.1:0")
    place = {"ns": "a", "db": "b"}
    node = NodeProcess(tmp_path / "store", words).start()
    try:
        node.script(
            f"DEFINE NODE ROLES serving, writable ORIGINS '{pages}'; DEFINE NAMESPACE a;"
            " DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t; CREATE t:1 SET n = 1"
        )
        page = browser.new_page()
        signed_in(page, f"127.0.0.1:{port}", pages)
        expect(page.locator("#state")).to_have_text("live as store.watch.v1")
        expect(page.locator("li")).to_have_text(["t:1 1"])
        node.script("BEGIN; CREATE t:2 SET n = 2; UPDATE t:1 SET n = 11; COMMIT", **place)
        expect(page.locator("li")).to_have_text(["t:1 11", "t:2 2"])
        node.kill()
        expect(page.locator("#state")).to_have_text("away")
        node = NodeProcess(tmp_path / "store", words).start()
        # Sessions end with the process: the page is told so, where it can read it, and signs in.
        expect(page.locator("#state")).to_have_text("SessionEnded: sign in again")
        node.script("DELETE t:2; CREATE t:3 SET n = 3", **place)
        page.click("button")
        expect(page.locator("#state")).to_have_text("live as store.watch.v1")
        expect(page.locator("li")).to_have_text(["t:1 11", "t:3 3"])
        node.script("CREATE t:4 SET n = 4", **place)
        expect(page.locator("li")).to_have_text(["t:1 11", "t:3 3", "t:4 4"])
    finally:
        node.end()


def test_a_page_of_a_foreign_site_gets_no_feed(
    tmp_path: Path, browser: Browser, pages: str
) -> None:
    node = NodeProcess(tmp_path / "store").start()
    try:
        host, port = node.address("http")
        body = {"user": USER, "password": PASSWORD}
        token = node.request("POST", "/session", body, user=None).json["token"]
        page = browser.new_page()
        page.goto(f"{pages}/live.html#x")
        code = page.evaluate(
            """([at, token]) => new Promise((done) => {
                const socket = new WebSocket(at, ["store.watch.v1", `store.bearer.${token}`]);
                socket.onopen = () => done("open");
                socket.onclose = ({code}) => done(code);
            })""",
            [f"ws://{host}:{port}/watch?ns=a&db=b&table=t", token],
        )
        assert code == 1006
    finally:
        node.end()
