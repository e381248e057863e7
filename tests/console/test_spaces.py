"""Cache spaces within Run's places: keys by their beginning, one key, and what is done to it."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Opened, PageComplaints, refusal_of
from tests.console.seeing import findings, overflow
from tests.console.test_topics import confirm, dialog, last_kept, run
from tests.console.test_topics_seen import HOSTILE, SECRET, as_user
from tests.processes import NodeProcess

SPACE = "#/run/shop/main/space/sessions"
FEW = "#/run/shop/main/space/few"


@pytest.fixture(scope="module")
def sessions(node: NodeProcess) -> NodeProcess:
    """A space with more keys than a page has, and one with few."""
    many = [f"user:{number}" for number in range(1000, 2100)]
    run(
        node,
        "DEFINE SPACE sessions EXPIRE 30m COMMENT 'of people'; DEFINE SPACE few;"
        f"FOR $key IN {many} {{ SET $key IN sessions VALUE $key }};"
        "SET 'visits' IN sessions VALUE { count: 5, sum: 1.50dec } EXPIRE 1h;"
        "LOCK 'nightly' IN sessions HOLDER 'worker-1' EXPIRE 1h;"
        f"DEFINE USER viewer ROLE viewer ON DATABASE shop.main PASSWORD '{SECRET}';"
        f"DEFINE USER editor ROLE editor ON DATABASE shop.main PASSWORD '{SECRET}'",
    )
    return node


def key_of(page: Page, name: str) -> None:
    expect(page.get_by_role("region", name="The key").get_by_role("heading")).to_have_text(name)


def test_all_spaces_of_a_place(opened: Opened, sessions: NodeProcess) -> None:
    page = opened("#/run/shop/main/space")
    table = page.get_by_role("region", name="Cache spaces")
    expect(table).to_contain_text("30m")
    expect(table).to_contain_text("of people")
    assert findings(page) == []
    assert overflow(page) == []
    table.get_by_role("link", name="sessions").click()
    expect(page.get_by_role("heading", name="sessions")).to_be_visible()


def test_keys_are_found_by_their_beginning_and_paged(opened: Opened, sessions: NodeProcess) -> None:
    page = opened(SPACE)
    expect(page.get_by_text("1,102 keys")).to_be_visible()
    expect(page.get_by_text("1,000 keys, and there may be more")).to_be_visible()
    assert page.get_by_role("row").count() < 100
    page.get_by_role("link", name="The next 1000").click()
    expect(page.get_by_text("102 keys", exact=True)).to_be_visible()
    page.get_by_role("link", name="From the first").click()
    expect(page.get_by_role("link", name="nightly")).to_be_visible()
    page.get_by_label("Prefix").fill("user:204")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.get_by_text("10 keys", exact=True)).to_be_visible()
    page.get_by_role("link", name="user:2042").click()
    key_of(page, "user:2042")
    expect(page.get_by_role("region", name="The key").locator(".whole")).to_have_text("'user:2042'")
    assert page.url.endswith("?prefix=user%3A204&key=user%3A2042")


def test_a_key_tells_its_value_its_expiry_and_its_holder(
    opened: Opened, sessions: NodeProcess
) -> None:
    page = opened(f"{SPACE}?key=visits")
    shown = page.get_by_role("region", name="The key")
    expect(shown).to_contain_text("1.50dec")
    expect(shown).to_contain_text("in 59m")
    opened(f"{SPACE}?key=nightly")
    expect(shown).to_contain_text("worker-1")
    expect(shown).to_contain_text("its value is its holder")
    opened(f"{SPACE}?key=nothing")
    expect(shown).to_contain_text("No such key")


def test_a_key_is_set_and_one_that_is_there_is_left_alone(
    opened: Opened, sessions: NodeProcess
) -> None:
    page = opened(FEW)
    page.get_by_role("button", name="Set a key").click()
    box = dialog(page, "Set a key")
    box.get_by_label("Key", exact=True).fill("a/b c")
    box.get_by_label("Value", exact=True).fill('{"sum": {"$dec": "12.30"}, "one": 1.0}')
    box.get_by_label("It expires").select_option("for")
    box.get_by_label("After", exact=True).fill("1h")
    box.get_by_label("Reason").fill("by hand")
    box.get_by_role("button", name="Set").click()
    key_of(page, "a/b c")
    found = run(sessions, "GET 'a/b c' FROM few")
    assert found["value"]["sum"] == {"$dec": "12.30"}
    assert found["ttl"]["$dur"].startswith("59m")
    assert last_kept(sessions)[1] == "by hand"
    page.get_by_role("button", name="Set a key").click()
    box.get_by_label("Key", exact=True).fill("a/b c")
    box.get_by_label("Value as").select_option("text")
    box.get_by_label("Value", exact=True).fill("other")
    box.get_by_role("button", name="Set").click()
    expect(page.get_by_text("Not written: the key exists.")).to_be_visible()
    assert run(sessions, "GET 'a/b c' FROM few")["value"]["one"] == 1.0
    page.get_by_role("button", name="Set", exact=True).click()
    expect(box.get_by_label("It expires")).to_have_value("keep")
    box.get_by_label("Value as").select_option("text")
    box.get_by_label("Value", exact=True).fill("other")
    box.get_by_role("button", name="Set").click()
    expect(page.get_by_text("Written.", exact=True)).to_be_visible()
    found = run(sessions, "GET 'a/b c' FROM few")
    assert found["value"] == "other"
    assert found["ttl"]["$dur"].startswith("59m")


def test_an_expiry_is_changed_and_taken_away(opened: Opened, sessions: NodeProcess) -> None:
    run(sessions, "SET 'short' IN few VALUE 1 EXPIRE 1h")
    page = opened(f"{FEW}?key=short")
    page.get_by_role("button", name="Expiry").click()
    box = dialog(page, "Change the expiry")
    box.get_by_label("It expires after").fill("soon")
    expect(box.get_by_role("button", name="Save")).to_be_disabled()
    box.get_by_label("It expires after").fill("2h")
    box.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Expiry changed.")).to_be_visible()
    assert run(sessions, "GET 'short' FROM few")["ttl"]["$dur"].startswith("1h59m")
    page.get_by_role("button", name="Persist").click()
    dialog(page, "Persist the key").get_by_role("button", name="Persist it").click()
    expect(page.get_by_text("The key no longer expires.")).to_be_visible()
    assert run(sessions, "GET 'short' FROM few")["ttl"] is None
    expect(page.get_by_role("button", name="Persist")).to_be_disabled()


def test_a_lock_is_unlocked_and_a_plain_text_is_not(opened: Opened, sessions: NodeProcess) -> None:
    run(sessions, "LOCK 'lock' IN few HOLDER 'w' EXPIRE 1h; SET 'plain' IN few VALUE 'w'")
    page = opened(f"{FEW}?key=plain")
    page.get_by_role("button", name="Unlock").click()
    confirm(page, "Unlock the key", "plain", "Unlock it")
    expect(page.get_by_text("that holder does not hold the lock")).to_be_visible()
    assert run(sessions, "GET 'plain' FROM few")["value"] == "w"
    opened(f"{FEW}?key=lock")
    key_of(page, "lock")
    page.get_by_role("button", name="Unlock").click()
    confirm(page, "Unlock the key", "lock", "Unlock it", "its worker is gone")
    expect(page.get_by_text("No such key")).to_be_visible()
    assert run(sessions, "LOCK 'lock' IN few HOLDER 'x' EXPIRE 1h")["held"] is True


def test_a_key_is_deleted(opened: Opened, sessions: NodeProcess) -> None:
    run(sessions, "SET 'old' IN few VALUE 1")
    page = opened(f"{FEW}?key=old")
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete the key", "old", "Delete it", "not wanted")
    expect(page.get_by_text("No such key")).to_be_visible()
    expect(page.get_by_role("link", name="old", exact=True)).to_have_count(0)
    assert run(sessions, "KEYS FROM few PREFIX 'old'")["keys"] == []
    assert last_kept(sessions)[1] == "not wanted"


def test_hostile_keys_are_text(opened: Opened, sessions: NodeProcess) -> None:
    sessions.script(
        "DEFINE SPACE IF NOT EXISTS hostile; SET $k IN hostile VALUE $k;"
        "SET $long IN hostile VALUE $big",
        ns="shop", db="main",
        params={"k": HOSTILE, "long": "k" * 1024, "big": "x" * 1_000_000},
    )  # fmt: skip
    page = opened("#/run/shop/main/space/hostile")
    page.get_by_role("link", name="onerror").click()
    key_of(page, HOSTILE)
    assert page.locator("main img").count() == 0
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete the key", HOSTILE, "Delete it")
    expect(page.get_by_text("No such key")).to_be_visible()
    assert run(sessions, "KEYS FROM hostile")["keys"] == ["k" * 1024]
    sessions.script("SET $k IN hostile VALUE 1", params={"k": "two\nlines"}, ns="shop", db="main")
    opened("#/run/shop/main/space/hostile?key=two%0Alines")
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete the key", "two\nlines", "Delete it")
    expect(page.get_by_text("No such key")).to_be_visible()
    assert run(sessions, "KEYS FROM hostile PREFIX 'two'")["keys"] == []
    opened(f"#/run/shop/main/space/hostile?key={quote('k' * 1024)}")
    expect(page.get_by_role("button", name="Show all")).to_be_visible()
    assert overflow(page) == []


def test_refusals_are_the_node_s_own(
    page: Page, sessions: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(403))
    as_user(page, sessions, "viewer", f"{SPACE}?key=visits")
    page.get_by_role("button", name="Delete").click()
    box = dialog(page, "Delete the key")
    box.get_by_label("Type the").fill("visits")
    box.get_by_role("button", name="Delete it").click()
    expect(box.get_by_role("alert")).to_contain_text("NotAllowed")
    assert run(sessions, "GET 'visits' FROM sessions")["value"]["count"] == 5


@pytest.mark.hard
def test_axe_finds_nothing_and_nothing_sticks_out(
    opened: Opened, sessions: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(404))
    page = opened(f"{SPACE}?key=visits")
    key_of(page, "visits")
    expect(page.get_by_role("link", name="nightly")).to_be_visible()
    assert findings(page) == []
    assert overflow(page) == []
    for button, title in [
        ("Set", "Set a key"), ("Expiry", "Change the expiry"), ("Persist", "Persist the key"),
        ("Delete", "Delete the key"),
    ]:  # fmt: skip
        page.get_by_role("button", name=button, exact=True).click()
        expect(dialog(page, title)).to_be_visible()
        assert findings(page) == [], title
        page.keyboard.press("Escape")
    opened("#/run/shop/main/space/gone")
    expect(page.locator("main .notice.gone")).to_contain_text("Unknown")
