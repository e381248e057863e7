"""The Topics tab where things are otherwise: no rights, no role, hostile contents, ten thousand
topics, the keyboard alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.console.test_topics import dialog, row, run
from tests.processes import NodeProcess

SECRET = "a better horse"
HOSTILE = "</td><img src=x onerror=alert(1)>\u202etxt.exe\u2066"
LONG = "x" * (1 << 20)
TOPICS = 10_000


@pytest.fixture(scope="module")
def orders(node: NodeProcess) -> NodeProcess:
    """Two topics with messages, and users of each kind at shop.main."""
    run(
        node,
        "DEFINE TOPIC orders; DEFINE TOPIC other; PUBLISH INTO orders VALUES ['one', 'two'];"
        "DEFINE GROUP senders ON orders DEADLINE 1h; DEFINE READER audit ON orders;"
        f"DEFINE USER viewer ROLE viewer ON DATABASE shop.main PASSWORD '{SECRET}';"
        f"DEFINE USER editor ROLE editor ON DATABASE shop.main PASSWORD '{SECRET}';"
        f"DEFINE USER nobody ROLE member ON DATABASE shop.main PASSWORD '{SECRET}';"
        f"DEFINE USER worker ROLE member ON DATABASE shop.main PASSWORD '{SECRET}';"
        "GRANT CONSUME ON TOPIC orders TO worker",
    )
    return node


def as_user(page: Page, node: NodeProcess, name: str, address: str) -> None:
    page.goto(f"{origin(node)}/{address}")
    sign_in(page, name, SECRET)


def test_a_viewer_looks_and_is_refused_the_rest(
    page: Page, orders: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(403))
    as_user(page, orders, "viewer", "#/topics/shop/main/orders")
    expect(row(page, "Readers and groups", "senders")).to_be_visible()
    expect(page.get_by_role("button", name="Message 2")).to_be_visible()
    page.get_by_role("button", name="Publish", exact=True).click()
    box = dialog(page, "Publish a message")
    box.get_by_label("Value", exact=True).fill("1")
    box.get_by_role("button", name="Publish").click()
    expect(box.get_by_role("alert")).to_contain_text("NotAllowed")
    expect(box.get_by_role("alert")).to_contain_text("WRITE")
    expect(box.get_by_label("Value", exact=True)).to_have_value("1")
    box.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    box = dialog(page, "Remove the topic")
    box.get_by_label("Type the").fill("orders")
    box.get_by_role("button", name="Remove").click()
    expect(box.get_by_role("alert")).to_contain_text("NotAllowed")
    assert run(orders, "INFO FOR TOPIC orders")["messages"] == 2


def test_a_member_sees_what_is_granted_and_no_more(
    page: Page, orders: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(403))
    as_user(page, orders, "worker", "#/topics/shop/main")
    expect(row(page, "Topics", "orders").get_by_role("cell").nth(1)).to_have_text("–")
    expect(row(page, "Topics", "other")).to_have_count(0)
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_text("No permission to see its figures")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("READ")


def test_what_takes_no_changes_says_so(
    opened: Opened, orders: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of())
    page = opened("#/topics/shop/main/orders")
    expect(page.get_by_role("button", name="Message 2")).to_be_visible()
    run(orders, "DEFINE NODE ROLES serving")
    try:
        page.get_by_role("button", name="Publish", exact=True).click()
        box = dialog(page, "Publish a message")
        box.get_by_label("Value", exact=True).fill("1")
        box.get_by_role("button", name="Publish").click()
        expect(box.get_by_role("alert")).to_contain_text("NotWritable")
        page.keyboard.press("Escape")
        run(orders, "DEFINE NODE ROLES NONE")
        page.get_by_role("button", name="Refresh").click()
        expect(page.locator("main .notice.drained")).to_contain_text("Draining")
        expect(page.get_by_role("button", name="Message 2")).to_be_visible()
    finally:
        run(orders, "DEFINE NODE ROLES serving, writable")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("main .notice.drained")).to_have_count(0)


def test_a_topic_that_is_held_is_not_removed(
    opened: Opened, orders: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(409))
    run(orders, "DEFINE TOPIC graves; DEFINE GROUP dying ON other DEADLINE 1h DEAD LETTER graves")
    page = opened("#/topics/shop/main/graves")
    page.get_by_role("button", name="Remove", exact=True).click()
    box = dialog(page, "Remove the topic")
    box.get_by_label("Type the").fill("graves")
    box.get_by_role("button", name="Remove").click()
    expect(box.get_by_role("alert")).to_contain_text("StillHeld")
    box.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_hostile_contents_are_text(opened: Opened, node: NodeProcess) -> None:
    node.script(
        "DEFINE TOPIC hostile; PUBLISH INTO hostile VALUE $value KEY $text"
        " HEADERS $headers; PUBLISH INTO hostile VALUE $long",
        ns="shop", db="main",
        params={"text": HOSTILE, "value": {HOSTILE: HOSTILE}, "headers": {HOSTILE: HOSTILE},
                "long": LONG},
    )  # fmt: skip
    page = opened("#/topics/shop/main/hostile?message=1")
    box = dialog(page, "Message 1 of hostile")
    expect(box.locator(".key bdi")).to_have_text(HOSTILE)
    expect(box.locator("dt bdi").first).to_have_text(HOSTILE)
    assert page.locator("main img, main script").count() == 0
    box.get_by_role("button", name="Next").click()
    box = dialog(page, "Message 2 of hostile")
    expect(box.get_by_role("button", name="Show all")).to_be_visible()
    assert len(box.inner_text()) < 10_000
    box.get_by_role("button", name="Show all").click()
    expect(box.locator(".whole")).to_contain_text("x" * 5_000)


@pytest.mark.hard
def test_ten_thousand_topics_stay_usable(opened: Opened, node: NodeProcess) -> None:
    node.script("DEFINE DATABASE shop.many")
    for begin in range(0, TOPICS, 1_000):
        made = ";".join(f"DEFINE TOPIC t{n:05}" for n in range(begin, begin + 1_000))
        assert "error" not in node.script(f"BEGIN;{made};COMMIT", ns="shop", db="many")
    node.script("PUBLISH INTO t07777 VALUES [1, 2, 3]", ns="shop", db="many")
    page = opened("#/topics/shop/many")
    expect(page.get_by_text("10000 topics")).to_be_visible()
    assert page.get_by_role("row").count() < 100
    page.get_by_role("button", name="Messages").click()
    page.get_by_role("button", name="Messages").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("t07777")
    page.get_by_label("Find").fill("0999")
    expect(page.get_by_text("11 of 10000 topics")).to_be_visible()
    page.get_by_role("link", name="t09991").click()
    expect(page.get_by_role("heading", name="t09991")).to_be_visible()


@pytest.fixture
def views(orders: NodeProcess) -> list[str]:
    return [
        "#/topics/shop/main",
        "#/topics/shop/main/orders",
        "#/topics/shop/main/orders?message=1",
        "#/topics/shop/main/gone",
    ]


@pytest.mark.hard
def test_axe_finds_nothing_and_nothing_sticks_out(
    opened: Opened, node: NodeProcess, views: list[str], watch: PageComplaints
) -> None:
    watch.allow(refusal_of(404))
    waits = ["senders", "Message 2", "Message 1 of orders", "Unknown"]
    for address, seen in zip(views, ["orders", *waits[1:]], strict=True):
        page = opened(address)
        shown = page.get_by_text(seen) if seen != "Message 2" else page.get_by_label(seen)
        expect(shown.first).to_be_visible()
        assert findings(page) == [], address
        if not address.endswith("message=1"):
            assert overflow(page) == [], address
        page.keyboard.press("Escape")
    run(node, "DEFINE TOPIC quiet; DEFINE GROUP senders ON quiet DEADLINE 1h")  # little to look at
    page = opened("#/topics/shop/main/quiet")
    for button, title in [
        ("Publish", "Publish a message"), ("Settings", "Settings of the topic"),
        ("Trim", "Trim the topic"), ("Redrive", "Redrive messages"), ("Remove", "Remove the topic"),
        ("New reader", "New reader"), ("New group", "New group"),
        ("Move group senders", "Move the group"),
        ("Settings group senders", "Settings of the group"),
    ]:  # fmt: skip
        page.get_by_role("button", name=button, exact=True).click()
        expect(dialog(page, title)).to_be_visible()
        assert findings(page) == [], title
        page.keyboard.press("Escape")
