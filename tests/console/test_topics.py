"""The Topics tab: what it shows, and that what is done there is done."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Opened, PageComplaints, refusal_of
from tests.processes import NodeProcess

PLACE = {"ns": "shop", "db": "main"}


def run(node: NodeProcess, text: str) -> Any:
    answer = node.script(text, **PLACE)
    assert "error" not in answer, answer
    return answer["results"][-1]["value"]


def last_kept(node: NodeProcess) -> tuple[str, str]:
    """The newest entry of the statement log: its text and its reason."""
    (entry,) = run(node, "INFO FOR STATEMENTS LIMIT 1")
    return entry["statement"], entry["reason"]


def dialog(page: Page, title: str) -> Locator:
    return page.get_by_role("dialog", name=title, exact=True)


def confirm(page: Page, title: str, name: str, act: str, reason: str = "") -> None:
    """Type the name again and do it; without the name it can't be done."""
    box = dialog(page, title)
    button = box.get_by_role("button", name=act, exact=True)
    expect(button).to_be_disabled()
    box.get_by_label("Type the").fill(name)
    if reason:
        box.get_by_label("Reason").fill(reason)
    button.click()
    expect(box).to_have_count(0)


@pytest.fixture(scope="module")
def orders(node: NodeProcess) -> NodeProcess:
    """A topic with 250 messages, two readers and a group with some out and some given up."""
    numbers = list(range(1, 251))
    run(
        node,
        "DEFINE TOPIC orders KEEP 7d BYTES 64MiB COMMENT 'of the shop'; DEFINE TOPIC failed;"
        "DEFINE READER audit ON orders;"
        "DEFINE GROUP senders ON orders DEADLINE 1h DELIVERIES 3 DEAD LETTER failed;"
        f"PUBLISH INTO orders VALUES {numbers} KEY 'k' HEADERS {{ trace: '7f' }};"
        "DEFINE READER bills ON orders AT END;"
        "LET $out = TAKE 5 FROM orders AS senders;"
        "GIVE UP orders AS senders RECEIPTS [$out[0].receipt, $out[1].receipt] ERROR 'no such'",
    )
    return node


def row(page: Page, table: str, name: str) -> Locator:
    cell = page.get_by_role("cell", name=name, exact=True)
    return page.get_by_role("region", name=table, exact=True).get_by_role("row").filter(has=cell)


def test_the_list_tells_how_each_topic_stands(opened: Opened, orders: NodeProcess) -> None:
    page = opened("#/topics/shop/main")
    cells = row(page, "Topics", "orders").get_by_role("cell")
    expect(cells.nth(1)).to_have_text("250")
    expect(cells.nth(2)).to_have_text("250")
    expect(cells.nth(4)).to_have_text("250")
    expect(cells.nth(5)).to_have_text("2")
    expect(cells.nth(6)).to_have_text("1")
    expect(cells.nth(7)).to_have_text("1w, 64MiB")
    page.get_by_label("Find").fill("fail")
    expect(row(page, "Topics", "failed")).to_be_visible()
    expect(row(page, "Topics", "orders")).to_have_count(0)


def test_a_topic_tells_of_its_readers_and_groups(opened: Opened, orders: NodeProcess) -> None:
    page = opened("#/topics/shop/main/orders")
    expect(page.get_by_label("Status")).to_contain_text("1 to 250")
    senders = row(page, "Readers and groups", "senders").get_by_role("cell")
    told = run(orders, "INFO FOR GROUP senders ON orders")
    expect(senders.nth(3)).to_have_text(str(told["waiting"]))
    expect(senders.nth(4)).to_have_text(str(told["in_flight"]))
    expect(senders.nth(6)).to_have_text(str(told["dead_lettered"]))
    assert (told["in_flight"], told["dead_lettered"]) == (3, 2)
    page.get_by_role("link", name="failed").click()
    expect(page.get_by_role("heading", name="failed")).to_be_visible()


def test_messages_are_read_from_any_position_and_time(opened: Opened, orders: NodeProcess) -> None:
    page = opened("#/topics/shop/main/orders")
    says = page.get_by_text("151 to 250, newest first")
    expect(says).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text("51 to 150, oldest first")).to_be_visible()
    assert page.url.endswith("?from=51")
    page.get_by_role("button", name="Newer").click()
    expect(page.get_by_text("151 to 250, oldest first")).to_be_visible()
    page.get_by_role("button", name="Oldest").click()
    expect(page.get_by_text("1 to 100, oldest first")).to_be_visible()
    page.get_by_label("Position").fill("7")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_text("7 to 106, oldest first")).to_be_visible()
    page.get_by_label("Go to a").select_option("time")
    page.get_by_label("Time").fill("2001-02-03T04:05:06")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_text("1 to 100, oldest first")).to_be_visible()
    page.get_by_label("Time").fill("2901-02-03T04:05:06")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_text("None from position 251 on")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("1 to 100, oldest first")).to_be_visible()
    page.get_by_role("button", name="Newest").click()
    expect(says).to_be_visible()


