"""The Access tab: each action's effect looked up through the API, and each refusal shown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from protocol.rights import VERBS, Securable, SecurableKind, Verb, is_inside
from tests.console.conftest import Opened, PageComplaints, origin, refusal_of, sign_in
from tests.console.seeing import findings, overflow
from tests.processes import NodeProcess

OTHER = "correct horse battery"
HOSTILE = "<img src=x onerror=alert(1)> \u202eright to left\u202c &amp; " + "x" * 300


@pytest.fixture(scope="module")
def node(node: NodeProcess) -> NodeProcess:
    node.script(
        "DEFINE NAMESPACE bank; DEFINE DATABASE bank.one; USE shop.main;"
        " DEFINE TABLE invoice; DEFINE TOPIC mail; DEFINE SPACE cart; DEFINE VAULT safe;"
        f"DEFINE USER tess ROLE owner ON NAMESPACE shop PASSWORD '{OTHER}';"
        f"DEFINE USER bob ROLE owner ON NAMESPACE bank PASSWORD '{OTHER}';"
        f"DEFINE USER vic ROLE viewer ON DATABASE shop.main PASSWORD '{OTHER}';"
        f"DEFINE USER mia ROLE member PASSWORD '{OTHER}'",
        ns="shop",
        db="main",
    )
    return node


def value(node: NodeProcess, text: str) -> Any:
    return node.script(text, ns="shop", db="main")["results"][-1]["value"]


def made(node: NodeProcess, name: str) -> str:
    """A user of the whole store without a right."""
    node.script(f"DEFINE USER {name} ROLE member PASSWORD '{OTHER}'")
    return name


def entered(page: Page, node: NodeProcess, user: str, address: str) -> Page:
    page.goto(f"{origin(node)}/{address}")
    sign_in(page, user, OTHER)
    return page


def test_users_by_place(opened: Opened) -> None:
    page = opened("#/access")
    table = page.get_by_role("region", name="Users")
    row = table.get_by_role("row", name="tess shop owner")
    expect(row.locator("time")).to_have_text(re.compile(r"^[0-9-]{10} [0-9:]{8}$"))
    page.get_by_label("Of", exact=True).select_option("bank")
    expect(table.get_by_role("link")).to_have_text(["bob"])
    page.get_by_label("Find").fill("nobody")
    expect(table).to_contain_text("No user with that name")


def test_a_user_is_made_with_a_password_that_is_not_shown(
    opened: Opened, node: NodeProcess
) -> None:
    page = opened("#/access")
    page.get_by_role("button", name="New user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("nina")
    dialog.get_by_label("Role").select_option("editor")
    dialog.get_by_label("Belongs to").fill("shop.main")
    dialog.get_by_label("New password", exact=True).fill("a password of hers")
    expect(dialog.get_by_role("button", name="Create")).to_be_disabled()
    dialog.get_by_label("Repeat new password").fill("a password of hers")
    dialog.get_by_label("Comment").fill(HOSTILE)
    shown = dialog.locator(".composed")
    expect(shown).to_contain_text(
        "DEFINE USER `nina` ROLE editor ON DATABASE `shop`.`main` PASSWORD '...'"
    )
    assert "of hers" not in shown.inner_text()
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="nina editor")).to_be_visible()
    told = value(node, "INFO FOR USER nina")
    assert (told["role"], told["space"], told["comment"]) == ("editor", "shop.main", HOSTILE)
    credential = ("nina", "a password of hers")
    assert node.request("POST", "/script", {"script": "RETURN 1"}, user=credential).status == 200
    kept = value(node, "INFO FOR AUDIT LIMIT 5")
    assert "of hers" not in repr(kept)
    assert "PASSWORD $password" in repr(kept)


def test_role_and_password_are_changed(opened: Opened, node: NodeProcess) -> None:
    page = opened(f"#/access/users/{made(node, 'rolf')}")
    page.get_by_role("button", name="Change role").click()
    page.get_by_role("dialog").get_by_label("Role").select_option("viewer")
    page.get_by_role("dialog").get_by_label("Reason").fill("reads from now on")
    expect(page.locator(".composed")).to_contain_text("ALTER USER `rolf` SET ROLE viewer")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="rolf viewer")).to_be_visible()
    (entry,) = value(node, "INFO FOR STATEMENTS LIMIT 1")
    assert (entry["statement"], entry["reason"]) == (
        "ALTER USER rolf SET ROLE viewer",
        "reads from now on",
    )
    page.get_by_role("button", name="Set password").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New password", exact=True).fill("another of his")
    dialog.get_by_label("Repeat new password").fill("another of his")
    expect(dialog.locator(".composed pre")).to_have_text("ALTER USER `rolf` SET PASSWORD '...'")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog).to_have_count(0)
    asked = {"script": "RETURN 1"}
    assert node.request("POST", "/script", asked, user=("rolf", "another of his")).status == 200


def test_the_last_owner_stays(opened: Opened, watch: PageComplaints) -> None:
    watch.allow(refusal_of(409))
    page = opened("#/access/users/root")
    page.get_by_role("button", name="Change role").click()
    page.get_by_role("dialog").get_by_label("Role").select_option("member")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("LastOwner")


def test_a_user_is_removed_behind_its_name_twice_and_a_reason(
    opened: Opened, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(404))  # the page may look at it once more while it goes
    page = opened(f"#/access/users/{made(node, 'gone')}")
    page.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type the name again").fill("gone")
    expect(dialog.get_by_role("button", name="Remove")).to_be_disabled()
    dialog.get_by_label("Confirm again").fill("gone")
    dialog.get_by_label("Reason").fill("left us")
    dialog.get_by_role("button", name="Remove").click()
    expect(page.get_by_role("region", name="Users")).to_be_visible()
    assert node.script("INFO FOR USER gone")["error"]["code"] == "Unknown"
    (entry,) = value(node, "INFO FOR STATEMENTS LIMIT 1 OF root")
    assert entry["reason"] == "left us" or entry["refused"] == "Unknown"


def test_grants_are_edited_in_a_matrix(opened: Opened, node: NodeProcess) -> None:
    user = made(node, "gina")
    node.script(
        "GRANT READ, INFO ON DATABASE shop.main TO gina;"
        "GRANT CONSUME ON TOPIC shop.main.mail TO gina"
    )
    page = opened(f"#/access/users/{user}")
    grants = page.get_by_role("region", name="Grants")
    expect(grants.get_by_label("READ on DATABASE shop.main")).to_be_checked()
    grants.get_by_label("INFO on DATABASE shop.main").uncheck()
    grants.get_by_label("WRITE on DATABASE shop.main").check()
    page.get_by_label("Kind").select_option("TABLE")
    page.get_by_label("Name", exact=True).fill("shop.main.invoice")
    page.get_by_role("button", name="Add a row").click()
    grants.get_by_label("DEFINE on TABLE shop.main.invoice").check()
    expect(page.locator(".composed pre")).to_have_text(
        "BEGIN;\nGRANT WRITE ON DATABASE `shop`.`main` TO `gina`;\n"
        "REVOKE INFO ON DATABASE `shop`.`main` FROM `gina`;\n"
        "GRANT DEFINE ON TABLE `shop`.`main`.`invoice` TO `gina`;\nCOMMIT"
    )
    page.get_by_label("Reason").fill("new task")
    page.get_by_role("button", name="Grant and revoke").click()
    expect(page.locator(".composed")).to_have_count(0)
    expect(grants.get_by_label("INFO on DATABASE shop.main")).not_to_be_checked()
    assert value(node, "INFO FOR GRANTS OF gina") == [
        {"on": "DATABASE shop.main", "verbs": ["READ", "WRITE"], "from": "grant"},
        {"on": "TOPIC shop.main.mail", "verbs": ["CONSUME"], "from": "grant"},
        {"on": "TABLE shop.main.invoice", "verbs": ["DEFINE"], "from": "grant"},
    ]
    cell = grants.get_by_role("cell", name="READ on TABLE shop.main.invoice")
    expect(cell).to_contain_text("granted on DATABASE shop.main")


KINDS = {
    "NODE": ("", ["INFO", "UNSEAL"]),
    "NAMESPACE": ("shop", ["READ", "WRITE", "CONSUME", "DEFINE", "INFO"]),
    "DATABASE": ("shop.main", ["READ", "WRITE", "CONSUME", "DEFINE", "INFO"]),
    "TABLE": ("shop.main.invoice", ["READ", "WRITE", "DEFINE", "INFO"]),
    "TOPIC": ("shop.main.mail", ["READ", "WRITE", "CONSUME", "DEFINE", "INFO"]),
    "SPACE": ("shop.main.cart", ["READ", "WRITE", "INFO"]),
    "VAULT": ("shop.main.safe", ["READ", "WRITE", "INFO", "UNSEAL"]),
    "ALL VAULTS IN": ("shop.main", ["READ", "WRITE", "INFO", "UNSEAL"]),
}


@pytest.mark.hard
def test_every_verb_of_every_kind_of_noun_is_granted_and_revoked(
    opened: Opened, node: NodeProcess
) -> None:
    page = opened(f"#/access/users/{made(node, 'allie')}")
    grants = page.get_by_role("region", name="Grants")
    for kind, (name, _) in KINDS.items():
        page.get_by_label("Kind").select_option(kind)
        if name:
            page.get_by_label("Name", exact=True).fill(name)
        page.get_by_role("button", name="Add a row").click()
    for box in grants.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Grant and revoke").click()
    expect(page.locator(".composed")).to_have_count(0)
    held = value(node, "INFO FOR GRANTS OF allie")
    assert held == [
        {"on": f"{kind} {name}".strip(), "verbs": verbs, "from": "grant"}
        for kind, (name, verbs) in KINDS.items()
    ]
    for box in grants.get_by_role("checkbox").all():
        box.uncheck()
    page.get_by_role("button", name="Grant and revoke").click()
    expect(grants).to_contain_text("No grants.")
    assert value(node, "INFO FOR GRANTS OF allie") == []


def test_a_grant_outside_of_its_place_is_refused_and_nothing_of_it_done(
    opened: Opened, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(409), refusal_of(403), refusal_of(400), refusal_of(422))
    page = opened("#/access/users/vic")
    for kind, name in (("TABLE", "shop.main.invoice"), ("NAMESPACE", "bank")):
        page.get_by_label("Kind").select_option(kind)
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_role("button", name="Add a row").click()
    page.get_by_label("WRITE on TABLE shop.main.invoice").check()
    page.get_by_label("READ on NAMESPACE bank").check()
    page.get_by_role("button", name="Grant and revoke").click()
    expect(page.get_by_role("alert")).to_contain_text("GrantOutsideSpace")
    expect(page.get_by_label("READ on NAMESPACE bank")).to_be_checked()
    assert "WRITE" not in repr(value(node, "INFO FOR GRANTS OF vic"))


def test_what_it_may_do_and_why(opened: Opened, node: NodeProcess) -> None:
    node.script(
        "GRANT WRITE ON DATABASE shop.main TO vic; GRANT READ ON ALL VAULTS IN shop.main TO vic"
    )
    node.script("GRANT WRITE ON TABLE shop.main.invoice TO vic")
    page = opened("#/access/users/vic")
    page.get_by_label("Check a privilege").fill("TABLE shop.main.invoice")
    told = page.get_by_label("Effective privileges")
    expect(told).to_contain_text("yes: its role viewer of DATABASE shop.main")
    expect(told).to_contain_text("granted on DATABASE shop.main; granted on TABLE")
    page.get_by_label("Check a privilege").fill("VAULT shop.main.safe")
    expect(told).to_contain_text("yes: granted on ALL VAULTS IN shop.main")
    expect(told).not_to_contain_text("viewer")


def test_the_statement_log_with_its_filters_and_pages(opened: Opened, node: NodeProcess) -> None:
    for at in range(130):
        node.script(f"CREATE invoice:{at}", ns="shop", db="main", reason=f"count {at}")
    page = opened("#/access/statements")
    table = page.get_by_role("region", name="Entries")
    expect(table.get_by_role("row", name="CREATE invoice:129")).to_contain_text("count 129")
    expect(page.get_by_text("100 entries")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text("no older entries")).to_be_visible()
    page.get_by_label("Contains").fill("count 7")
    expect(table.get_by_role("row").filter(has_text="CREATE")).to_have_count(11)
    expect(page.get_by_text(re.compile("^11 of [0-9]+ loaded"))).to_be_visible()
    page.get_by_label("Contains").fill("")
    page.get_by_label("Outcome").select_option("refused")
    expect(table).not_to_contain_text("count")
    page.get_by_label("Outcome").select_option("")
    page.get_by_label("User", exact=True).fill("mia")
    page.get_by_label("User", exact=True).press("Enter")
    expect(table).to_contain_text("No entries")
    assert "of=mia" in page.url


def test_an_entry_in_full(opened: Opened, node: NodeProcess) -> None:
    made = "CREATE invoice SET note = $note, said = '<img src=x onerror=alert(1)>'"
    node.script(made, ns="shop", db="main", params={"note": HOSTILE}, reason=HOSTILE)
    page = opened("#/access/statements")
    page.get_by_role("button", name="Entry").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("onerror=alert(1)")
    expect(dialog).to_contain_text("reason")
    assert page.locator("main img, dialog img").count() == 0
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_who_came_and_what_was_refused(opened: Opened, node: NodeProcess) -> None:
    node.request("POST", "/script", {"script": "INFO FOR NODE"}, user=("mia", OTHER))
    page = opened("#/access/audit")
    table = page.get_by_role("region", name="Entries")
    expect(table.get_by_role("row", name="INFO FOR NODE").first).to_contain_text("NotAllowed")
    page.get_by_label("Action").select_option("came")
    expect(table.get_by_role("row", name="sign in").first).to_be_visible()
    expect(table).not_to_contain_text("INFO FOR NODE")
    page.get_by_label("Action").select_option("statement")
    expect(table).not_to_contain_text("sign in")


def test_one_s_own_password(page: Page, node: NodeProcess, watch: PageComplaints) -> None:
    watch.allow(refusal_of(401), refusal_of(403), refusal_of(422))
    user = made(node, "pam")
    page = entered(page, node, user, "#/access/you")
    expect(page.get_by_text("Only to change its own password")).to_be_visible()
    page.get_by_label("Current password").fill("not that one")
    page.get_by_label("New password", exact=True).fill("one of my own")
    page.get_by_label("Repeat new password").fill("one of my own")
    expect(page.locator(".composed")).to_contain_text("POST /password")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Current password").fill(OTHER)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("Password changed")).to_be_visible()
    asked = {"script": "RETURN 1"}
    assert node.request("POST", "/script", asked, user=(user, "one of my own")).status == 200


@pytest.mark.parametrize("user", ["mia", "vic"])
def test_who_owns_nothing_sees_no_users(
    page: Page, node: NodeProcess, watch: PageComplaints, user: str
) -> None:
    watch.allow(refusal_of(403), refusal_of(404))
    page = entered(page, node, user, "#/access")
    expect(page.get_by_role("alert").first).to_contain_text("NotAllowed")
    expect(page.get_by_role("region", name="Users")).to_have_count(0)
    page.goto(f"{origin(node)}/#/access/audit")
    if page.get_by_label("Password", exact=True).count():
        sign_in(page, user, OTHER)
    expect(page.get_by_role("alert").first).to_contain_text("NotAllowed")


def test_places_are_looked_for_without_a_refusal(
    page: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    """Each would stand in the audit trail."""
    watch.allow(refusal_of(403))  # what is in the place is looked for then
    user = made(node, "pia")
    value(node, f"DEFINE TABLE pies; GRANT READ ON TABLE pies TO {user}")
    entered(page, node, user, "#/run")
    expect(page.get_by_role("button", name="Place")).to_contain_text("shop.main")
    kept = value(node, f"INFO FOR AUDIT LIMIT 100 OF {user}")
    assert kept
    assert "INFO FOR STORE" not in [row["statement"] for row in kept]


def test_an_owner_of_a_place_sees_its_own_users_alone(
    page: Page, node: NodeProcess, watch: PageComplaints
) -> None:
    watch.allow(refusal_of(403), refusal_of(404), refusal_of(409))
    page = entered(page, node, "tess", "#/access")
    table = page.get_by_role("region", name="Users")
    expect(table.get_by_role("link", name="vic")).to_be_visible()
    expect(table).not_to_contain_text("bob")
    expect(table).not_to_contain_text("root")
    page.get_by_role("button", name="New user").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Belongs to")).to_have_value("shop")
    dialog.get_by_label("Belongs to").fill("bank")
    dialog.get_by_label("Name").fill("spy")
    dialog.get_by_label("New password", exact=True).fill(OTHER)
    dialog.get_by_label("Repeat new password").fill(OTHER)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog).to_contain_text("there is no namespace bank")
    dialog.get_by_role("button", name="Cancel").click()
    page.evaluate("location.hash = '#/access/users/bob'")
    expect(page.get_by_text("there is no user bob")).to_be_visible()


@pytest.mark.hard
@pytest.mark.parametrize("address", ["", "/users/vic", "/statements", "/audit", "/you", "/nowhere"])
def test_it_is_accessible(opened: Opened, address: str) -> None:
    page = opened(f"#/access{address}")
    expect(page.get_by_text("Reading")).to_have_count(0)
    assert findings(page) == []
    assert overflow(page) == []


# --- what the page says of rights, beside the tables of the node ----------------------------------

NAMES = {
    SecurableKind.NODE: [""],
    SecurableKind.NAMESPACE: ["a", "b"],
    SecurableKind.DATABASE: ["a.x", "a.y"],
    SecurableKind.TABLE: ["a.x.t", "b.z.t"],
    SecurableKind.TOPIC: ["a.x.q"],
    SecurableKind.SPACE: ["a.y.c"],
    SecurableKind.VAULT: ["a.x.v", "a.y.v"],
    SecurableKind.VAULTS: ["a", "a.x"],
}
NOUNS = [
    Securable(kind, tuple(sum(map(ord, part)) for part in path.split(".") if part), path)
    for kind, paths in NAMES.items()
    for path in paths
]


def held() -> list[tuple[dict[str, str], list[bool]]]:
    """Each grant and each role in each space, and which objects it reaches by the node's rules."""
    found = [
        ({"on": str(on), "from": "grant"}, [on.covers(securable) for securable in NOUNS])
        for on in NOUNS
    ]
    for role in ("owner", "viewer"):
        for space, on in ((None, "STORE"), ("a", "NAMESPACE a"), ("a.x", "DATABASE a.x")):
            reached = [
                is_inside(securable.path, space)
                and (
                    role == "owner"
                    or securable.kind not in (SecurableKind.VAULT, SecurableKind.VAULTS)
                )
                for securable in NOUNS
            ]
            found.append(({"on": on, "from": f"role {role}"}, reached))
    return found


def test_why_somebody_may_is_what_the_node_goes_by(opened: Opened) -> None:
    page = opened("#/access")
    base = page.evaluate("document.querySelector('script[src$=\"main.js\"]').src")
    path = base.replace("main.js", "tabs/access/rights.js")
    told = page.evaluate(
        "async ([path, all, securables]) => { const rights = await import(path);"
        " const reached = (one) => securables.map((securable) => rights.covers(one, securable));"
        " return [rights.KINDS, all.map(reached)]; }",
        [path, [one for one, _ in held()], list(map(str, NOUNS))],
    )
    kinds, reached = told
    assert reached == [expected for _, expected in held()]
    assert {kind: set(about["verbs"]) for kind, about in kinds.items()} == {
        kind.value: {verb.value for verb in VERBS[kind] - {Verb.OWN}} for kind in NAMES
    }
