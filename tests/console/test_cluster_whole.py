"""A cluster of three nodes with etcd, built, broken, moved and thinned out with the console alone:
what is typed elsewhere is the line that the page shows."""

from __future__ import annotations

import shlex
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.actors.agreement.etcds import EtcdProcess, etcd_process, needs_etcd
from tests.console.conftest import SECONDS, SIZE, Watch, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess

pytestmark = [pytest.mark.hard, needs_etcd]

AWAY = "console: Failed to load resource: net::ERR_"
OVER = "console: Failed to load resource: the server responded with a status of 401"
"""A session ends with its node."""
READS = "console: Failed to load resource: the server responded with a status of 409"
"""What a node says that takes no changes."""
WHOLE_SECONDS = 600


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@dataclass
class Machine:
    """One node and its console, always at the same addresses."""

    name: str
    directory: Path
    http: int = field(default_factory=_port)
    wire: int = field(default_factory=_port)
    peer: int = field(default_factory=_port)
    process: NodeProcess | None = None
    reader: threading.Thread | None = None
    page: Page | None = None
    watch: Watch | None = None

    @property
    def endpoint(self) -> str:
        """Where its console is."""
        return f"127.0.0.1:{self.http}"

    def start(self, **more: str) -> None:
        """Start it."""
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
            self.watch = Watch(f"http://{self.endpoint}")
            self.watch.allow(AWAY, OVER)
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


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    """Three of them, of which none runs."""
    found = [Machine(f"n{n}", tmp_path / f"n{n}") for n in (1, 2, 3)]
    yield found
    for each in found:
        each.end(signal.SIGKILL)
        if each.page is not None:
            each.page.context.close()
    watched = [each.watch for each in found if each.watch is not None]
    assert [one.unexpected() for one in watched] == [[] for _ in watched]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """What they agree in."""
    with etcd_process(tmp_path / "etcd") as found:
        yield found


def card(page: Page, machine: Machine) -> Locator:
    """What a page shows of a node that is not its own."""
    return page.get_by_role("article", name=f"Node {machine.name}")


def own(page: Page) -> Locator:
    """What a page shows of its own node."""
    return page.get_by_role("article", name="This node")


def declared(page: Page, machines: list[Machine]) -> None:
    """Declare them all, in one transaction."""
    page.get_by_role("button", name="Declare nodes").click()
    dialog = page.get_by_role("dialog")
    for number, each in enumerate(machines, 1):
        box = dialog.get_by_role("group", name="This node" if number == 1 else f"Node {number}")
        if number == 1:  # what is known of this node stands there
            expect(box.get_by_label("Peers reach it at")).to_have_value(f"127.0.0.1:{each.peer}")
            continue
        box.get_by_label("Peers reach it at").fill(f"127.0.0.1:{each.peer}")
        box.get_by_label("Clients reach it at").fill(f"{each.endpoint}\n127.0.0.1:{each.wire}")
    dialog.get_by_role("button", name="Declare all of them").click()
    expect(dialog).to_have_count(0)


def let_in(page: Page, machine: Machine) -> None:
    """Make its token, and start it with the line that is shown."""
    line = page.get_by_role("group", name=machine.name)
    line.get_by_role("button", name="Join token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Make it").click()
    shown = shlex.split(dialog.locator(".command").inner_text().replace("\\\n", ""))
    name, token = shown[0].split("=", 1)
    assert name == "STORE_JOIN_TOKEN" and f":{machine.peer}" in shown
    dialog.get_by_role("button", name="I have it").click()
    machine.start(STORE_JOIN_TOKEN=token)
    expect(line).to_contain_text("in sync")


def built(page: Page, machines: list[Machine], etcd: EtcdProcess) -> None:
    """From one node to a cluster, step by step."""
    page.get_by_role("link", name="Build a cluster step by step").click()
    declared(page, machines)
    for each in machines[1:]:
        let_in(page, each)
    page.get_by_role("button", name="Define a policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Where etcd is reached").fill(etcd.endpoint)
    dialog.get_by_label("LEASE").fill("2s")
    dialog.get_by_label("BEHIND").fill("1s")
    dialog.get_by_role("button", name="Put it into force").click()
    expect(page.get_by_text("The cluster stands")).to_be_visible()
    page.get_by_role("link", name="Look at it").click()


def leads(machines: list[Machine], browser: Browser) -> Machine:
    """Who leads by now, as a page of one that runs names it."""
    page = next(each for each in machines if each.process is not None).tab(browser)
    chip = page.get_by_role("article").filter(has=page.get_by_text("leads", exact=True))
    expect(chip).to_have_count(1)
    name = chip.get_by_role("heading").inner_text()
    return next(each for each in machines if each.name == name)


@pytest.mark.timeout(WHOLE_SECONDS)
def test_a_cluster_is_built_broken_moved_and_thinned_out(
    machines: list[Machine], etcd: EtcdProcess, browser: Browser
) -> None:
    one, two, three = machines
    one.start()
    page = one.tab(browser)
    expect(page.get_by_text("This node is alone")).to_be_visible()
    built(page, machines, etcd)
    _is_whole(one, machines, browser)
    _a_follower_names_who_leads(one, two, browser)
    _the_leader_dies(one, [two, three], browser)
    leader = leads([two, three], browser)
    one.start()
    _is_whole(leader, machines, browser)
    _row_is_amended(leader, one, browser)
    follower = three if leader is two else two
    _the_lead_moves(leader, follower, machines, browser)
    _one_is_shut_out(follower, one, [follower, leader], browser)


