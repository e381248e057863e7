"""`make images`: each view of the console as the pages show it, of a node with real data, and of
three with etcd, into docs/images/. A view that is not among them, or shows a refusal, ends it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect

from bench import geonames
from storeclient import Client
from tests.actors.agreement.etcds import etcd_process
from tests.architecture.sources import ROOT
from tests.browsers import launched
from tests.console.conftest import origin, sign_in
from tests.console.machines import built, machines_in
from tests.processes import PASSWORD, USER, NodeProcess, serving

FOLDER: Final = ROOT / "docs" / "images"
AT: Final = "shop/main"
PASSPHRASE: Final = "planted passphrase of the pictures"
QUERY: Final = """\
SELECT name, population, country.name AS land FROM city
WHERE population > 5000000 ORDER BY population DESC LIMIT 8;
EXPLAIN ANALYZE SELECT count() AS n FROM city WHERE country = country:NO GROUP ALL"""


@dataclass(frozen=True)
class ConsolePicture:
    name: str
    address: str
    shows: str
    act: Callable[[Page], None] = lambda page: None
    tall: int = 800


def _runs(page: Page) -> None:
    page.get_by_role("textbox", name="Script").fill(QUERY)
    page.keyboard.press("Escape")  # what it would complete
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_label("Result 2", exact=True)).to_be_visible()


VIEWS: Final = (
    ConsolePicture("run", f"#/run/{AT}", "Explorer", _runs, tall=1000),
    ConsolePicture("topics", f"#/topics/{AT}", "orders"),
    ConsolePicture("topic", f"#/topics/{AT}/orders", "Readers and groups"),
    ConsolePicture("access", "#/access", "reporter"),
    ConsolePicture("node", "#/node", "Storage", tall=1000),
    ConsolePicture("backup", "#/backup", "monday.storesnap"),
    ConsolePicture("vault", f"#/vault/{AT}/keys", "Seal now"),
)
BUILDING: Final = ConsolePicture(
    "cluster-build", "#/cluster/build", "create a join token", tall=900
)
CLUSTER: Final = ConsolePicture("cluster", "#/cluster", "none behind", tall=1100)
OF_SEVERAL: Final = (CLUSTER, BUILDING)


def fill(node: NodeProcess) -> None:
    with Client(node.at("wire"), user=USER, password=PASSWORD) as client:
        client.query("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
        client.use("shop", "main")
        client.query("DEFINE TABLE country; DEFINE TABLE city")
        client.query("INSERT INTO country $rows RETURN NONE", {"rows": geonames.countries()})
        cities = geonames.cities()
        while rows := list(islice(cities, geonames.TRANSACTION)):
            client.query("INSERT INTO city $rows RETURN NONE", {"rows": rows})
        client.query(
            "DEFINE INDEX by_country ON city FIELDS country;"
            "DEFINE TOPIC orders KEEP 7d COMMENT 'of the shop'; DEFINE TOPIC failed;"
            "DEFINE READER audit ON orders;"
            "DEFINE GROUP senders ON orders DEADLINE 1h DELIVERIES 3 DEAD LETTER failed;"
            "FOR $n IN 1..=40 { PUBLISH INTO orders VALUE { order: $n, city: 'Oslo' } KEY 'no' };"
            "LET $out = TAKE 5 FROM orders AS senders;"
            "GIVE UP orders AS senders RECEIPTS [$out[0].receipt] ERROR 'no such street';"
            "DEFINE SPACE sessions; DEFINE VAULT keys;"
            "DEFINE USER reporter ROLE member PASSWORD 'reporter reads only';"
            "GRANT READ ON TABLE city TO reporter; BACKUP TO 'monday.storesnap'"
        )
    for path, body in (
        ("/vault/passphrase", {"new": PASSPHRASE}),
        ("/vault/unseal", {"passphrase": PASSPHRASE}),
        (f"/vault/{AT}/keys/write", {"id": "mail", "value": "of the pictures"}),
    ):
        answer = node.request("POST", path, body)
        assert answer.status == 200, answer.body


def main() -> int:
    """Take them all, or with the word `cluster` those of several nodes."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        if sys.argv[1:] != ["cluster"]:
            of_one(Path(folder), browser)
        of_several(Path(folder), browser)
    return 0


def of_one(folder: Path, browser: Browser) -> None:
    backups = folder / "backups"
    backups.mkdir()
    words = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--backup-dir", str(backups))
    with serving(folder / "store", *words) as node:
        fill(node)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{origin(node)}/")
        page.screenshot(path=FOLDER / "sign-in.png")
        sign_in(page)
        for view in VIEWS:
            taken(page, view)


def of_several(folder: Path, browser: Browser) -> None:
    with etcd_process(folder / "etcd") as etcd, machines_in(folder) as machines:
        machines[0].start()
        page = machines[0].tab(browser)
        built(page, machines, etcd, lambda: taken(page, BUILDING))
        taken(page, CLUSTER)


def taken(page: Page, view: ConsolePicture) -> None:
    page.set_viewport_size({"width": 1280, "height": view.tall})
    page.evaluate("(address) => { location.hash = address; }", view.address)
    expect(page.get_by_text(view.shows).first).to_be_visible()
    view.act(page)
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.screenshot(path=FOLDER / f"{view.name}.png")


if __name__ == "__main__":
    sys.exit(main())