def test_a_message_is_looked_at(opened: Opened, orders: NodeProcess) -> None:
    page = opened("#/topics/shop/main/orders?message=3")
    box = dialog(page, "Message 3 of orders")
    expect(box.get_by_role("region", name="Value").locator(".whole")).to_have_text("3")
    expect(box).to_contain_text("trace")
    box.get_by_role("button", name="Next").click()
    expect(dialog(page, "Message 4 of orders")).to_contain_text("7f")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Message 250").click()
    expect(dialog(page, "Message 250 of orders")).to_be_visible()


def test_a_dead_letter_says_where_it_died(opened: Opened, orders: NodeProcess) -> None:
    page = opened("#/topics/shop/main/failed?message=1")
    box = dialog(page, "Message 1 of failed")
    expect(box).to_contain_text("no such")
    box.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name="orders", exact=True)).to_be_visible()


def test_a_topic_is_made_with_its_clauses(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/topics/shop/main")
    page.get_by_role("button", name="New topic").click()
    box = dialog(page, "New topic")
    make = box.get_by_role("button", name="Create")
    expect(make).to_be_disabled()
    box.get_by_label("Name").fill("made here")
    expect(box).to_contain_text("Letters, digits")
    box.get_by_label("Name").fill("made")
    box.get_by_label("Keep messages for").fill("soon")
    expect(make).to_be_disabled()
    box.get_by_label("Keep messages for").fill("7d")
    box.get_by_label("Hold at most").fill("64MiB")
    box.get_by_label("When it is full").select_option("REFUSE")
    box.get_by_label("Largest message").fill("1MiB")
    box.get_by_label("Deduplicate ids for").fill("10m")
    box.get_by_label("Comment").fill("it's <b>made</b>")
    box.get_by_label("Reason").fill("a trial")
    expect(box.locator("pre")).to_have_text(
        "DEFINE TOPIC `made` KEEP 7d BYTES 64MiB LARGEST 1MiB DEDUP 10m FULL REFUSE"
        " COMMENT 'it\\'s <b>made</b>'"
    )
    make.click()
    expect(page.get_by_role("heading", name="made", exact=True)).to_be_visible()
    told = run(node, "INFO FOR TOPIC made")
    assert (told["keep"], told["dedup"]) == ({"$dur": "1w"}, {"$dur": "10m"})
    assert (told["max_bytes"], told["largest"], told["full"]) == (64 << 20, 1 << 20, "REFUSE")
    assert told["comment"] == "it's <b>made</b>"
    assert last_kept(node)[1] == "a trial"


def test_settings_are_changed_one_by_one(opened: Opened, node: NodeProcess) -> None:
    run(node, "DEFINE TOPIC changed KEEP 1h BYTES 1MiB DEDUP 5m")
    page = opened("#/topics/shop/main/changed")
    page.get_by_role("button", name="Settings").click()
    box = dialog(page, "Settings of the topic")
    expect(box.get_by_label("Keep messages for")).to_have_value("1h")
    box.get_by_label("Keep messages for").fill("")
    box.get_by_label("Hold at most").fill("2MiB")
    expect(box.locator("pre")).to_have_text("ALTER TOPIC `changed` SET KEEP NONE, BYTES 2MiB")
    box.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Status")).to_contain_text("2MiB")
    told = run(node, "INFO FOR TOPIC changed")
    assert (told["keep"], told["max_bytes"]) == (None, 2 << 20)
    assert told["dedup"] == {"$dur": "5m"}


def test_a_message_is_published(opened: Opened, node: NodeProcess) -> None:
    run(node, "DEFINE TOPIC inbox DEDUP 1h")
    page = opened("#/topics/shop/main/inbox")
    page.get_by_role("button", name="Publish", exact=True).click()
    box = dialog(page, "Publish a message")
    publish = box.get_by_role("button", name="Publish")
    box.get_by_label("Value", exact=True).fill("{ no json")
    expect(box).to_contain_text("Not JSON")
    expect(publish).to_be_disabled()
    box.get_by_label("Value", exact=True).fill("9007199254740993")
    expect(box).to_contain_text('{"$int": "9007199254740993"}')
    value = '{"sum": {"$dec": "12.30"}, "n": {"$int": "9007199254740993"}, "one": 1.0}'
    box.get_by_label("Value", exact=True).fill(value)
    box.get_by_label("Key").fill("ana")
    box.get_by_label("Id").fill("m-1")
    box.get_by_label("Headers").fill("trace: 7f\nfrom: a: b")
    box.get_by_label("Delay").fill("1h")
    box.get_by_label("Expected last position").fill("0")
    publish.click()
    expect(page.get_by_text("Published at position 1.")).to_be_visible()
    (message,) = run(node, "READ FROM inbox AFTER 0")
    assert message["value"]["sum"] == {"$dec": "12.30"}
    assert message["value"]["n"] == {"$int": "9007199254740993"}
    assert isinstance(message["value"]["one"], float)
    assert (message["key"], message["id"]) == ("ana", "m-1")
    assert message["headers"] == {"trace": "7f", "from": "a: b"}
    assert message["due"]
    page.get_by_role("button", name="Newest").click()
    page.get_by_role("button", name="Message 1", exact=True).click()
    dialog(page, "Message 1 of inbox").get_by_role("button", name="Publish a copy").click()
    box = dialog(page, "Publish a message")
    expect(box.get_by_label("Key")).to_have_value("ana")
    box.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Published at position 2.")).to_be_visible()
    first, second = run(node, "READ FROM inbox AFTER 0")
    assert first["value"] == second["value"]


def test_readers_are_made_moved_and_removed(opened: Opened, node: NodeProcess) -> None:
    run(node, "DEFINE TOPIC read; PUBLISH INTO read VALUES [1, 2, 3]")
    page = opened("#/topics/shop/main/read")
    page.get_by_role("button", name="New reader").click()
    box = dialog(page, "New reader")
    box.get_by_label("Name").fill("audit")
    box.get_by_label("Begins at").select_option("AFTER")
    box.get_by_label("Position").fill("2")
    box.get_by_role("button", name="Create").click()
    expect(row(page, "Readers and groups", "audit")).to_be_visible()
    assert run(node, "INFO FOR TOPIC read")["readers"][0]["position"] == 2
    page.get_by_role("button", name="Move reader audit", exact=True).click()
    dialog(page, "Move the reader").get_by_label("To", exact=True).select_option("START")
    confirm(page, "Move the reader", "audit", "Move", "again from the first")
    assert run(node, "INFO FOR TOPIC read")["readers"][0]["position"] == 0
    assert last_kept(node)[1] == "again from the first"
    page.get_by_role("button", name="Remove reader audit", exact=True).click()
    confirm(page, "Remove the reader", "audit", "Remove", "not wanted")
    expect(row(page, "Readers and groups", "audit")).to_have_count(0)
    assert run(node, "INFO FOR TOPIC read")["readers"] == []
    assert last_kept(node) == ("DROP READER audit ON read", "not wanted")


def test_groups_are_made_changed_moved_and_removed(opened: Opened, node: NodeProcess) -> None:
    run(node, "DEFINE TOPIC work; DEFINE TOPIC dead; PUBLISH INTO work VALUES [1, 2, 3]")
    page = opened("#/topics/shop/main/work")
    page.get_by_role("button", name="New group").click()
    box = dialog(page, "New group")
    box.get_by_label("Name").fill("senders")
    box.get_by_label("Deadline").fill("1m")
    box.get_by_label("In flight at most").fill("200")
    box.get_by_label("Deliveries at most").fill("5")
    box.get_by_label("Dead letter topic").fill("dead")
    box.get_by_label("Backoff").fill("1s, 10s")
    box.get_by_label("Messages of one key").check()
    box.get_by_role("button", name="Create").click()
    expect(row(page, "Readers and groups", "senders")).to_be_visible()
    told = run(node, "INFO FOR GROUP senders ON work")
    assert (told["deadline"], told["max_in_flight"]) == ({"$dur": "1m"}, 200)
    assert (told["deliveries"], told["dead_letter"], told["ordered"]) == (5, "dead", True)
    assert told["backoff"] == [{"$dur": "1s"}, {"$dur": "10s"}]
    page.get_by_role("button", name="Settings group senders", exact=True).click()
    box = dialog(page, "Settings of the group")
    box.get_by_label("Deliveries at most").fill("7")
    box.get_by_label("Backoff").fill("")
    box.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Changed.", exact=True)).to_be_visible()
    told = run(node, "INFO FOR GROUP senders ON work")
    assert (told["deliveries"], told["backoff"], told["dead_letter"]) == (7, [], "dead")
    page.get_by_role("button", name="Move group senders", exact=True).click()
    box = dialog(page, "Move the group")
    box.get_by_label("To", exact=True).select_option("TIME")
    box.get_by_label("Time").fill("2001-02-03T04:05:06")
    box.get_by_label("To", exact=True).select_option("END")
    confirm(page, "Move the group", "senders", "Move", "these were done by hand")
    expect(page.get_by_text("Moved.", exact=True)).to_be_visible()
    assert run(node, "INFO FOR GROUP senders ON work")["lag"] == 0
    assert last_kept(node)[1] == "these were done by hand"
    page.get_by_role("button", name="Remove group senders", exact=True).click()
    confirm(page, "Remove the group", "senders", "Remove", "no worker is left")
    expect(row(page, "Readers and groups", "senders")).to_have_count(0)
    assert run(node, "INFO FOR TOPIC work")["groups"] == []
    assert last_kept(node) == ("DROP GROUP senders ON work", "no worker is left")


def test_a_topic_is_trimmed(opened: Opened, node: NodeProcess) -> None:
    run(node, "DEFINE TOPIC long; PUBLISH INTO long VALUES [1, 2, 3, 4]")
    page = opened("#/topics/shop/main/long")
    page.get_by_role("button", name="Trim", exact=True).click()
    box = dialog(page, "Trim the topic")
    box.get_by_label("First position to keep").fill("4")
    expect(box).to_contain_text("3 messages will be removed.")
    confirm(page, "Trim the topic", "long", "Trim", "too old")
    expect(page.get_by_text("Trimmed: 3 messages.")).to_be_visible()
    assert [one["value"] for one in run(node, "READ FROM long AFTER 0")] == [4]
    assert last_kept(node)[1] == "too old"
    opened("#/topics/shop/main/long?message=2")
    expect(page.get_by_text("No message at this position")).to_be_visible()


def test_dead_letters_are_redriven(opened: Opened, node: NodeProcess) -> None:
    run(
        node,
        "DEFINE TOPIC jobs; DEFINE TOPIC graves; PUBLISH INTO jobs VALUES ['a', 'b'];"
        "DEFINE GROUP doers ON jobs DEADLINE 1h DEAD LETTER graves;"
        "LET $out = TAKE 2 FROM jobs AS doers;"
        "GIVE UP jobs AS doers RECEIPTS [$out[0].receipt, $out[1].receipt]",
    )
    page = opened("#/topics/shop/main/graves")
    page.get_by_role("button", name="Redrive", exact=True).click()
    box = dialog(page, "Redrive messages")
    expect(box.get_by_label("To the topic")).to_have_value("jobs")
    box.get_by_label("At most").fill("1")
    box.get_by_label("Reason").fill("mended")
    box.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("Moved: 1 messages.")).to_be_visible()
    assert [one["value"] for one in run(node, "READ FROM jobs AFTER 2")] == ["a"]
    assert last_kept(node)[1] == "mended"
    opened("#/topics/shop/main/jobs")
    page.get_by_role("button", name="Redrive group doers", exact=True).click()
    dialog(page, "Redrive messages").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("Moved: 1 messages.")).to_be_visible()
    assert [one["value"] for one in run(node, "READ FROM jobs AFTER 2")] == ["a", "b"]
    assert run(node, "READ FROM graves AFTER 0") == []


