"""The Vault tab: passphrases, seals, vaults, records, the trail; and that nothing secret stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess, serving

PASSPHRASE = "canary passphrase of the store"
OWN = "canary passphrase of its own"
VALUE = "canary-sk-live-51"
OTHER = "canary-sk-live-52"
HOSTILE = "<img src=x onerror=alert(1)>\u202e\u0000'`--"
PAYMENT = "/vault/shop/main/payment"
SERVES = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with serving(tmp_path_factory.mktemp("vault") / "store") as found:
        answer = found.script(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main;"
            " DEFINE VAULT payment VERSIONS 2 COMMENT 'keys of the shop';"
            " DEFINE VAULT own PASSPHRASE $own;"
            " DEFINE USER clerk ROLE member PASSWORD 'a better horse';"
            " GRANT WRITE, INFO ON VAULT payment TO clerk",
            params={"own": OWN},
        )
        assert "error" not in answer, answer
        well(found, "/vault/passphrase", new=PASSPHRASE)
        yield found


def well(node: NodeProcess, path: str, **body: Any) -> Any:
    reply = node.request("POST", path, body)
    assert reply.status == 200, reply.body
    return reply.json


def is_sealed(node: NodeProcess, vault: str | None = None) -> bool:
    found = node.request("GET", "/vault").json
    if vault is None:
        return bool(found["store"]["sealed"])
    return next(bool(one["sealed"]) for one in found["vaults"] if one["vault"] == vault)


@pytest.fixture
def unsealed(node: NodeProcess) -> NodeProcess:
    """The node, with the store's vaults open."""
    if is_sealed(node):
        well(node, "/vault/unseal", passphrase=PASSPHRASE)
    return node


@pytest.fixture
def sealed(node: NodeProcess) -> NodeProcess:
    """The node, with all vaults sealed."""
    well(node, "/vault/seal")
    return node


def leaks(page: Page, node: NodeProcess, *secrets: str) -> list[str]:
    """Where something secret stands: the page, its storage and address, what the node keeps."""
    kept = node.script("INFO FOR STATEMENTS LIMIT 1000; INFO FOR AUDIT LIMIT 1000")
    places = {
        "page": page.content(),
        "inputs": page.evaluate(
            "JSON.stringify([...document.querySelectorAll('input, textarea')].map((a) => a.value))"
        ),
        "storage": page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])"),
        "address": page.url,
        "history": page.evaluate("JSON.stringify(history.state)"),
        "logs": json.dumps(kept),
        "node's output": json.dumps(node.lines),
    }
    return [name for name, text in places.items() for one in secrets if one in text]


def trail(node: NodeProcess, limit: int = 1) -> list[dict[str, Any]]:
    text = f"INFO FOR AUDIT OF VAULT payment LIMIT {limit}"
    found: list[dict[str, Any]] = node.script(text, ns="shop", db="main")["results"][0]["value"]
    return found


