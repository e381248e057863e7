"""The Cluster tab of a node alone: what is declared, each looked up through the API. A cluster of
real nodes is built and broken in `test_cluster_whole.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import IMPORT, Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess

OTHER = "correct horse battery"
FINGERPRINT = "ab12cd34" + "0f" * 28
HOSTILE = "<img src=x onerror=alert(1)> \u202eright to left\u202c"

Told = Callable[[dict[str, Any], dict[str, Any]], Page]
"""Has the page hear what INFO FOR NODE and INFO FOR CLUSTER would say besides."""


def cluster(node: NodeProcess) -> Any:
    return node.script("INFO FOR CLUSTER")["results"][0]["value"]


@pytest.fixture(autouse=True)
def _alone(node: NodeProcess) -> Iterator[None]:
    """No row is left behind."""
    yield
    told = cluster(node)
    for row in sorted(told["replicas"], key=lambda row: row["name"] == told["member"]):
        node.script(f"DROP REPLICA {row['name']}")  # its own is the last to go


def test_a_node_alone_says_what_a_cluster_would_give(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    expect(page.get_by_text("This node is alone")).to_be_visible()
    expect(page.get_by_text("one of them takes over when it is lost")).to_be_visible()
    mine = page.get_by_role("article", name="This node")
    told = node.script("INFO FOR NODE")["results"][0]["value"]
    expect(mine).to_contain_text(told["id"])
    expect(mine).to_contain_text("none: this node has no row")
    expect(page.get_by_role("region", name="Failover")).to_contain_text("There is no policy")


def test_all_nodes_are_declared_in_one_transaction(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    page.get_by_role("button", name="Declare nodes").click()
    dialog = page.get_by_role("dialog")
    act = dialog.get_by_role("button", name="Declare all of them")
    expect(act).to_be_disabled()
    one = dialog.get_by_role("group", name="This node")
    two = dialog.get_by_role("group", name="Node 2")
    one.get_by_label("Address for peers").fill("n1.example:8002")
    two.get_by_label("Address for peers").fill("n2.example:8002")
    two.get_by_label("Addresses for clients").fill("n2.example:8001")
    two.get_by_label("Comment").fill(HOSTILE)
    expect(act).to_be_disabled()
    dialog.get_by_role("group", name="Node 3").get_by_role("button", name="Remove").click()
    expect(dialog.locator(".composed pre")).to_contain_text("BEGIN;\nDEFINE REPLICA `n1` PEER")
    act.click()
    expect(page.get_by_role("article", name="Node n2")).to_contain_text("create a join token")
    expect(page.get_by_role("article", name="Node n2")).to_contain_text(HOSTILE)
    expect(page.get_by_role("article", name="This node")).to_contain_text("n1")
    told = cluster(node)
    assert told["member"] == "n1"
    assert [row["waits"] for row in told["replicas"]] == [False, True]
    assert told["replicas"][0]["roles"] == ["serving", "writable", "coordinating"]
    assert node.script("INFO FOR NODE")["results"][0]["value"]["coordinates"] is True
    assert told["replicas"][1]["endpoints"] == ["n2.example:8001"]


def test_a_row_is_added_and_amended(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    page.get_by_role("button", name="Add a row").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("far")
    dialog.get_by_label("Address for peers").fill("far.example:8002")
    dialog.get_by_label("Known by").select_option("certificate")
    dialog.get_by_label("Fingerprint").fill(FINGERPRINT)
    dialog.get_by_label("coordinating").check()
    dialog.get_by_role("button", name="Add it").click()
    card = page.get_by_role("article", name="Node far")
    card.get_by_role("button", name="Amend").click()
    expect(dialog.get_by_role("button", name="Amend it")).to_be_disabled()
    dialog.get_by_label("Address for peers").fill("near.example:8002")
    dialog.get_by_label("serving").uncheck()
    dialog.get_by_label("coordinating").uncheck()
    expect(dialog.locator(".composed pre")).to_have_text(
        "BEGIN;\nALTER REPLICA `far` SET PEER 'near.example:8002';\n"
        "ALTER REPLICA `far` ROLES NONE;\nCOMMIT"
    )
    dialog.get_by_role("button", name="Amend it").click()
    expect(dialog).to_have_count(0)  # it stands in the card, and says what is to come
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
    page.get_by_role("dialog").get_by_label("Valid for").select_option("10m")
    expect(page.locator(".composed pre")).to_have_text("CREATE JOIN TOKEN FOR `late` EXPIRES 10m")
    page.get_by_role("button", name="Create").click()
    token = page.locator(".token").inner_text()
    assert len(token) > 40
    command = page.locator(".command").inner_text()
    assert command.startswith(f"STORE_JOIN_TOKEN={token}") and "--peer 0.0.0.0:8002" in command
    page.keyboard.press("Escape")  # what is shown once does not go by a key
    page.get_by_role("button", name="Done").click()
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
    expect(page.get_by_role("region", name="Trusted certificates")).to_contain_text(
        "No certificates"
    )
    told = cluster(node)
    assert told["trusted"] == []
    assert [one["certificate"] for one in told["revoked"]] == [FINGERPRINT[::-1]]


def test_roles_of_this_node_down_to_none(
    opened: Opened, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(503))
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


def test_who_may_not_see_the_cluster(page: Page, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(403))
    node.script(f"DEFINE USER IF NOT EXISTS tess ROLE owner ON NAMESPACE shop PASSWORD '{OTHER}'")
    page.goto(f"{origin(node)}/#/cluster")
    sign_in(page, "tess", OTHER)
    expect(page.get_by_role("alert").first).to_contain_text("INFO ON NODE is needed")
    outside = page.get_by_role("region", name="This node")
    expect(outside).to_contain_text("serving, writable")
    expect(outside).to_contain_text("need INFO on the node")


def test_a_viewer_sees_it_and_changes_nothing(page: Page, node: NodeProcess) -> None:
    node.script("DEFINE REPLICA kept PEER 'kept.example:8002'")
    node.script(f"DEFINE USER IF NOT EXISTS vic ROLE viewer PASSWORD '{OTHER}'")
    page.goto(f"{origin(node)}/#/cluster")
    sign_in(page, "vic", OTHER)
    expect(page.get_by_role("article", name="Node kept")).to_contain_text("kept.example:8002")
    expect(page.get_by_text("Changes need an owner of the store")).to_be_visible()
    assert page.get_by_role("main").get_by_role("button").all_inner_texts() == [
        "Refresh", "Row", "Valid until", "Fingerprint", "Since", "Reason", "Fingerprint"
    ]  # fmt: skip


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


# --- building one ---------------------------------------------------------------------------------


def test_building_says_what_is_missing(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/cluster")
    page.get_by_role("link", name="Build a cluster step by step").click()
    expect(page.get_by_role("heading", name="Building a cluster")).to_be_visible()
    steps = page.get_by_role("main").locator("ol > li")
    expect(steps.nth(0)).to_contain_text(f"storenode {node.directory} --http")
    expect(steps.nth(0)).to_contain_text("--peer 0.0.0.0:8002")
    expect(steps.nth(0)).to_have_attribute("aria-current", "step")
    expect(steps.locator(".chip", has_text="later")).to_have_count(5)
    node.script("DEFINE REPLICA far PEER 'far.example:8002' ROLES coordinating")
    far = steps.nth(3).get_by_role("group", name="far")
    far.get_by_role("button", name="Set to serving").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".composed pre")).to_have_text(
        "ALTER REPLICA `far` ROLES serving, coordinating"
    )
    dialog.get_by_role("button", name="Set").click()
    expect(far.get_by_role("button", name="Set to serving")).to_have_count(0)
    assert cluster(node)["replicas"][0]["roles"] == ["serving", "coordinating"]
    far.get_by_role("button", name="Join token").click()
    expect(dialog).to_contain_text("This node does not listen for peers")
    page.keyboard.press("Escape")
    steps.nth(2).get_by_role("button", name="Its roles").click()
    expect(dialog.locator(".composed pre")).to_have_text(
        "DEFINE NODE ROLES serving, writable, coordinating"
    )
    dialog.get_by_role("button", name="Declare").click()
    expect(steps.nth(2)).to_contain_text("it can become the leader")
    node.script("DEFINE NODE ROLES serving, writable")


def test_a_command_says_what_the_node_was_told(modules: Page) -> None:
    """One that keeps less log than before would drop what it has."""
    usual = {
        "directory": "/var/lib/my store", "http": ":8000", "keep_log": None, "slow": {"$dur": "1s"},
        "keep_statements": 100_000, "unseal_for": {"$dur": "10m"}, "log_level": "info",
    }  # fmt: skip
    told = usual | {
        "keep_log": {"$dur": "30d"}, "keep_statements": 500_000, "log_level": "debug",
        "unseal_for": {"$dur": "1h"}, "slow": {"$dur": "20ms"},
    }  # fmt: skip

    def reachable(settings: dict[str, Any]) -> str:
        found: str = modules.evaluate(
            f"""async (told) => {{
              const {{ parse }} = await ({IMPORT})('values.js');
              const {{ reachable }} = await ({IMPORT})('tabs/cluster/commands.js');
              return reachable({{ settings: parse(told) }});
            }}""",
            json.dumps(settings),
        )
        return found

    start = "storenode '/var/lib/my store' --http :8000"
    assert reachable(usual) == f"{start} --peer 0.0.0.0:8002"
    assert reachable(told) == (
        f"{start} --keep-log 30d --keep-statements 500000 --unseal-for 1h --slow 20ms"
        " --log-level debug --peer 0.0.0.0:8002"
    )
    assert "--keep-log 1073741824 " in reachable(usual | {"keep_log": 1 << 30})
    assert "--keep-statements 0 " in reachable(usual | {"keep_statements": 0})


JOINING: list[tuple[str | None, list[str], str]] = [
    ("0.0.0.0:8001", ["n2.example:8001"], " --serve 0.0.0.0:8001"),
    ("10.0.0.1:9001", ["n2.example:9001"], " --serve 0.0.0.0:9001"),
    ("10.0.0.1:9001", ["n2.example"], " --serve 0.0.0.0:8001"),
    ("127.0.0.1:8001", [], " --serve :8001"),
    (None, ["n2.example:8001"], ""),
    (None, ["n2.example"], ""),
]


def test_who_joins_is_told_to_serve_what_this_node_serves(modules: Page) -> None:
    for wire, endpoints, serves in JOINING:
        surfaces = [("http", "127.0.0.1:8000"), *([("wire", wire)] if wire else [])]
        told = {
            "row": {"peer": "n2.example:8002", "endpoints": endpoints},
            "self": {
                "settings": {},
                "surfaces": [{"surface": name, "address": address} for name, address in surfaces],
            },
        }
        command: str = modules.evaluate(
            f"""async ({{ row, self }}) => {{
              const {{ joining }} = await ({IMPORT})('tabs/cluster/commands.js');
              return joining(row, self, 'token');
            }}""",
            told,
        )
        serving = f"--http :8000{serves} --peer 0.0.0.0:8002"
        assert command.endswith(f" storenode /var/lib/store {serving}"), (wire, endpoints)


def test_a_policy_is_said_in_words_before_it_is_composed(
    opened: Opened, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(400))
    rows = (f"DEFINE REPLICA r{n} PEER 'r{n}.example:8002'" for n in range(3))
    node.script("; ".join(rows))
    page = opened("#/cluster")
    page.get_by_role("button", name="Define a policy").click()
    dialog = page.get_by_role("dialog")
    via, acks = dialog.get_by_label("Addresses of etcd"), dialog.get_by_label("ACKS")
    expect(acks).to_have_value("1")
    expect(dialog).to_contain_text("one node may be lost without losing it")
    expect(dialog).to_contain_text("Of 3 nodes one follower may be away")
    acks.fill("2")
    expect(dialog).to_contain_text("With 3 nodes, all are needed")
    acks.fill("0")
    expect(dialog).to_contain_text("acknowledged commits may be lost")
    acks.fill("9")
    expect(dialog).to_contain_text("too few for this many followers")
    acks.fill("1")
    dialog.get_by_label("PROMOTE").select_option("MANUAL")
    expect(dialog).to_contain_text("no node takes over until Take the lead is pressed")
    expect(dialog.locator(".composed")).to_have_count(0)
    via.fill("http://user:secret@127.0.0.1:1")
    expect(dialog).to_contain_text("Only http or https, a host and a port")
    expect(dialog.locator(".composed")).to_have_count(0)
    via.fill("http://127.0.0.1:1\nhttp://127.0.0.1:2")
    expect(dialog.locator(".composed pre")).to_have_text(
        "DEFINE FAILOVER VIA 'http://127.0.0.1:1', 'http://127.0.0.1:2' LEASE 5s ACKS 1 BEHIND 2s"
        " PROMOTE MANUAL"
    )
    dialog.get_by_role("button", name="Define").click()
    expect(dialog.get_by_role("alert")).to_contain_text("was not declared coordinating")
    assert cluster(node)["failover"] is None


# --- what only a cluster has: answers of the node, with that told which a cluster would tell ------

FAR = "6f3a2c1e-8a54-4be2-9d0a-3a5c0e1f7b11"


def asked(route: Route) -> str:
    body = route.request.post_data_json
    assert body is not None
    return str(body["script"])


@pytest.fixture
def told(opened: Opened, console: Page, node: NodeProcess) -> Iterator[Told]:
    """Has the page hear more than the node says, and opens the tab."""
    node.script(
        f"DEFINE REPLICA far PEER 'far.example:8002' ENDPOINTS 'far.example:8001' NODE '{FAR}'"
    )

    def hear(about_node: dict[str, Any], about_cluster: dict[str, Any]) -> Page:
        page = opened("#/run")

        def change(route: Route) -> None:
            if not asked(route).startswith("INFO FOR NODE;"):
                route.continue_()
                return
            answer = route.fetch()
            found = answer.json()
            for result, more in zip(found["results"], (about_node, about_cluster), strict=True):
                result["value"] |= more
            route.fulfill(response=answer, json=found)

        page.route("**/script", change)
        return opened("#/cluster")

    yield hear
    console.unroute_all(behavior="ignoreErrors")


POLICY = {
    "via": ["http://etcd:2379"], "lease": {"$dur": "5s"}, "acks": 1, "behind": {"$dur": "2s"},
    "promote": "MANUAL", "since": None, "in_force": True,
}  # fmt: skip
FOLLOWS = {
    "life": "following", "leader": FAR, "upstream": "in sync", "upstream_silent": {"$dur": "200ms"},
    "upstream_why": None,
}  # fmt: skip


def test_a_follower_names_who_leads_and_offers_nothing_that_is_refused(told: Told) -> None:
    page = told(FOLLOWS, {"failover": POLICY})
    expect(page.get_by_text("This node is read-only: the leader is far")).to_be_visible()
    link = page.get_by_role("status").get_by_role("link", name="far.example:8001")
    expect(link).to_have_attribute("href", "http://far.example:8001/#/cluster")
    expect(page.get_by_role("article", name="This node")).to_contain_text("in sync")
    far = page.get_by_role("article", name="Node far")
    expect(far).to_contain_text("leads")
    expect(far.get_by_role("button")).to_have_count(0)
    expect(page.get_by_role("button", name="Add a row")).to_have_count(0)
    expect(page.get_by_role("article", name="This node").get_by_role("button")).to_have_text(
        ["Roles"]
    )


def test_a_leader_that_releases_nothing_says_what_it_waits_for(told: Told) -> None:
    held_up = {
        "life": "leading",
        "leader": FAR,
        "lease": {"$dur": "4s"},
        "waits_for": "far: 0 of 1",
    }
    own = told(held_up, {"failover": POLICY}).get_by_role("article", name="This node")
    expect(own).to_contain_text("leads, held up")
    expect(own).to_contain_text("waiting for far: 0 of 1")


def test_a_stranded_node_says_what_helps(told: Told) -> None:
    stranded = FOLLOWS | {"upstream": "stranded", "waits_for": "stop far, and start this one"}
    own = told(stranded, {"failover": POLICY}).get_by_role("article", name="This node")
    expect(own).to_contain_text("stop far, and start this one")


def test_beginning_anew_says_its_price_and_wants_a_reason(
    told: Told, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(404))
    page = told(
        {"life": "waiting", "leader": None, "waits_for": "etcd was emptied"}, {"failover": POLICY}
    )
    expect(page.get_by_text("No leader is known")).to_be_visible()
    expect(page.get_by_text("etcd was emptied").first).to_be_visible()
    page.get_by_text("Move the lead").click()
    page.get_by_role("button", name="Force the lead").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Acknowledged commits that this node lacks are lost")
    act = dialog.get_by_role("button", name="Force")
    dialog.get_by_label("Type the name of this node again").fill("this node")
    expect(act).to_be_disabled()
    dialog.get_by_label("Reason").fill("both burnt")
    expect(dialog.locator(".composed pre")).to_have_text(
        "DEFINE NODE LEADS STORE FORCE REASON 'both burnt'"
    )
    act.click()
    expect(dialog.get_by_text("there is no failover policy in force")).to_be_visible()


def test_what_a_leader_knows_of_its_followers(told: Told) -> None:
    behind = {"node": FAR, "standing": "catching up", "lag": 12, "silent": {"$dur": "8s"},
              "in_set": False}  # fmt: skip
    leads = {"life": "leading", "lease": {"$dur": "4s300ms"}, "epoch": 7, "followers": 1,
             "furthest_lag": 12, "downstream": [behind]}  # fmt: skip
    page = told(leads, {"failover": POLICY})
    far = page.get_by_role("article", name="Node far")
    expect(far).to_contain_text("catching up")
    expect(far).to_contain_text("lacks 12 commits, no contact for 8.0 s; not in sync")
    lead = page.get_by_role("region", name="Leader")
    expect(lead).to_contain_text("4.3 s left")
    expect(lead).to_contain_text("the one furthest behind lacks 12 commits")
    assert findings(page) == []
    assert overflow(page) == []


def test_what_is_known_of_a_policy_and_its_etcd(told: Told) -> None:
    page = told({"etcd_faults": ["3.4.23: <b>it may go back"]}, {"failover": POLICY})
    policy = page.get_by_role("region", name="Failover")
    expect(policy).to_contain_text("3.4.23: <b>it may go back")
    expect(policy.get_by_role("button", name="Drop the policy")).to_have_count(0)


def test_a_policy_that_is_not_in_force_is_dropped_behind_a_word(
    told: Told, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(404))
    page = told({}, {"failover": POLICY | {"in_force": False}})
    expect(page.get_by_text("Not in force on this node")).to_be_visible()
    page.get_by_role("button", name="Drop the policy").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".composed pre")).to_have_text("DROP FAILOVER")
    dialog.get_by_label("Type the word again").fill("failover")
    dialog.get_by_role("button", name="Drop it").click()
    expect(dialog.get_by_text("there is no failover policy")).to_be_visible()


def test_a_certificate_that_ends_soon_is_warned_of(told: Told) -> None:
    ends = (datetime.now(UTC) + timedelta(days=13, hours=1)).isoformat()
    soon = {"certificate": FINGERPRINT, "replica": "far", "expires": {"$dt": ends}, "days_left": 13}
    page = told({}, {"trusted": [soon]})
    expect(page.get_by_text("A certificate expires within 14 days")).to_be_visible()
    expect(page.get_by_role("article", name="Node far")).to_contain_text("13 days left")