def _is_whole(leader: Machine, machines: list[Machine], browser: Browser) -> None:
    """The map on the node that leads: all follow, and any of them may take over."""
    page = leader.tab(browser)
    expect(own(page)).to_contain_text("leads")
    for each in machines:
        if each is not leader:
            expect(card(page, each)).to_contain_text("lacks nothing")
            expect(card(page, each)).to_contain_text("in the set: it may take over")
            expect(card(page, each)).to_contain_text("days left")
    region = page.get_by_role("region", name="Who leads")
    expect(region).to_contain_text("2 attached, none of them behind")
    expect(region).to_contain_text("s left; it is renewed when a third is over")
    assert leader.about()["life"] == "leading"
    assert findings(page) == []
    assert overflow(page) == []


def _a_follower_names_who_leads(leader: Machine, other: Machine, browser: Browser) -> None:
    page = other.tab(browser)
    expect(page.get_by_text(f"This node reads only: {leader.name} leads")).to_be_visible()
    expect(own(page)).to_contain_text("in sync")
    expect(page.get_by_role("button", name="Change the policy")).to_have_count(0)
    assert findings(page) == []
    assert overflow(page) == []
    # A write is refused where it was tried, and the refusal leads to who takes it.
    assert other.watch is not None
    other.watch.allow(READS)
    page.get_by_role("link", name="Run", exact=True).click()
    page.get_by_role("textbox", name="Script").fill("DEFINE NAMESPACE shop")
    page.keyboard.press("Escape")  # what it would complete
    page.get_by_role("button", name="Run", exact=True).click()
    refused = page.get_by_role("alert")
    expect(refused).to_contain_text("NotWritable")
    link = refused.get_by_role("link", name=leader.endpoint)
    expect(link).to_have_attribute("href", f"http://{leader.endpoint}/#/run")


def _the_leader_dies(leader: Machine, others: list[Machine], browser: Browser) -> None:
    """A page that is open on a follower names the new one by itself."""
    page = others[0].tab(browser)
    expect(card(page, leader)).to_contain_text("leads")
    leader.end(signal.SIGKILL)
    new = own(page).or_(card(page, others[1])).filter(has=page.get_by_text("leads", exact=True))
    expect(new).to_have_count(1)
    expect(card(page, leader)).not_to_contain_text("leads")


def _row_is_amended(leader: Machine, other: Machine, browser: Browser) -> None:
    page = leader.tab(browser)
    card(page, other).get_by_role("button", name="Amend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Clients reach it at").fill(other.endpoint)
    expect(dialog.locator(".composed pre")).to_have_text(
        f"ALTER REPLICA `{other.name}` SET ENDPOINTS '{other.endpoint}'"
    )
    dialog.get_by_role("button", name="Amend it").click()
    expect(card(page, other)).not_to_contain_text(f"127.0.0.1:{other.wire}")
    rows = {row["name"]: row for row in leader.about("CLUSTER")["replicas"]}
    assert rows[other.name]["endpoints"] == [other.endpoint]


def _the_lead_moves(
    leader: Machine, to: Machine, machines: list[Machine], browser: Browser
) -> None:
    """By hand: with PROMOTE MANUAL the node that leads is stopped, and another is told to lead."""
    page = leader.tab(browser)
    page.get_by_role("button", name="Change the policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("PROMOTE").select_option("MANUAL")
    dialog.get_by_role("button", name="Put it into force").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("region", name="Failover")).to_contain_text("Take the lead")
    page = to.tab(browser)
    # As long as somebody leads it is refused, and says who.
    assert to.watch is not None
    to.watch.allow(READS)
    page.get_by_text("Moving the lead").click()
    page.get_by_role("button", name="Take the lead").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Take it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("a lead is taken when nobody has it")
    leader.end(signal.SIGTERM)
    expect(page.get_by_text(f"{leader.name} is not heard of").first).to_be_visible()
    dialog.get_by_role("button", name="Take it").click()
    expect(dialog).to_have_count(0)
    expect(own(page)).to_contain_text("leads")
    leader.start()
    _is_whole(to, machines, browser)


def _one_is_shut_out(leader: Machine, gone: Machine, left: list[Machine], browser: Browser) -> None:
    """Its certificate is revoked, and its row is dropped."""
    page = leader.tab(browser)
    print_of = next(
        one["certificate"] for one in leader.about("CLUSTER")["trusted"]
        if one["replica"] == gone.name
    )  # fmt: skip
    page.get_by_role("button", name=f"Revoke {print_of[:8]}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("first eight digits").fill(print_of[:8])
    dialog.get_by_label("Reason").fill("its disk was sold")
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("region", name="Revoked certificates")).to_contain_text(
        "its disk was sold"
    )
    expect(card(page, gone)).to_contain_text("not attached")
    card(page, gone).get_by_role("button", name="Drop").click()
    dialog.get_by_label("Type the name again").fill(gone.name)
    dialog.get_by_role("button", name="Drop").click()
    expect(card(page, gone)).to_have_count(0)
    told = leader.about("CLUSTER")
    assert {row["name"] for row in told["replicas"]} == {each.name for each in left}
    expect(page.get_by_role("region", name="Failover")).to_contain_text(
        "With 2 nodes each of them is needed"
    )