def test_the_first_passphrase(tmp_path: Path, page: Page, watch: PageComplaints) -> None:
    with serving(tmp_path / "store", *SERVES, "--unseal-for", "5s") as other:
        watch.origin = origin(other)
        page.goto(f"{origin(other)}/#/vault")
        sign_in(page)
        expect(page.get_by_text("The store has no passphrase yet")).to_be_visible()
        page.get_by_role("button", name="Set the passphrase…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("A lost passphrase is a lost vault")
        dialog.get_by_label("New passphrase", exact=True).fill(PASSPHRASE)
        dialog.get_by_label("Repeat new passphrase").fill("another one")
        expect(dialog.get_by_role("button", name="Set")).to_be_disabled()
        dialog.get_by_label("Repeat new passphrase").fill(PASSPHRASE)
        expect(dialog.locator(".composed pre")).to_have_text(
            "POST /vault/passphrase\n{ new: '...' }"
        )
        dialog.get_by_role("button", name="Set").click()
        expect(page.get_by_text("Passphrase changed")).to_be_visible()
        assert other.request("GET", "/vault").json["store"]["set"]
        assert leaks(page, other, PASSPHRASE) == []
        page.get_by_label("Passphrase of the store").fill(PASSPHRASE)
        page.get_by_role("button", name="Unseal").click()
        expect(page.get_by_role("timer")).to_contain_text("0:0")
        expect(page.locator(".notice.sealed")).to_be_visible()
        assert other.request("GET", "/vault").json["store"]["sealed"]
        page.close()


def test_unsealing_and_sealing_the_store_by_keyboard(
    sealed: NodeProcess, opened: Opened, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(422))
    page = opened("#/vault/shop/main")
    store = page.locator(".notice.sealed")
    expect(store).to_contain_text("Sealed")
    field = store.get_by_label("Passphrase of the store")
    field.focus()
    page.keyboard.type("canary wrong one")
    page.keyboard.press("Enter")
    expect(page.locator(".notice.refused")).to_contain_text("WrongKey")
    expect(field).to_have_value("")
    assert is_sealed(sealed)
    field.focus()
    page.keyboard.type(PASSPHRASE)
    page.keyboard.press("Enter")
    expect(page.get_by_role("timer").first).to_contain_text(":")
    minutes = int(page.get_by_role("timer").first.inner_text().split(":")[0])
    assert 8 <= minutes <= 10
    assert not is_sealed(sealed)
    assert leaks(page, sealed, PASSPHRASE, "canary wrong one") == []
    page.get_by_role("button", name="Seal now").focus()
    page.keyboard.press("Enter")
    expect(store).to_be_visible()
    assert is_sealed(sealed)


def test_too_many_tries_are_said_in_the_node_s_words(
    sealed: NodeProcess, opened: Opened, watch: PageComplaints
) -> None:
    """It takes hundreds of late answers: what the node says then is put in the page's way."""
    watch.allow(refusal_of(429))
    page = opened("#/vault/shop/main")
    said = {"code": "TooManyTries", "status": 429, "message": "too many wrong passphrases"}
    page.route("**/vault/unseal", lambda route: route.fulfill(status=429, json={"error": said}))
    page.get_by_label("Passphrase of the store").fill(PASSPHRASE)
    page.get_by_role("button", name="Unseal").click()
    expect(page.locator(".notice.refused")).to_contain_text("too many wrong passphrases")


@pytest.mark.parametrize("rekey", [False, True])
def test_changing_the_passphrase(unsealed: NodeProcess, opened: Opened, rekey: bool) -> None:
    page = opened("#/vault/shop/main")
    page.get_by_role("button", name="Change the passphrase…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Old passphrase").fill(PASSPHRASE)
    dialog.get_by_label("New passphrase", exact=True).fill("canary second")
    dialog.get_by_label("Repeat new passphrase").fill("canary second")
    if rekey:
        dialog.get_by_label("Keys").select_option("new")
        expect(dialog.locator(".composed pre")).to_contain_text("rekey: true")
        expect(dialog).to_contain_text("every value is re-encrypted")
    else:
        expect(dialog).to_contain_text("The keys stay")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator(".notice.well")).to_contain_text("keys rewrapped")
    assert leaks(page, unsealed, PASSPHRASE, "canary second") == []
    well(unsealed, "/vault/passphrase", old="canary second", new=PASSPHRASE)


def test_a_vault_with_a_passphrase_of_its_own(unsealed: NodeProcess, opened: Opened) -> None:
    page = opened("#/vault/shop/main")
    page.get_by_role("button", name="New vault…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("no name")
    expect(dialog.get_by_role("button", name="Create")).to_be_disabled()
    dialog.get_by_label("Name").fill("mine")
    dialog.get_by_label("Comment").fill("it's ours")
    dialog.get_by_label("It has a passphrase of its own").check()
    dialog.get_by_label("Its passphrase", exact=True).fill(OWN)
    dialog.get_by_label("Its passphrase again").fill(OWN)
    expect(dialog.locator(".composed pre")).to_have_text(
        "DEFINE VAULT `mine` PASSPHRASE '...' VERSIONS 1 COMMENT 'it\\'s ours'"
    )
    dialog.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="mine", exact=True).click()
    expect(page.locator(".notice.sealed")).to_be_visible()
    page.get_by_label("Passphrase of mine").fill(OWN)
    page.get_by_role("button", name="Unseal").click()
    expect(page.locator(".notice.sealed")).to_have_count(0)
    assert not is_sealed(unsealed, "mine")
    assert leaks(page, unsealed, OWN) == []
    page.get_by_role("button", name="Drop…").click()
    dialog.get_by_label("Type the name again").fill("mine")
    dialog.get_by_label("Reason").fill("a trial")
    dialog.get_by_role("button", name="Drop", exact=True).click()
    expect(page.get_by_role("region", name="Vaults")).not_to_contain_text("mine")
    assert page.url.endswith("#/vault/shop/main")
    vaults = unsealed.request("GET", "/vault").json["vaults"]
    assert "mine" not in [one["vault"] for one in vaults]


