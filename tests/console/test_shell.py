"""What stands around every tab."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.console.conftest import Watch, origin, sign_in
from tests.processes import NodeProcess


def test_a_wrong_password_is_refused_in_the_node_s_words(
    page: Page, node: NodeProcess, watch: Watch
) -> None:
    watch.allow("console: Failed to load resource: the server responded with a status of 401")
    page.goto(origin(node))
    page.get_by_label("User", exact=True).fill("root")
    page.get_by_label("Password", exact=True).fill("not it")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("SignInRefused")
    expect(page.get_by_label("Password", exact=True)).to_have_value("")


def test_signing_in_and_out(console: Page, node: NodeProcess) -> None:
    expect(console.get_by_role("navigation", name="Tabs")).to_be_visible()
    expect(console.locator(".condition")).to_contain_text("ready")
    console.locator(".menu summary").click()
    console.get_by_role("button", name="Sign out").click()
    expect(console.get_by_label("Password", exact=True)).to_be_visible()
    assert console.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_session_that_ends_is_begun_again_over_the_page(
    console: Page, node: NodeProcess, watch: Watch
) -> None:
    watch.allow("console: Failed to load resource: the server responded with a status of 401")
    console.get_by_role("textbox", name="Script").fill("RETURN 'typed before'")
    node.script("ALTER USER root SET ROLE owner")
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_role("dialog", name="Sign in again")).to_be_visible()
    sign_in(console)
    expect(console.get_by_role("textbox", name="Script")).to_contain_text("typed before")
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("typed before")


def test_keys_are_listed(console: Page) -> None:
    console.locator("main").focus()
    console.keyboard.press("?")
    expect(console.get_by_role("dialog", name="Keyboard")).to_be_visible()
    console.keyboard.press("Escape")
    expect(console.get_by_role("dialog")).to_have_count(0)


def test_the_place_is_chosen(console: Page, node: NodeProcess) -> None:
    node.script("DEFINE NAMESPACE other; DEFINE DATABASE other.two")
    console.get_by_role("button", name="Place").click()
    console.get_by_label("Find, or name one").fill("other.two")
    console.get_by_role("button", name="Go there").click()
    expect(console.locator(".place")).to_contain_text("other.two")
    assert console.url.endswith("#/run/other/two")
