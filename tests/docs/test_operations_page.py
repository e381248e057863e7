"""What the page about operations has an operator type."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from storage.backups import scripts
from storage.files import metadata_file
from storage.formats import container, frames
from tests.architecture.sources import ROOT
from tests.processes import run, serving

PAGE = (ROOT / "docs" / "operations.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STORE = """
    DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t; CREATE t:1 SET a = 1;
    DEFINE USER root ROLE owner PASSWORD 'forgotten by all';
    DEFINE USER bo ROLE member PASSWORD 'not forgotten';
"""


def section(head: str) -> str:
    """The text below a head of the page."""
    return PAGE.partition(f"\n## {head}\n")[2].partition("\n## ")[0]


def test_a_lost_password_is_replaced_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "store.storeql").write_text(STORE)
    made = run(str(tmp_path / "store"), "-f", str(tmp_path / "store.storeql"))
    assert made.returncode == 0, made.stderr
    (block,) = BLOCK.findall(section("A lost password"))
    block = block.replace("/var/lib/storenode", str(tmp_path / "store"))
    block = re.sub(r"\b(all|new)\.storeql\b", rf"{tmp_path}/\1.storeql", block)
    for line in block.splitlines():
        if line.startswith("storenode "):
            ended = run(*line.split()[1:])
            assert ended.returncode == 0, ended.stderr
        else:
            subprocess.run(["bash", "-euc", line], check=True)
    assert list(tmp_path.glob("*.storeql")) == [tmp_path / "store.storeql"]
    with serving(tmp_path / "store.new") as node:
        asked = {"script": "SELECT VALUE a FROM t", "ns": "a", "db": "b"}
        answer = node.request("POST", "/script", asked, user=("root", "a new password")).json
        assert answer["results"][0]["value"] == [1]
        assert node.request("POST", "/session", user=("bo", "not forgotten")).status == 200
        assert node.request("POST", "/session", user=("root", "forgotten by all")).status == 401


def test_the_page_names_the_formats_of_this_version() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (.*?\|.*?) \|", section("Upgrade and downgrade"), re.M))
    read = ", ".join(map(str, sorted(frames.READ)))
    assert rows["log"] == f"{frames.FORMAT}, sealed {frames.SEALED_FORMAT} | {read}"
    assert (
        rows["`STORE`, `NODE` and the like"] == f"{metadata_file.FORMAT} | {metadata_file.FORMAT}"
    )
    assert container.FORMAT == scripts.FORMAT
    backups = rows["snapshots, logs as backups, scripts"]
    assert backups == f"{container.FORMAT} | {container.FORMAT}"