def test_a_vault_is_altered_and_its_key_rotated(unsealed: NodeProcess, opened: Opened) -> None:
    unsealed.script("DEFINE VAULT IF NOT EXISTS other", ns="shop", db="main")
    well(unsealed, "/vault/shop/main/other/write", id="k", value=VALUE)
    page = opened("#/vault/shop/main/other")
    page.get_by_role("button", name="Alter…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Versions of each record").fill("3")
    dialog.get_by_label("Comment").fill("three of each")
    dialog.get_by_role("button", name="Alter", exact=True).click()
    expect(page.locator("dl.card")).to_contain_text("3 versions kept")
    expect(page.locator("dl.card")).to_contain_text("three of each")
    page.get_by_role("button", name="Rotate its key…").click()
    dialog.get_by_role("button", name="Rotate", exact=True).click()
    expect(page.locator("dl.card")).to_contain_text("version 2")
    (result,) = unsealed.script("INFO FOR VAULT other", ns="shop", db="main")["results"]
    assert result["value"]["versions"] == 3 and result["value"]["key_version"] == 2


@pytest.mark.own_page
def test_a_value_is_shown_for_a_moment_and_then_nowhere(
    unsealed: NodeProcess, opened: Opened
) -> None:
    well(unsealed, f"{PAYMENT}/write", id="shown", value=VALUE)
    well(unsealed, f"{PAYMENT}/write", id="shown", value=OTHER)
    page = opened("#/vault/shop/main/payment")
    page.clock.install()
    page.get_by_label("Id", exact=True).fill("shown")
    page.get_by_label("Reason").first.fill("refunds")
    expect(page.locator(".composed pre").first).to_contain_text(
        "POST /vault/shop/main/payment/reveal"
    )
    show = page.get_by_role("button", name="Show for 20 s")
    show.click()
    expect(page.locator(".revealed")).to_have_text(OTHER)
    assert leaks(page, unsealed, OTHER) == ["page"], "what looks for it finds it while it is there"
    assert trail(unsealed)[0]["action"] == "reveal" and trail(unsealed)[0]["reason"] == "refunds"
    page.clock.fast_forward(21_000)
    expect(page.locator(".revealed")).to_have_count(0)
    assert leaks(page, unsealed, OTHER) == []
    page.get_by_label("Version", exact=True).fill("1")
    show.click()
    expect(page.locator(".revealed")).to_have_text(VALUE)
    page.get_by_role("button", name="Hide").click()
    assert leaks(page, unsealed, VALUE, OTHER) == []


def test_a_value_is_hidden_when_the_tab_is_left_and_when_it_is_sealed(
    unsealed: NodeProcess, opened: Opened
) -> None:
    well(unsealed, f"{PAYMENT}/write", id="left", value={"key": VALUE, "n": {"$dec": "1.50"}})
    page = opened("#/vault/shop/main/payment")
    page.get_by_label("Id", exact=True).fill("left")
    page.get_by_role("button", name="Show for 20 s").click()
    expect(page.locator(".revealed")).to_contain_text(VALUE)
    page.get_by_role("button", name="Seal now").click()
    expect(page.locator(".notice.sealed")).to_be_visible()
    expect(page.locator(".revealed")).to_have_count(0)
    assert leaks(page, unsealed, VALUE) == []
    page.get_by_label("Passphrase of the store").fill("canary typed")
    page.locator("summary", has_text="Write it").click()
    page.get_by_label("Value", exact=True).fill("canary typed")
    assert leaks(page, unsealed, "canary typed") == ["inputs"]
    opened("#/run/shop/main")
    opened("#/vault/shop/main/payment")
    expect(page.get_by_label("Passphrase of the store")).to_have_value("")
    assert leaks(page, unsealed, "canary typed") == []


