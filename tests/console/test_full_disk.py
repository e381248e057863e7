"""What a full disk refuses: a backup, and a reveal that can't be recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import PageComplaints, origin, sign_in
from tests.processes import serving
from tests.reliability import disks
from tests.reliability.disks import Filler

PASSPHRASE = "canary of a full disk"
SERVES = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0")


@pytest.mark.hard
def test_a_full_disk(tmp_path: Path, page: Page, watch: PageComplaints) -> None:
    disks.require("mkfs.ext4", "mount", "umount")
    watch.allow("console: Failed to load resource: the server responded with a status of 503")
    with disks.image_disk(tmp_path, "ext4", disks.SMALLEST["ext4"]) as disk:
        (disk.point / "backups").mkdir()
        with serving(disk.store, *SERVES, "--backup-dir", str(disk.point / "backups")) as node:
            watch.origin = origin(node)
            node.script("DEFINE NAMESPACE shop; DEFINE DATABASE shop.main")
            node.script("DEFINE VAULT v; DEFINE TABLE t", ns="shop", db="main")
            assert node.request("POST", "/vault/passphrase", {"new": PASSPHRASE}).status == 200
            node.request("POST", "/vault/unseal", {"passphrase": PASSPHRASE})
            node.request("POST", "/vault/shop/main/v/write", {"id": "k", "value": 1})
            page.goto(f"{origin(node)}/#/vault/shop/main/v")
            sign_in(page)
            Filler(disk).take(leave=0)
            filling = "CREATE t SET x = $x"
            while "error" not in node.script(
                filling, ns="shop", db="main", params={"x": "x" * 65536}
            ):
                pass
            page.get_by_label("Id", exact=True).fill("k")
            page.get_by_role("button", name="Show for 20 s").click()
            expect(page.locator("section.card .notice.refused")).to_contain_text("AuditRefused")
            expect(page.locator(".revealed")).to_have_count(0)
            page.evaluate("location.hash = '#/backup'")
            page.get_by_role("button", name="Back up", exact=True).click()
            expect(page.locator(".card .notice.refused")).to_contain_text("DiskFull")
            page.close()