def test_a_topic_is_removed(opened: Opened, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(404))  # the page may look at it once more while it goes
    run(node, "DEFINE TOPIC old; DEFINE TOPIC other")
    page = opened("#/topics/shop/main/old")
    page.get_by_role("button", name="Remove", exact=True).click()
    confirm(page, "Remove the topic", "old", "Remove", "nobody reads it")
    expect(row(page, "Topics", "other")).to_be_visible()
    expect(row(page, "Topics", "old")).to_have_count(0)
    expect(page.locator("main")).to_be_focused()
    assert node.script("INFO FOR TOPIC old", **PLACE)["error"]["code"] == "Unknown"
    assert last_kept(node) == ("DROP TOPIC old", "nobody reads it")


def test_following_shows_what_comes_and_disturbs_no_group(
    opened: Opened, node: NodeProcess
) -> None:
    run(node, "DEFINE TOPIC live; DEFINE GROUP g ON live DEADLINE 1h; PUBLISH INTO live VALUE 'a'")
    page = opened("#/topics/shop/main/live")
    expect(page.get_by_text("1 to 1, newest first")).to_be_visible()
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text("Following")).to_be_visible()
    run(node, "PUBLISH INTO live VALUE 'second <i>one</i>'")
    came = page.get_by_role("region", name="New messages")
    expect(came).to_contain_text("second <i>one</i>")
    run(node, "PUBLISH INTO live VALUE 'third'")
    expect(came.get_by_role("row").nth(1)).to_contain_text("third")
    told = run(node, "INFO FOR GROUP g ON live")
    assert (told["handed_out"], told["in_flight"], told["lag"]) == (0, 0, 3)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("1 to 3, newest first")).to_be_visible()