def test_a_value_is_hidden_when_nobody_looks(unsealed: NodeProcess, opened: Opened) -> None:
    well(unsealed, f"{PAYMENT}/write", id="unseen", value=VALUE)
    page = opened("#/vault/shop/main/payment")
    page.get_by_label("Id", exact=True).fill("unseen")
    page.get_by_role("button", name="Show for 20 s").click()
    expect(page.locator(".revealed")).to_have_text(VALUE)
    page.evaluate("""() => {
      Object.defineProperty(document, 'visibilityState', { value: 'hidden', configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }""")
    expect(page.locator(".revealed")).to_have_count(0)
    assert leaks(page, unsealed, VALUE) == []


def test_a_value_is_copied_without_being_shown(
    unsealed: NodeProcess, opened: Opened, node: NodeProcess
) -> None:
    well(unsealed, f"{PAYMENT}/write", id="copied", value=VALUE)
    page = opened("#/vault/shop/main/payment")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin(node))
    page.evaluate("""() => { window.seen = false; new MutationObserver(() => {
      if (document.documentElement.textContent.includes('canary')) window.seen = true;
    }).observe(document, { subtree: true, childList: true, characterData: true }); }""")
    page.get_by_label("Id", exact=True).fill("copied")
    page.get_by_role("button", name="Copy without showing").click()
    expect(page.get_by_text("copied to the clipboard")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == VALUE
    assert page.evaluate("window.seen") is False
    assert leaks(page, unsealed, VALUE) == []


@pytest.mark.parametrize(
    ("kind", "typed", "value"),
    [
        ("text", f"{VALUE}\n1", f"{VALUE}\n1"),
        ("json", '{"$dec": 1234567890123456789, "f": 1.0}', None),
        ("tagged", f'{{"n": {{"$dec": "1.50"}}, "s": "{VALUE}"}}', None),
    ],
    ids=["text", "json", "tagged"],
)
def test_writing(
    unsealed: NodeProcess, opened: Opened, kind: str, typed: str, value: str | None
) -> None:
    record = f"written/{kind}/{HOSTILE}"
    page = opened("#/vault/shop/main/payment")
    page.get_by_label("Id", exact=True).fill(record.replace("\0", ""))
    page.locator("summary", has_text="Write it").click()
    page.get_by_label("Value is").select_option(kind)
    page.get_by_label("Value", exact=True).fill(typed)
    expect(page.locator("details .composed pre")).to_contain_text("value: '...'")
    page.get_by_label("Only if").select_option("absent")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".notice.well")).to_contain_text("Version 1 of")
    expect(page.get_by_label("Value", exact=True)).to_have_value("")
    found = well(unsealed, f"{PAYMENT}/reveal", id=record.replace("\0", ""))["value"]
    if value is not None:
        assert found == value
    elif kind == "json":
        assert found == {"$dec": {"$int": "1234567890123456789"}, "f": 1.0}
    else:
        assert found == {"n": {"$dec": "1.50"}, "s": VALUE}
    assert leaks(page, unsealed, VALUE) == []
    page.get_by_label("Value", exact=True).fill('"again"')
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".notice.half")).to_contain_text("Not written")
    page.get_by_label("Only if").select_option("version")
    page.get_by_label("Expected version").fill("1")
    page.get_by_label("Value", exact=True).fill('"again"')
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(".notice.well")).to_contain_text("Version 2 of")


