"""The Cluster tab of a node alone: what is declared, each looked up through the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Opened, Watch, origin, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess

OTHER = "correct horse battery"
FINGERPRINT = "ab12cd34" + "0f" * 28
HOSTILE = "<img src=x onerror=alert(1)> \u202eright to left\u202c"
REFUSED = "console: Failed to load resource: the server responded with a status of {}"


def cluster(node: NodeProcess) -> Any:
    """What INFO FOR CLUSTER says."""
    return node.script("INFO FOR CLUSTER")["results"][0]["value"]


@pytest.fixture(autouse=True)
def _alone(node: NodeProcess) -> Iterator[None]:
    """No row is left behind."""
    yield
    for row in cluster(node)["replicas"]:
        node.script(f"DROP REPLICA {row['name']}")


def test_a_node_alone_says_what_a_cluster_would_give(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    expect(page.get_by_text("This node is alone")).to_be_visible()
    expect(page.get_by_text("A node joins with a token and follows")).to_be_visible()
    mine = page.get_by_role("article", name="This node")
    told = node.script("INFO FOR NODE")["results"][0]["value"]
    expect(mine).to_contain_text(told["id"])
    expect(mine).to_contain_text("none: no row names this node")
    expect(page.get_by_role("region", name="Failover")).to_contain_text("There is no policy")


def test_all_nodes_are_declared_in_one_transaction(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    page.get_by_role("button", name="Declare nodes").click()
    dialog = page.get_by_role("dialog")
    act = dialog.get_by_role("button", name="Declare all of them")
    expect(act).to_be_disabled()
    one = dialog.get_by_role("group", name="This node")
    two = dialog.get_by_role("group", name="Node 2")
    one.get_by_label("Peers reach it at").fill("n1.example:8002")
    two.get_by_label("Peers reach it at").fill("n2.example:8002")
    two.get_by_label("Clients reach it at").fill("n2.example:8001")
    two.get_by_label("Comment").fill(HOSTILE)
    expect(dialog.locator(".composed pre")).to_contain_text("BEGIN;\nDEFINE REPLICA `n1` PEER")
    act.click()
    expect(page.get_by_role("article", name="Node n2")).to_contain_text("waits for its node")
    expect(page.get_by_role("article", name="Node n2")).to_contain_text(HOSTILE)
    expect(page.get_by_role("article", name="This node")).to_contain_text("n1")
    told = cluster(node)
    assert told["member"] == "n1"
    assert [row["waits"] for row in told["replicas"]] == [False, True]
    assert told["replicas"][1]["endpoints"] == ["n2.example:8001"]


def test_one_that_is_refused_leaves_none(opened: Opened, node: NodeProcess, watch: Watch) -> None:
    watch.allow(REFUSED.format(409))
    page = opened("#/cluster")
    page.get_by_role("button", name="Declare nodes").click()
    dialog = page.get_by_role("dialog")
    for group in ("This node", "Node 2"):
        box = dialog.get_by_role("group", name=group)
        box.get_by_label("Peers reach it at").fill("same.example:8002")
    dialog.get_by_role("button", name="Declare all of them").click()
    expect(dialog.get_by_role("alert")).to_contain_text("AlreadyExists")
    assert cluster(node)["replicas"] == []


def test_a_row_is_added_and_amended(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    page.get_by_role("button", name="Add a row").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("far")
    dialog.get_by_label("Peers reach it at").fill("far.example:8002")
    dialog.get_by_label("Known by").select_option("certificate")
    dialog.get_by_label("Fingerprint").fill(FINGERPRINT)
    dialog.get_by_label("coordinating").check()
    dialog.get_by_role("button", name="Add it").click()
    card = page.get_by_role("article", name="Node far")
    card.get_by_role("button", name="Amend").click()
    expect(dialog.get_by_role("button", name="Amend it")).to_be_disabled()
    dialog.get_by_label("Peers reach it at").fill("near.example:8002")
    dialog.get_by_label("serving").uncheck()
    dialog.get_by_label("coordinating").uncheck()
    expect(dialog.locator(".composed pre")).to_have_text(
        "BEGIN;\nALTER REPLICA `far` SET PEER 'near.example:8002';\n"
        "ALTER REPLICA `far` ROLES NONE;\nCOMMIT"
    )
    dialog.get_by_role("button", name="Amend it").click()
    expect(card).to_contain_text("near.example:8002")
    (row,) = cluster(node)["replicas"]
    assert (row["peer"], row["roles"], row["certificate"]) == (
        "near.example:8002",
        [],
        FINGERPRINT,
    )


def test_a_row_is_dropped_behind_its_name(opened: Opened, node: NodeProcess) -> None:
    node.script("DEFINE REPLICA old PEER 'old.example:8002'")
    page = opened("#/cluster")
    page.get_by_role("article", name="Node old").get_by_role("button", name="Drop").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type the name again").fill("ol")
    expect(dialog.get_by_role("button", name="Drop")).to_be_disabled()
    dialog.get_by_label("Type the name again").fill("old")
    dialog.get_by_label("Reason").fill("sold")
    dialog.get_by_role("button", name="Drop").click()
    expect(page.get_by_role("article", name="Node old")).to_have_count(0)
    assert cluster(node)["replicas"] == []
    (entry,) = node.script("INFO FOR STATEMENTS LIMIT 1")["results"][0]["value"]
    assert (entry["statement"], entry["reason"]) == ("DROP REPLICA old", "sold")


def test_a_token_is_shown_once_and_kept_nowhere(opened: Opened, node: NodeProcess) -> None:
    node.script("DEFINE REPLICA late PEER 'late.example:8002'")
    page = opened("#/cluster")
    card = page.get_by_role("article", name="Node late")
    card.get_by_role("button", name="Join token").click()
    page.get_by_role("dialog").get_by_label("It lasts").select_option("10m")
    expect(page.locator(".composed pre")).to_have_text("CREATE JOIN TOKEN FOR `late` EXPIRES 10m")
    page.get_by_role("button", name="Make it").click()
    token = page.locator(".token").inner_text()
    assert len(token) > 40
    page.get_by_role("button", name="I have it").click()
    expect(card).to_contain_text("until")
    assert token not in page.content()
    assert cluster(node)["replicas"][0]["token_expires"] is not None
    assert token not in repr(node.script("INFO FOR STATEMENTS; INFO FOR AUDIT"))


def test_a_certificate_is_revoked_behind_its_first_digits(
    opened: Opened, node: NodeProcess
) -> None:
    node.script(f"DEFINE REPLICA lost PEER 'lost.example:8002' CERTIFICATE '{FINGERPRINT[::-1]}'")
    page = opened("#/cluster")
    page.get_by_role("button", name=f"Revoke {FINGERPRINT[::-1][:8]}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Revoke")).to_be_disabled()
    dialog.get_by_label("first eight digits").fill(FINGERPRINT[::-1][:8])
    dialog.get_by_label("Reason").fill("its disk was sold")
    dialog.get_by_role("button", name="Revoke").click()
    revoked = page.get_by_role("region", name="Revoked certificates")
    expect(revoked).to_contain_text("its disk was sold")
    expect(page.get_by_role("region", name="Trusted certificates")).to_contain_text("No row")
    told = cluster(node)
    assert told["trusted"] == []
    assert [one["certificate"] for one in told["revoked"]] == [FINGERPRINT[::-1]]


def test_roles_of_this_node_down_to_none(opened: Opened, node: NodeProcess, watch: Watch) -> None:
    watch.allow(REFUSED.format(503))
    page = opened("#/cluster")
    mine = page.get_by_role("article", name="This node")
    mine.get_by_role("button", name="Roles").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("serving").uncheck()
    dialog.get_by_label("writable").uncheck()
    expect(dialog.locator(".composed pre")).to_have_text("DEFINE NODE ROLES NONE")
    dialog.get_by_label("serving").check()
    dialog.get_by_role("button", name="Declare").click()
    expect(mine.locator(".chip").filter(has_text="writable")).to_have_count(0)
    assert node.script("INFO FOR NODE")["results"][0]["value"]["roles"] == ["serving"]
    node.script("DEFINE NODE ROLES serving, writable")


def test_who_may_not_see_the_cluster(page: Page, node: NodeProcess, watch: Watch) -> None:
    watch.allow(REFUSED.format(403))
    node.script(f"DEFINE USER IF NOT EXISTS tess ROLE owner ON NAMESPACE shop PASSWORD '{OTHER}'")
    page.goto(f"{origin(node)}/#/cluster")
    sign_in(page, "tess", OTHER)
    expect(page.get_by_role("alert").first).to_contain_text("INFO ON NODE is needed")


def test_a_viewer_sees_it_and_changes_nothing(page: Page, node: NodeProcess, watch: Watch) -> None:
    watch.allow(REFUSED.format(403))
    node.script("DEFINE REPLICA kept PEER 'kept.example:8002'")
    node.script(f"DEFINE USER IF NOT EXISTS vic ROLE viewer PASSWORD '{OTHER}'")
    page.goto(f"{origin(node)}/#/cluster")
    sign_in(page, "vic", OTHER)
    page.get_by_role("article", name="Node kept").get_by_role("button", name="Drop").click()
    page.get_by_label("Type the name again").fill("kept")
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("OWNER OF STORE")
    assert len(cluster(node)["replicas"]) == 1


@pytest.mark.hard
def test_it_is_accessible(opened: Opened, node: NodeProcess) -> None:
    node.script(
        f"DEFINE REPLICA one PEER 'one.example:8002' COMMENT '{HOSTILE}';"
        f"DEFINE REPLICA two PEER 'two.example:8002' CERTIFICATE '{FINGERPRINT[1:]}0'"
    )
    page = opened("#/cluster")
    expect(page.get_by_role("article", name="Node two")).to_be_visible()
    assert findings(page) == []
    assert overflow(page) == []
    page.get_by_role("button", name="Declare nodes").click()
    assert findings(page) == []


def test_a_row_is_dropped_by_the_keyboard_alone(opened: Opened, node: NodeProcess) -> None:
    node.script("DEFINE REPLICA keyed PEER 'keyed.example:8002'")
    page = opened("#/cluster")
    card = page.get_by_role("article", name="Node keyed")
    card.get_by_role("button", name="Amend").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Drop")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Type the name again")).to_be_focused()
    page.keyboard.press("Escape")
    expect(card.get_by_role("button", name="Drop")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("keyed")
    page.keyboard.press("Enter")
    expect(card).to_have_count(0)
    assert cluster(node)["replicas"] == []
