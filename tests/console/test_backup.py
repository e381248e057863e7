"""The Backup tab: each form, the folder, restoring a script, downloading, and what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess, serving

SERVES = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")
HOSTILE = "<img src=x onerror=alert(1)>.storesnap"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[NodeProcess]:
    store = tmp_path_factory.mktemp("backup") / "store"
    with serving(store, *SERVES, "--backup-dir", str(folder)) as found:
        answer = found.script(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
            " DEFINE TABLE person; CREATE person:1 SET name = 'Ann';"
            " DEFINE USER reader ROLE viewer PASSWORD 'a better horse'"
        )
        assert "error" not in answer, answer
        yield found


@pytest.fixture
def tab(opened: Opened) -> Page:
    page = opened("#/backup")
    expect(page.get_by_role("heading", name="Backup", exact=True)).to_be_visible()
    return page


def listed(node: NodeProcess) -> dict[str, dict[str, Any]]:
    (result,) = node.script("INFO FOR BACKUPS")["results"]
    return {str(one["path"]): one for one in result["value"]}


def composed(page: Page | Locator) -> str:
    return page.locator(".composed pre").first.inner_text()


def taken(page: Page) -> None:
    page.get_by_role("button", name="Back up", exact=True).click()
    expect(page.locator(".notice.well")).to_contain_text("Backed up")


def test_a_snapshot_of_the_store_is_the_default(tab: Page, node: NodeProcess) -> None:
    tab.get_by_label("Name", exact=True).fill("night/monday.storesnap")
    tab.get_by_label("Reason").fill("before the sale")
    assert composed(tab) == "BACKUP TO 'night/monday.storesnap'"
    taken(tab)
    expect(tab.locator(".notice.well")).to_contain_text("night/monday.storesnap")
    found = listed(node)["night/monday.storesnap"]
    assert found["form"] == "snapshot" and found["verifies"]
    files = tab.get_by_role("region", name="Files of the backup folder")
    expect(files).to_contain_text("night/monday.storesnap")
    expect(files.locator(".chip.well").first).to_have_text("whole")
    (kept, *_) = node.script("INFO FOR STATEMENTS LIMIT 1")["results"][0]["value"]
    assert kept["statement"] == "BACKUP TO 'night/monday.storesnap'"
    assert kept["reason"] == "before the sale"
    last = tab.get_by_role("region", name="The last backups and restores")
    expect(last).to_contain_text("before the sale")


def test_a_log_from_a_commit(tab: Page, node: NodeProcess) -> None:
    tab.get_by_label("Form").select_option("log")
    tab.get_by_label("From commit").fill("x")
    expect(tab.get_by_role("button", name="Back up", exact=True)).to_be_disabled()
    tab.get_by_label("From commit").fill("2")
    tab.get_by_label("Name", exact=True).fill("tail.storelog")
    assert composed(tab) == "BACKUP LOG FROM 2 TO 'tail.storelog'"
    taken(tab)
    assert listed(node)["tail.storelog"]["form"] == "log"


def test_a_part_and_its_restore(tab: Page, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(409))
    tab.get_by_label("Form").select_option("script")
    tab.get_by_label("Of", exact=True).select_option("part")
    tab.get_by_label("Which, comma-separated").fill("shop.main, a b")
    expect(tab.get_by_text("a b is not a namespace or database")).to_be_visible()
    tab.get_by_label("Which, comma-separated").fill("shop.main")
    tab.get_by_label("Name", exact=True).fill("main.storeql")
    assert composed(tab) == "BACKUP SCRIPT OF `shop`.`main` TO 'main.storeql'"
    taken(tab)
    tab.get_by_role("button", name="Restore main.storeql").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("RestoreTargetExists")
    expect(dialog.get_by_role("link", name="under another name")).to_be_visible()
    expect(dialog.get_by_role("button", name="Go on")).to_have_count(0)
    tab.keyboard.press("Escape")
    node.script("DROP DATABASE shop.main")
    tab.get_by_role("button", name="Restore main.storeql").click()
    expect(dialog).to_contain_text("shop.main")
    dialog.get_by_role("button", name="Go on").click()
    assert composed(dialog) == "RESTORE SCRIPT FROM 'main.storeql'"
    act = dialog.get_by_role("button", name="Restore", exact=True)
    expect(act).to_be_disabled()
    dialog.get_by_label("Type the path again").fill("main.storeql")
    dialog.get_by_label("Reason").fill("it was dropped")
    act.click()
    expect(tab.locator(".notice.well", has_text="Restored")).to_contain_text("shop.main")
    answer = node.script("SELECT name FROM person", ns="shop", db="main")
    assert answer["results"][0]["value"] == [{"name": "Ann"}]
    last = tab.get_by_role("region", name="The last backups and restores")
    expect(last).to_contain_text("it was dropped")


def test_a_download_says_its_size_and_is_what_the_node_made(tab: Page, tmp_path: Path) -> None:
    """As a browser does it that can't write to a file by itself."""
    tab.evaluate("() => { window.showSaveFilePicker = undefined; }")
    tab.get_by_label("To", exact=True).select_option("here")
    assert composed(tab) == "GET /backup"
    tab.get_by_role("button", name="Create").click()
    offer = tab.locator(".notice.warning")
    expect(offer).to_contain_text(".storesnap")
    digest = offer.locator("dd").nth(3).inner_text()
    with tab.expect_download() as waiting:
        offer.get_by_role("button", name="Download").click()
    path = tmp_path / "found"
    waiting.value.save_as(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert waiting.value.suggested_filename.endswith(".storesnap")
    expect(tab.locator(".notice.well")).to_contain_text("Downloaded")


def test_a_download_goes_to_a_file_part_by_part(tab: Page) -> None:
    tab.evaluate("""() => { window.parts = [];
      window.showSaveFilePicker = async () => ({ createWritable: async () =>
        new WritableStream({ write(some) { window.parts.push(some.byteLength); } }) }); }""")
    tab.get_by_label("Form").select_option("log")
    tab.get_by_label("To", exact=True).select_option("here")
    assert composed(tab) == "GET /backup?as=log"
    tab.get_by_role("button", name="Create").click()
    tab.get_by_role("button", name="Download").click()
    shown = tab.locator(".notice.well")
    expect(shown).to_contain_text("Downloaded")
    came = tab.evaluate("window.parts.reduce((sum, one) => sum + one, 0)")
    assert f"{came} bytes" in shown.inner_text()


def test_names_are_refused_in_the_node_s_words(
    tab: Page, node: NodeProcess, folder: Path, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(400), refusal_of(409))
    (folder / HOSTILE).write_bytes(b"not one")
    (folder / "there").write_bytes(b"not one")
    for name, code in (("../monday", "BackupNameRefused"), ("there", "BackupExists")):
        tab.get_by_label("Name", exact=True).fill(name)
        tab.get_by_role("button", name="Back up", exact=True).click()
        expect(tab.locator(".notice.refused")).to_contain_text(code)
    tab.get_by_role("button", name="Refresh").click()
    files = tab.get_by_role("region", name="Files of the backup folder")
    expect(files.locator("bdi", has_text="<img src=x")).to_be_visible()
    assert files.locator("img").count() == 0
    folder.rename(folder.with_name("away"))
    tab.get_by_role("button", name="Refresh").click()
    expect(tab.locator(".notice.refused", has_text="can't be used")).to_be_visible()
    expect(tab.get_by_label("To", exact=True).locator("option")).to_have_count(2)
    folder.with_name("away").rename(folder)


def test_no_owner_of_the_store(page: Page, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(403))
    page.goto(f"{origin(node)}/#/backup")
    sign_in(page, "reader", "a better horse")
    expect(page.locator(".notice.refused").first).to_contain_text("NotAllowed")
    page.get_by_role("button", name="Back up", exact=True).click()
    expect(page.locator(".card .notice.refused")).to_contain_text("NotAllowed")


def test_one_that_is_being_made_is_shown_and_ended(
    tab: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    """What INFO FOR RUNNING says is put in the page's way: a real one is over too soon."""
    one = {
        "id": "r-1", "user": "root", "text": "BACKUP TO 'slow'", "since": {"$dur": "12s"},
        "left": None, "slices": 4, "rows_read": 7, "waiting": False,
    }  # fmt: skip
    killed: list[str] = []

    def answer(route: Any) -> None:
        body = route.request.post_data_json
        if body["script"] == "INFO FOR RUNNING":
            route.fulfill(json={"results": [{"value": [] if killed else [one]}]})
        elif body["script"].startswith("KILL"):
            killed.append(body["script"])
            route.fulfill(json={"results": [{"value": None}]})
        else:
            route.continue_()

    tab.route("**/script", answer)
    tab.reload()
    made = tab.locator(".notice", has_text="Running backup")
    expect(made).to_contain_text("BACKUP TO 'slow'")
    expect(made).to_contain_text("for 12s")
    made.get_by_role("button", name="End…").click()
    tab.get_by_role("dialog").get_by_role("button", name="End", exact=True).click()
    expect(made).to_have_count(0)
    assert killed == ["KILL 'r-1'"]


def test_a_new_node_without_a_folder(tmp_path: Path, page: Page, watch: PageComplaints) -> None:
    """Nothing is refused, and the way to a first script is there."""
    watch.allow(refusal_of(409), refusal_of(503))
    with serving(tmp_path / "store") as other:
        watch.origin = origin(other)
        page.goto(f"{origin(other)}/#/run")
        sign_in(page)
        page.get_by_role("button", name="Write a first script").click()
        expect(page.get_by_role("textbox", name="Script")).to_contain_text("DEFINE NAMESPACE shop;")
        page.get_by_role("button", name="Run", exact=True).click()
        expect(page.locator(".work")).to_contain_text("person:ana")
        page.goto(f"{origin(other)}/#/backup")
        expect(page.locator(".notice.empty")).to_contain_text("This node has no backup folder")
        expect(page.locator(".notice.refused")).to_have_count(0)
        expect(page.get_by_label("To", exact=True).locator("option")).to_have_text(
            ["This computer"]
        )
        other.script("DEFINE NODE ROLES NONE")
        page.get_by_role("button", name="Create", exact=True).click()
        expect(page.locator(".card .notice")).to_contain_text("Draining")
        page.close()


@pytest.mark.hard
def test_it_can_be_seen(tab: Page, node: NodeProcess) -> None:
    node.script("BACKUP SCRIPT OF NAMESPACE shop TO 'seen.storeql'")
    tab.get_by_role("button", name="Refresh").click()
    restore = tab.get_by_role("button", name="Restore seen.storeql")
    expect(restore).to_be_visible()
    tab.get_by_label("To", exact=True).select_option("here")
    tab.get_by_role("button", name="Create").click()
    expect(tab.get_by_role("button", name="Download")).to_be_visible()
    assert findings(tab) == []
    assert overflow(tab) == []
