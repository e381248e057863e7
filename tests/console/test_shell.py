"""What stands around every tab."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from bench.ports import free_port
from tests.console.conftest import ELSEWHERE, Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import PASSWORD, NodeProcess

GONE = "console: Failed to load resource: net::ERR_"


def test_a_wrong_password_is_refused_in_the_node_s_words(
    page: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(401))
    page.goto(origin(node))
    page.get_by_label("User", exact=True).fill("root")
    page.get_by_label("Password", exact=True).fill("not it")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("SignInRefused")
    expect(page.get_by_label("Password", exact=True)).to_have_value("")


@pytest.mark.own_page
def test_signing_in_and_out(console: Page, node: NodeProcess) -> None:
    expect(console.get_by_role("navigation", name="Tabs")).to_be_visible()
    expect(console.locator(".condition")).to_contain_text("ready")
    console.locator(".menu summary").click()
    console.get_by_role("button", name="Sign out").click()
    expect(console.get_by_label("Password", exact=True)).to_be_visible()
    assert console.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_session_that_ends_is_begun_again_over_the_page(
    console: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(401))
    expect(console.locator(".browse")).to_contain_text("nothing")  # then the page asks no more
    console.get_by_role("textbox", name="Script").fill("RETURN 'typed before'")
    node.script("ALTER USER root SET ROLE owner")
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_role("dialog", name="Sign in again")).to_be_visible()
    sign_in(console)
    expect(console.get_by_role("textbox", name="Script")).to_contain_text("typed before")
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("typed before")


@pytest.mark.own_page
def test_who_comes_after_somebody_sees_nothing_of_it(
    console: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(401), refusal_of(403))
    node.script(f"DEFINE USER next ROLE member PASSWORD '{PASSWORD}'")
    console.get_by_role("textbox", name="Script").fill("RETURN 'typed before'")
    console.get_by_role("button", name="Run", exact=True).click()
    expect(console.get_by_label("Result 1", exact=True)).to_contain_text("typed before")
    console.locator(".menu summary").click()
    console.get_by_role("button", name="Sign out").click()
    sign_in(console, "next")
    expect(console.get_by_role("textbox", name="Script")).not_to_contain_text("typed before")
    expect(console.locator(".results")).to_have_count(0)
    console.get_by_role("link", name="History", exact=True).click()
    expect(console.locator("main")).to_contain_text("No statements yet")


def test_an_address_of_no_place_shows_no_other_one(opened: Opened) -> None:
    for address in ("#/topics/no%20name/main", "#/run/1x/y/table/t", "#/topics/shop"):
        page = opened(address)
        expect(page.get_by_text("Page not found")).to_be_visible()
        opened("#/topics/shop/main")
        expect(page.get_by_role("button", name="New topic")).to_be_visible()


@pytest.mark.own_page
def test_a_node_of_another_version_is_told(console: Page, node: NodeProcess) -> None:
    expect(console.locator(".condition")).to_contain_text("ready")

    def later(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "version": "9.0.0"})

    console.route("**/health", later)
    console.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(console.locator(".banners")).to_contain_text("The node has version 9.0.0 now")
    expect(console.locator(".banners").get_by_role("button", name="Reload")).to_be_visible()


@pytest.mark.parametrize(
    ("address", "not_offered"),
    [
        ("#/run/shop/main/space/nope", "Set a key"),
        ("#/vault/shop/main/nope", "List"),
        ("#/topics/shop/main/nope", "Publish"),
    ],
)
def test_of_what_is_not_there_nothing_is_offered(
    opened: Opened, watch: PageComplaints, address: str, not_offered: str
) -> None:
    watch.allow(refusal_of(404))
    page = opened(address)
    expect(page.get_by_text("Not found").first).to_be_visible()
    expect(page.get_by_role("button", name=not_offered, exact=True)).to_have_count(0)


def test_keys_are_listed(console: Page) -> None:
    console.locator("main").focus()
    console.keyboard.press("?")
    expect(console.get_by_role("dialog", name="Keyboard")).to_be_visible()
    console.keyboard.press("Escape")
    expect(console.get_by_role("dialog")).to_have_count(0)


def test_the_place_is_chosen(console: Page, node: NodeProcess) -> None:
    node.script("DEFINE NAMESPACE other; DEFINE DATABASE other.two")
    console.get_by_role("button", name="Place").click()
    console.get_by_label("Find or create").fill("other.two")
    console.get_by_role("button", name="Open").click()
    expect(console.locator(".place")).to_contain_text("other.two")
    assert console.url.endswith("#/run/other/two")


def test_the_page_of_who_is_not_signed_in_is_for_everybody(page: Page, node: NodeProcess) -> None:
    page.goto(origin(node))
    page.get_by_text("First statements").click()
    expect(page.locator("pre")).to_contain_text(f"curl -u root {origin(node)}/script")
    assert findings(page) == []
    assert overflow(page) == []


def test_a_session_is_kept_if_that_is_ticked(page: Page, node: NodeProcess) -> None:
    page.goto(origin(node))
    page.get_by_label("Stay signed in").check()
    sign_in(page)
    page.reload()
    expect(page.get_by_role("navigation", name="Tabs")).to_be_visible()
    kept = page.evaluate("JSON.stringify({ ...sessionStorage, ...localStorage })")
    assert PASSWORD not in kept
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    expect(page.get_by_label("Password", exact=True)).to_be_visible()


def test_signing_out_ends_the_session_on_the_node(console: Page, node: NodeProcess) -> None:
    with console.expect_request("**/session") as asked:
        console.locator(".menu summary").click()
        console.get_by_role("button", name="Sign out").click()
    token = asked.value.headers["authorization"]
    answer = asked.value.response()
    assert answer is not None and answer.status == 204
    reply = node.request("POST", "/script", "RETURN 1", {"Authorization": token}, user=None)
    assert (reply.status, reply.json["error"]["code"]) == (401, "SessionEnded")


@pytest.mark.own_page
def test_light_and_dark_by_choice(console: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    console.emulate_media(color_scheme="light")
    light = console.evaluate(ground)
    console.locator(".menu summary").click()
    console.get_by_label("dark").check()
    dark = console.evaluate(ground)
    assert dark != light
    console.reload()
    expect(console.get_by_label("Password", exact=True)).to_be_visible()
    assert console.evaluate(ground) == dark


def test_over_a_clear_connection_from_elsewhere_a_warning_stands(
    page: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    node.script(f"DEFINE NODE ENDPOINTS '{ELSEWHERE}'")
    watch.origin = f"http://{ELSEWHERE}:{node.address('http')[1]}"
    watch.allow("console: The Cross-Origin-Opener-Policy header has been ignored")
    page.goto(watch.origin)
    warning = page.get_by_text("This connection is not encrypted")
    expect(warning).to_be_visible()
    sign_in(page)
    expect(page.get_by_role("navigation", name="Tabs")).to_be_visible()
    expect(warning).to_be_visible()
    assert findings(page) == []


def test_a_drained_node_says_so_and_its_refusal_is_shown(
    console: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(503))
    node.script("DEFINE NODE ROLES NONE")
    try:
        console.get_by_role("textbox", name="Script").fill("RETURN 1")
        console.get_by_role("button", name="Run", exact=True).click()
        expect(console.locator(".results .notice.drained")).to_contain_text("Draining")
        expect(console.locator(".banners")).to_contain_text("This node is drained")
        expect(console.locator(".condition")).to_contain_text("no roles")
    finally:
        node.script("DEFINE NODE ROLES serving, writable")


def test_who_is_of_a_place_finds_itself_there(page: Page, node: NodeProcess) -> None:
    node.script(f"DEFINE USER tenant ROLE owner ON DATABASE shop.main PASSWORD '{PASSWORD}'")
    page.goto(origin(node))
    sign_in(page, "tenant")
    expect(page.locator(".place")).to_contain_text("shop.main")
    expect(page.locator(".menu")).to_contain_text("owner of shop.main")


def test_an_address_that_leads_nowhere_says_so(opened: Opened) -> None:
    page = opened("#/nowhere/%E0%A4%A/x")
    expect(page.get_by_text("Page not found")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("textbox", name="Script")).to_be_visible()


def test_keys_alone_lead_through_it(page: Page, node: NodeProcess) -> None:
    page.goto(f"{origin(node)}/#/run/shop/main")
    expect(page.get_by_label("User", exact=True)).to_be_focused()
    page.keyboard.type("root")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Script")).to_be_visible()
    expect(page.locator("main")).to_be_focused()
    page.get_by_text("To the contents").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("2")
    expect(page.get_by_role("navigation", name="Tabs").locator("[aria-current]")).to_have_text(
        "Topics"
    )
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("main")).to_be_focused()


def test_a_node_that_is_gone_is_found_again_and_nothing_typed_is_lost(
    tmp_path: Path, page: Page, watch: PageComplaints
) -> None:
    words = ("--http", f"127.0.0.1:{free_port()}", "--serve", "127.0.0.1:0")
    node = NodeProcess(tmp_path / "store", words).start()
    try:
        watch.origin = origin(node)
        watch.allow(refusal_of(401), GONE)
        page.goto(f"{watch.origin}/#/run")
        sign_in(page)
        editor = page.get_by_role("textbox", name="Script")
        editor.fill("RETURN 'typed before'")
        node.kill()
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.locator(".results")).to_contain_text("No answer")
        expect(page.locator(".banners")).to_contain_text("The node does not respond")
        node = NodeProcess(tmp_path / "store", words).start()
        expect(page.get_by_role("dialog", name="Sign in again")).to_be_visible()
        expect(page.locator(".banners")).not_to_contain_text("does not answer")
        sign_in(page)
        expect(editor).to_contain_text("typed before")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.get_by_label("Result 1", exact=True)).to_contain_text("typed before")
    finally:
        node.end()
