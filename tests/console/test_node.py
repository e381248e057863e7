"""The tab of this node: what it shows is what the node says, and each action's effect."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.certificates import self_signed
from tests.console.conftest import IMPORT, Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import PASSWORD, USER, NodeProcess, serving

OTHER = "correct horse battery"


def info(node: NodeProcess) -> Any:
    return node.script("INFO FOR NODE")["results"][0]["value"]


def test_what_it_shows_is_what_the_node_says(opened: Opened, node: NodeProcess) -> None:
    page = opened("#/node")
    told = info(node)
    about = page.get_by_role("region", name="Identity")
    for word in ("version", "store", "id"):
        expect(about).to_contain_text(told[word])
    expect(about).to_contain_text(told["settings"]["directory"])
    answers = page.get_by_role("region", name="Endpoints")
    for surface in told["surfaces"]:
        expect(answers).to_contain_text(f"{surface['surface']} {surface['address']}")
        assert surface["connections_most"] > surface["connections"] >= 0
    expect(answers.get_by_text("no TLS")).to_have_count(2)
    holds = page.get_by_role("region", name="Storage")
    expect(holds).to_contain_text("commit 1 to ")
    assert told["log_bytes"] > 0
    expect(holds).to_contain_text("resident")
    holds.get_by_role("button", name="Compute").click()
    expect(holds.get_by_text("at commit")).to_be_visible()


def test_it_is_drained_and_resumed(
    opened: Opened, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(503))
    page = opened("#/node")
    stands = page.get_by_role("region", name="Status")
    stands.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog", name="Drain this node")
    expect(dialog.locator(".composed pre")).to_have_text("DEFINE NODE ROLES NONE")
    dialog.get_by_role("button", name="Drain it").click()
    expect(stands).to_contain_text("none: drained")
    expect(page.locator(".banners")).to_contain_text("This node is drained")
    expect(page.locator(".condition")).to_contain_text("drained")
    assert node.script("RETURN 1")["error"]["code"] == "Draining"
    page.evaluate("location.hash = '#/access'")
    expect(page.get_by_text("This node serves no clients")).to_be_visible()
    page.evaluate("location.hash = '#/node'")
    stands.get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog", name="Resume")
    dialog.get_by_label("Reason").fill("a new disk")
    expect(dialog.locator(".composed pre")).to_have_text("DEFINE NODE ROLES serving, writable")
    dialog.get_by_role("button", name="Declare").click()
    expect(stands).not_to_contain_text("drained")
    expect(page.locator(".banners")).not_to_contain_text("drained")
    expect(dialog).to_be_hidden()  # roles are in force before their statement is answered
    assert info(node)["roles"] == ["serving", "writable"]
    kept = node.script("INFO FOR STATEMENTS LIMIT 9")["results"][0]["value"]
    # In whichever order: what a drained node could not commit comes when it can, and behind.
    declared = {"DEFINE NODE ROLES serving, writable"}
    assert [one["reason"] for one in kept if one["statement"] in declared] == ["a new disk"]


def test_roles_are_ticked(opened: Opened, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(503))
    page = opened("#/node")
    page.get_by_role("button", name="Roles").click()
    dialog = page.get_by_role("dialog", name="Roles of this node")
    expect(dialog.get_by_role("button", name="Declare")).to_be_disabled()
    dialog.get_by_label("serving").uncheck()
    dialog.get_by_label("coordinating").check()
    expect(dialog.locator(".composed pre")).to_have_text("DEFINE NODE ROLES writable, coordinating")
    dialog.get_by_role("button", name="Declare").click()
    stands = page.get_by_role("region", name="Status")
    expect(stands).to_contain_text("not_serving")
    expect(stands).to_contain_text("the role serving is missing")
    assert info(node)["roles"] == ["writable", "coordinating"]
    page.get_by_role("button", name="Roles").click()
    dialog.get_by_label("writable").uncheck()
    dialog.get_by_label("coordinating").uncheck()
    expect(dialog.locator(".composed pre")).to_have_text("DEFINE NODE ROLES NONE")
    expect(dialog).to_contain_text("This drains the node")
    dialog.get_by_label("serving").check()
    dialog.get_by_label("writable").check()
    dialog.get_by_role("button", name="Declare").click()
    expect(stands.locator(".chip").first).to_have_text("ready")


def test_endpoints_and_origins(opened: Opened, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(400))
    page = opened("#/node")
    page.get_by_role("button", name="Endpoints and origins").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Endpoints").fill("db1.example:8001\ndb2.example:8001")
    dialog.get_by_label("Origins").fill("not an origin'; <b>")
    dialog.get_by_role("button", name="Declare").click()
    expect(dialog.get_by_role("alert")).to_contain_text("BadRequest")
    assert info(node)["endpoints"] == []
    dialog.get_by_label("Origins").fill("https://app.example")
    expect(dialog.locator(".composed pre")).to_have_text(
        "DEFINE NODE ENDPOINTS 'db1.example:8001', 'db2.example:8001' ORIGINS 'https://app.example'"
    )
    dialog.get_by_role("button", name="Declare").click()
    expect(dialog).to_have_count(0)
    about = page.get_by_role("region", name="Identity")
    expect(about).to_contain_text("db2.example:8001")
    expect(about).to_contain_text("https://app.example")
    told = info(node)
    assert told["endpoints"] == ["db1.example:8001", "db2.example:8001"]
    assert told["origins"] == ["https://app.example"]
    page.get_by_role("button", name="Endpoints and origins").click()
    dialog.get_by_label("Endpoints").fill("")
    expect(dialog.get_by_role("button", name="Declare")).to_be_disabled()
    dialog.get_by_label("Endpoints").fill("db1.example:8001")
    dialog.get_by_label("Origins").fill("")
    dialog.get_by_role("button", name="Declare").click()
    expect(about).not_to_contain_text("app.example")
    assert info(node)["origins"] == []


def test_what_runs_is_ended(opened: Opened, node: NodeProcess) -> None:
    node.script("DEFINE TOPIC IF NOT EXISTS slow", ns="shop", db="main")
    said: list[Any] = []

    def wait() -> None:
        text = "READ FROM slow AFTER 0 WAIT 60s; RETURN '<img src=x onerror=alert(1)>'"
        said.append(node.script(text, ns="shop", db="main"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    page = opened("#/node")
    table = page.get_by_role("region", name="Running scripts")
    row = table.get_by_role("row", name="READ FROM slow")
    expect(row).to_be_visible()
    row.get_by_role("button", name="End").click()
    dialog = page.get_by_role("dialog", name="End a running script")
    expect(dialog.locator(".composed pre")).to_contain_text("KILL '")
    dialog.get_by_label("Reason").fill("too slow")
    dialog.get_by_role("button", name="End").click()
    expect(dialog).to_have_count(0)
    waiting.join(30)
    assert said[0]["error"]["code"] == "Cancelled"
    expect(row).to_have_count(0)
    (entry,) = node.script("INFO FOR STATEMENTS LIMIT 1")["results"][0]["value"]
    assert entry["statement"].startswith("KILL '")
    assert entry["reason"] == "too slow"


def test_figures_come_by_themselves(opened: Opened) -> None:
    page = opened("#/node")
    figures = page.get_by_role("region", name="Figures")
    answers = figures.locator("figure").filter(has_text="Responses")
    expect(answers.locator("b").first).not_to_have_text("–")
    expect(figures.locator("figure").filter(has_text="Memory").locator("b")).not_to_have_text("–")
    expect(figures.locator("canvas")).to_have_count(6)


def test_who_may_not_see_the_node_sees_how_it_stands(
    page: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(403))
    node.script(f"DEFINE USER IF NOT EXISTS mia ROLE member PASSWORD '{OTHER}'")
    page.goto(f"{origin(node)}/#/node")
    sign_in(page, "mia", OTHER)
    expect(page.get_by_role("alert").first).to_contain_text("INFO ON NODE is needed")
    expect(page.get_by_role("region", name="Status")).to_contain_text("ready")
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    expect(page.get_by_role("region", name="Figures").locator("canvas")).to_have_count(6)


@pytest.mark.hard
def test_it_is_accessible(opened: Opened) -> None:
    page = opened("#/node")
    expect(page.locator("canvas")).to_have_count(6)
    assert findings(page) == []
    assert overflow(page) == []
    page.get_by_role("button", name="Roles").click()
    assert findings(page) == []


# --- the text of /metrics -------------------------------------------------------------------------

TEXT = r"""
# HELP a What it is
a 3
b_total{x="1",y="say \"hi\"\\ and\nso, on}"} 4.5
b_total{x="2",y=""} +Inf
c{le="0.1"} 1e3 1700000000
no series at all {
"""


@pytest.fixture
def evaluated(modules: Page) -> Any:
    """Evaluates statements over the module of metrics."""
    module = f"await ({IMPORT})('tabs/node/metrics.js')"

    def run(statements: str, given: object = None) -> Any:
        return modules.evaluate(
            f"async (given) => {{ const metrics = {module}; {statements} }}", given
        )

    return run


def test_the_text_is_read(evaluated: Any) -> None:
    told = evaluated("return [...metrics.parse(given)]", TEXT)
    assert told == [
        ["a", [{"labels": {}, "value": 3}]],
        [
            "b_total",
            [
                {"labels": {"x": "1", "y": 'say "hi"\\ and\nso, on}'}, "value": 4.5},
                {"labels": {"x": "2", "y": ""}, "value": float("inf")},
            ],
        ],
        ["c", [{"labels": {"le": "0.1"}, "value": 1000}]],
    ]


QUANTILES = [
    (0.5, [], None),
    (0.5, [[1, 0]], None),
    (0.5, [[1, 10], [2, 20]], 1),
    (0.75, [[1, 10], [2, 20]], 1.5),
    (0.25, [[1, 10], [2, 20]], 0.5),
    (0.99, [[1, 1], [2, 1], ["inf", 100]], 2),
    (0.5, [[1, 0], [2, 0], [4, 8]], 3),
]


def test_quantiles(evaluated: Any) -> None:
    told = evaluated(
        "return given.map(([part, buckets]) => metrics.quantile(part, buckets.map("
        "([most, count]) => [most === 'inf' ? Infinity : most, count])))",
        [[part, buckets] for part, buckets, _ in QUANTILES],
    )
    assert told == [expected for _, _, expected in QUANTILES]


def test_what_happened_between_two_readings(evaluated: Any, node: NodeProcess) -> None:
    text = node.request("GET", "/metrics", user=(USER, PASSWORD)).body.decode()
    told = evaluated(
        "const first = metrics.read(metrics.parse(given), 10);"
        "const then = { ...first, at: 12, requests: first.requests + 8, commits: first.commits + 2,"
        " buckets: first.buckets.map(([most, count]) => [most, count + (most >= 1 ? 8 : 0)]) };"
        "return [first, metrics.between(first, then), metrics.between(then, { ...first, at: 13 })]",
        text,
    )
    first, rates, anew = told
    assert first["requests"] > 0
    assert first["memory"] > 1_000_000
    assert 0 < first["buckets"][-1][1] <= first["requests"]
    assert (rates["requests"], rates["commits"], rates["refused"]) == (4, 1, 0)
    assert 0.5 < rates["p50"] < 1
    assert anew is None, "the node began anew"


# --- over TLS -------------------------------------------------------------------------------------


@pytest.mark.hard
def test_how_long_a_certificate_is_good(browser: Browser, tmp_path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=5)
    chain, key = self_signed(tmp_path, "node", soon)
    words = (*NodeProcess.words, "--cert", str(chain), "--cert-key", str(key))
    with serving(tmp_path / "store", *words) as node:
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(f"{origin(node).replace('http:', 'https:')}/#/node")
        sign_in(page)
        answers = page.get_by_role("region", name="Endpoints")
        expect(answers.locator(".chip.warn")).to_have_count(2)
        expect(answers.locator(".chip.warn").first).to_have_text("4 days left")
        context.close()
