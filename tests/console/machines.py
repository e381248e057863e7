"""Three machines with a node each, and the console of each: started, ended, and made a cluster of
by what their pages offer."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from bench.ports import free_port
from tests.actors.agreement.etcds import EtcdProcess
from tests.console.conftest import SECONDS, SIZE, PageComplaints, sign_in
from tests.processes import NodeProcess

AWAY = "console: Failed to load resource: net::ERR_"
OPENS = "console: Failed to load resource: the server responded with a status of 503"
"""A node that was just started knows nothing yet."""
OVER = "console: Failed to load resource: the server responded with a status of 401"
"""A session ends with its node."""
READS = "console: Failed to load resource: the server responded with a status of 409"
"""What a node says that takes no changes."""


@dataclass
class ConsoleMachine:
    """One node and its console, always at the same addresses."""

    name: str
    directory: Path
    http: int = field(default_factory=free_port)
    wire: int = field(default_factory=free_port)
    peer: int = field(default_factory=free_port)
    process: NodeProcess | None = None
    reader: threading.Thread | None = None
    page: Page | None = None
    watch: PageComplaints | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.http}"

    def start(self, **more: str) -> None:
        words = ("--http", self.endpoint, "--serve", f"127.0.0.1:{self.wire}",
                 "--peer", f"127.0.0.1:{self.peer}")  # fmt: skip
        found = self.process = NodeProcess(self.directory, words, more).start()
        self.reader = threading.Thread(target=_read, args=(found,), daemon=True)
        self.reader.start()

    def end(self, number: signal.Signals) -> None:
        """Send it a signal that ends it, and wait for that."""
        process, self.process = self.process, None
        if process is not None:
            process.signal(number)
            process.process.wait(SECONDS)
            assert self.reader is not None
            self.reader.join(SECONDS)
            process._stderr.close()

    def tab(self, browser: Browser, at: str = "#/cluster") -> Page:
        """Its console, signed in, at a view. It is one page as long as the test runs."""
        if self.page is None:
            context = browser.new_context(viewport=SIZE)
            context.set_default_timeout(SECONDS * 1000)
            self.watch = PageComplaints(f"http://{self.endpoint}")
            self.watch.allow(AWAY, OVER, OPENS)
            self.watch.follow(context)
            self.page = context.new_page()
            self.page.goto(f"http://{self.endpoint}/{at}")
            sign_in(self.page)
        else:
            self.page.evaluate("(address) => { location.hash = address; }", at)
            again = self.page.get_by_label("Password", exact=True)
            expect(self.page.get_by_role("heading", level=1).or_(again).first).to_be_visible()
            if again.count():
                sign_in(self.page)
        return self.page

    def about(self, what: str = "NODE") -> Any:
        """What it says of itself, or of the cluster."""
        assert self.process is not None
        return self.process.script(f"INFO FOR {what}")["results"][0]["value"]


def _read(process: NodeProcess) -> None:
    """What it logs is read all along: a full pipe would stop it."""
    with suppress(ValueError, OSError):
        for _ in process._stderr:
            pass


@contextmanager
def machines_in(root: Path) -> Iterator[list[ConsoleMachine]]:
    """Three of them, of which none runs; all are ended."""
    found = [ConsoleMachine(f"n{n}", root / f"n{n}") for n in (1, 2, 3)]
    try:
        yield found
    finally:
        for each in found:
            each.end(signal.SIGKILL)
            if each.page is not None:
                each.page.context.close()


def card(page: Page, machine: ConsoleMachine) -> Locator:
    return page.get_by_role("article", name=f"Node {machine.name}")


def own(page: Page) -> Locator:
    return page.get_by_role("article", name="This node")


def declared(page: Page, machines: list[ConsoleMachine]) -> None:
    page.get_by_role("button", name="Declare nodes").click()
    dialog = page.get_by_role("dialog")
    for number, each in enumerate(machines, 1):
        box = dialog.get_by_role("group", name="This node" if number == 1 else f"Node {number}")
        if number == 1:  # what is known of this node stands there
            expect(box.get_by_label("Address for peers")).to_have_value(f"127.0.0.1:{each.peer}")
            continue
        box.get_by_label("Address for peers").fill(f"127.0.0.1:{each.peer}")
        box.get_by_label("Addresses for clients").fill(f"{each.endpoint}\n127.0.0.1:{each.wire}")
    dialog.get_by_role("button", name="Declare all of them").click()
    expect(dialog).to_have_count(0)


def let_in(page: Page, machine: ConsoleMachine) -> None:
    """Make its token, and start it with the line that is shown."""
    line = page.get_by_role("group", name=machine.name)
    line.get_by_role("button", name="Join token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Create").click()
    shown = shlex.split(dialog.locator(".command").inner_text().replace("\\\n", ""))
    name, token = shown[0].split("=", 1)
    assert name == "STORE_JOIN_TOKEN" and f"0.0.0.0:{machine.peer}" in shown
    dialog.get_by_role("button", name="Done").click()
    machine.start(STORE_JOIN_TOKEN=token)
    expect(line).to_contain_text("in sync")


def built(
    page: Page,
    machines: list[ConsoleMachine],
    etcd: EtcdProcess,
    halfway: Callable[[], None] = lambda: None,
) -> None:
    """From one node to a cluster, step by step.

    :param halfway: called when one of the others has joined
    """
    page.get_by_role("link", name="Build a cluster step by step").click()
    declared(page, machines)
    for number, each in enumerate(machines[1:]):
        let_in(page, each)
        if number == 0:
            halfway()
    page.get_by_role("button", name="Define a policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Addresses of etcd").fill(etcd.endpoint)
    dialog.get_by_label("LEASE").fill("2s")
    dialog.get_by_label("BEHIND").fill("1s")
    dialog.get_by_role("button", name="Define").click()
    expect(page.get_by_text("The cluster is complete")).to_be_visible()
    page.get_by_role("link", name="Show the cluster").click()