def test_ids_are_listed_page_by_page_and_erased(unsealed: NodeProcess, opened: Opened) -> None:
    many = "; ".join(f"WRITE 'many/{n:03}' IN VAULT payment VALUE 1" for n in range(150))
    assert "error" not in unsealed.script(many, ns="shop", db="main")
    page = opened("#/vault/shop/main/payment")
    page.get_by_label("Prefix").fill("many/")
    page.get_by_role("button", name="List", exact=True).click()
    ids = page.get_by_role("region", name="Ids")
    expect(ids).to_contain_text("many/000")
    page.get_by_role("button", name="Next 100").click()
    expect(page.get_by_text("150 in all")).to_be_visible()
    ids.get_by_role("button", name="many/001").click()
    expect(page.get_by_label("Id", exact=True)).to_have_value("many/001")
    page.get_by_role("button", name="Erase…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".composed pre")).to_contain_text("/payment/erase")
    dialog.get_by_label("Type the id again").fill("many/001")
    dialog.get_by_label("Reason").fill("it leaked")
    dialog.get_by_role("button", name="Erase", exact=True).click()
    expect(page.get_by_text("149 in all")).to_be_visible()
    reply = unsealed.request("POST", f"{PAYMENT}/reveal", {"id": "many/001"})
    assert reply.json["error"]["code"] == "Unknown"
    (_, erased) = trail(unsealed, 2)
    assert (erased["action"], erased["reason"]) == ("erase", "it leaked")


def test_the_trail_is_paged_and_filtered(unsealed: NodeProcess, opened: Opened) -> None:
    for number in range(3):
        well(unsealed, f"{PAYMENT}/write", id=f"trail/{number}", value=1, reason="a <b>reason</b>")
    many = "; ".join("ERASE 'nothing' FROM VAULT payment" for _ in range(120))
    assert "error" not in unsealed.script(many, ns="shop", db="main")
    page = opened("#/vault/shop/main/payment")
    rows = page.get_by_role("region", name="Trail").locator("tbody tr:not(.gap)")
    expect(page.get_by_text("100 of 100 loaded")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text("100 of 100 loaded")).to_have_count(0)
    well(unsealed, f"{PAYMENT}/erase", id="nothing")
    page.get_by_role("button", name="Load newest").click()
    newest = trail(unsealed)[0]["seq"]
    expect(rows.first).to_contain_text(str(newest))
    expect(page.get_by_text("100 of 100 loaded")).to_have_count(0)
    page.get_by_label("User, id, reason or address contains").fill("trail/2")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("a <b>reason</b>")
    expect(rows.first).to_contain_text("intact")
    page.get_by_label("Action").select_option("write")
    expect(rows).to_have_count(1)
    page.get_by_label("Outcome").select_option("refused")
    expect(page.get_by_text("No match among the loaded entries")).to_be_visible()
    page.get_by_role("button", name="Verify all").click()
    expect(page.get_by_text("The trail is intact")).to_be_visible()


def test_the_trail_of_the_store(unsealed: NodeProcess, opened: Opened) -> None:
    page = opened("#/vault/shop/main?trail=store")
    expect(page.get_by_role("region", name="Trail")).to_contain_text("define shop.main.payment")


def test_sealed_and_unrecorded_are_said(
    unsealed: NodeProcess, opened: Opened, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(423), refusal_of(503), refusal_of(404))
    page = opened("#/vault/shop/main/payment")
    page.get_by_label("Id", exact=True).fill("not there")
    show = page.get_by_role("button", name="Show for 20 s")
    show.click()
    expect(page.locator(".notice.gone")).to_contain_text("Unknown")
    well(unsealed, "/vault/seal")
    show.click()
    expect(page.locator("section.card .notice.sealed")).to_contain_text("Sealed")

    def answer(route: Route) -> None:
        said = {
            "code": "AuditRefused",
            "status": 503,
            "message": "there is no room on the disk for the audit entry",
        }
        route.fulfill(status=503, json={"error": said})

    page.route("**/reveal", answer)
    show.click()
    expect(page.locator(".notice.refused")).to_contain_text(
        "there is no room on the disk for the audit entry"
    )
    expect(page.locator(".revealed")).to_have_count(0)


@pytest.mark.hard
def test_it_can_be_seen(unsealed: NodeProcess, opened: Opened) -> None:
    well(unsealed, f"{PAYMENT}/write", id=HOSTILE.replace("\0", "") * 8, value={"a": [1, VALUE]})
    page = opened("#/vault/shop/main")
    expect(page.get_by_role("timer").first).to_be_visible()
    page.get_by_role("button", name="New vault…").click()
    page.get_by_label("It has a passphrase of its own").check()
    assert findings(page) == []
    page.keyboard.press("Escape")
    assert overflow(page) == []
    opened("#/vault/shop/main/payment")
    page.get_by_role("button", name="List", exact=True).click()
    page.get_by_role("region", name="Ids").get_by_role("button").first.click()
    page.get_by_role("button", name="Show for 20 s").click()
    expect(page.locator(".revealed")).to_be_visible()
    page.locator("summary", has_text="Write it").click()
    assert page.locator("main img").count() == 0
    assert findings(page) == []
    assert overflow(page) == []
    well(unsealed, "/vault/seal")
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator(".notice.sealed").first).to_be_visible()
    assert findings(page) == []
