"""A cluster of three nodes with etcd, built, broken, moved and thinned out with the console alone:
what is typed elsewhere is the line that the page shows."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import TimeoutError as PageTimeout

from tests.actors.agreement.etcds import EtcdProcess, etcd_process, needs_etcd
from tests.console.machines import READS, ConsoleMachine, built, card, machines_in, own
from tests.console.seeing import findings, overflow

pytestmark = [pytest.mark.hard, needs_etcd]

WHOLE_SECONDS = 600
LEASE_SECONDS = 30
"""A lease, and some time to take the lead in."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[ConsoleMachine]]:
    with machines_in(tmp_path) as found:
        yield found
    watched = [each.watch for each in found if each.watch is not None]
    assert [one.unexpected() for one in watched] == [[] for _ in watched]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """What they agree in."""
    with etcd_process(tmp_path / "etcd") as found:
        yield found


def leads(machines: list[ConsoleMachine], browser: Browser) -> ConsoleMachine:
    """Who leads by now, as a page of one that runs names it."""
    page = next(each for each in machines if each.process is not None).tab(browser)
    chip = page.get_by_role("article").filter(has=page.get_by_text("leads", exact=True))
    expect(chip).to_have_count(1)
    name = chip.get_by_role("heading").inner_text()
    return next(each for each in machines if each.name == name)


@pytest.mark.timeout(WHOLE_SECONDS)
def test_a_cluster_is_built_broken_moved_and_thinned_out(
    machines: list[ConsoleMachine], etcd: EtcdProcess, browser: Browser
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
    _what_is_left_begins_anew(follower, leader, browser)


def _is_whole(leader: ConsoleMachine, machines: list[ConsoleMachine], browser: Browser) -> None:
    """The map on the node that leads: all follow, and any of them may take over."""
    page = leader.tab(browser)
    expect(own(page)).to_contain_text("leads")
    for each in machines:
        if each is not leader:
            expect(card(page, each)).to_contain_text("up to date")
            expect(card(page, each)).to_contain_text("in sync: it may take over")
            expect(card(page, each)).to_contain_text("days left")
    region = page.get_by_role("region", name="Leader")
    expect(region).to_contain_text("2 attached, none behind")
    expect(region).to_contain_text("s left; renewed after a third of it")
    assert leader.about()["life"] == "leading"
    assert findings(page) == []
    assert overflow(page) == []


def _a_follower_names_who_leads(
    leader: ConsoleMachine, other: ConsoleMachine, browser: Browser
) -> None:
    page = other.tab(browser)
    expect(page.get_by_text(f"This node is read-only: the leader is {leader.name}")).to_be_visible()
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


def _the_leader_dies(
    leader: ConsoleMachine, others: list[ConsoleMachine], browser: Browser
) -> None:
    """A page that is open on a follower names the new one by itself."""
    page = others[0].tab(browser)
    expect(card(page, leader).get_by_text("leads", exact=True)).to_be_visible()
    leader.end(signal.SIGKILL)
    new = own(page).or_(card(page, others[1])).filter(has=page.get_by_text("leads", exact=True))
    expect(new).to_have_count(1)
    expect(card(page, leader).get_by_text("leads", exact=True)).to_have_count(0)


def _row_is_amended(leader: ConsoleMachine, other: ConsoleMachine, browser: Browser) -> None:
    page = leader.tab(browser)
    card(page, other).get_by_role("button", name="Amend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Addresses for clients").fill(other.endpoint)
    expect(dialog.locator(".composed pre")).to_have_text(
        f"ALTER REPLICA `{other.name}` SET ENDPOINTS '{other.endpoint}'"
    )
    dialog.get_by_role("button", name="Amend it").click()
    expect(card(page, other)).not_to_contain_text(f"127.0.0.1:{other.wire}")
    rows = {row["name"]: row for row in leader.about("CLUSTER")["replicas"]}
    assert rows[other.name]["endpoints"] == [other.endpoint]


def _the_lead_moves(
    leader: ConsoleMachine, to: ConsoleMachine, machines: list[ConsoleMachine], browser: Browser
) -> None:
    """By hand: with PROMOTE MANUAL the node that leads is stopped, and another is told to lead."""
    page = leader.tab(browser)
    page.get_by_role("button", name="Change the policy").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("PROMOTE").select_option("MANUAL")
    dialog.get_by_role("button", name="Define").click()
    expect(dialog).to_have_count(0)
    for each in machines:  # a node that has not heard of it would still take the lead by itself
        policy = each.tab(browser).get_by_role("region", name="Failover")
        expect(policy).to_contain_text("Take the lead")
    page = to.tab(browser)
    # As long as somebody leads it is refused, and says who.
    assert to.watch is not None
    to.watch.allow(READS)
    page.get_by_text("Move the lead").click()
    page.get_by_role("button", name="Take the lead").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Take it").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "the lead can only be taken while no node has it"
    )
    leader.end(signal.SIGTERM)
    expect(page.get_by_text(f"No contact with {leader.name}").first).to_be_visible()
    until = time.monotonic() + LEASE_SECONDS
    while dialog.count() and time.monotonic() < until:
        # Who was stopped in a hurry has not given its lease back: it is refused until that is over.
        with suppress(PageTimeout):  # it was taken meanwhile, and there is no button any more
            dialog.get_by_role("button", name="Take it").click(timeout=1_000)
        page.wait_for_timeout(250)
    expect(dialog).to_have_count(0)
    expect(own(page)).to_contain_text("leads")
    leader.start()
    _is_whole(to, machines, browser)


def _one_is_shut_out(
    leader: ConsoleMachine, gone: ConsoleMachine, left: list[ConsoleMachine], browser: Browser
) -> None:
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
        "With 2 nodes, all are needed"
    )


def _what_is_left_begins_anew(
    leader: ConsoleMachine, last: ConsoleMachine, browser: Browser
) -> None:
    """Who leads is gone for good, and the other is told to lead with what it has."""
    page = last.tab(browser)
    page.get_by_text("Move the lead").click()
    leader.end(signal.SIGKILL)
    expect(page.get_by_text(f"No contact with {leader.name}").first).to_be_visible()
    page.get_by_role("button", name="Force the lead").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type the name of this node again").fill(last.name)
    dialog.get_by_label("Reason").fill("both others burnt")
    assert last.watch is not None
    last.watch.allow(READS)
    while True:  # refused as long as the lease of who led lasts
        with page.expect_response(
            lambda answer: "FORCE" in (answer.request.post_data or "")
        ) as said:
            dialog.get_by_role("button", name="Force").click()
        if said.value.status == 200:
            break
        expect(dialog.get_by_role("alert")).to_be_visible()
    expect(dialog).to_have_count(0)
    expect(own(page)).to_contain_text("leads")
    expect(page.get_by_role("region", name="Failover")).to_contain_text("ACKS 0.")
    assert last.process is not None
    (entry,) = last.process.script("INFO FOR STATEMENTS LIMIT 1")["results"][0]["value"]
    assert entry["reason"] == "both others burnt"
