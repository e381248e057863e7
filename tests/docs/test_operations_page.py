"""Commands of the pages about operations and backups, run as they are written."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from storage.backups import scripts
from storage.files import metadata_file
from storage.formats import container, frames
from tests.architecture.sources import ROOT
from tests.processes import NodeProcess, run, serving

PAGE = (ROOT / "docs" / "operations.md").read_text()
BACKUPS = (ROOT / "docs" / "backup.md").read_text()
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STORE = """
    DEFINE NAMESPACE a; DEFINE DATABASE a.b; USE a.b; DEFINE TABLE t; CREATE t:1 SET a = 1;
    DEFINE USER root ROLE owner PASSWORD 'forgotten by all';
    DEFINE USER bo ROLE member PASSWORD 'not forgotten';
"""


def section(head: str, page: str = PAGE) -> str:
    return page.partition(f"\n## {head}\n")[2].partition("\n## ")[0]


def test_a_lost_password_is_replaced_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "store.storeql").write_text(STORE)
    made = run(str(tmp_path / "store"), "-f", str(tmp_path / "store.storeql"))
    assert made.returncode == 0, made.stderr
    (block,) = BLOCK.findall(section("A lost password"))
    block = block.replace("/var/lib/storenode", str(tmp_path / "store"))
    block = re.sub(r"\b((?:all|new)\.storeql|renewed)\b", rf"{tmp_path}/\1", block)
    for line in block.splitlines():
        if line.startswith("storenode "):
            ended = run(*line.split()[1:])
            assert ended.returncode == 0, ended.stderr
        else:
            subprocess.run(["bash", "-euc", line], check=True)
    assert list(tmp_path.glob("*.storeql")) == [tmp_path / "store.storeql"]
    with serving(tmp_path / "renewed") as node:
        asked = {"script": "SELECT VALUE a FROM t", "ns": "a", "db": "b"}
        answer = node.request("POST", "/script", asked, user=("root", "a new password")).json
        assert answer["results"][0]["value"] == [1]
        assert node.request("POST", "/session", user=("bo", "not forgotten")).status == 200
        assert node.request("POST", "/session", user=("root", "forgotten by all")).status == 401


def test_a_table_and_a_database_are_restored_as_the_page_says(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with ExitStack() as nodes:
        here = nodes.enter_context(
            serving(tmp_path / "store", *NodeProcess.words, "--backup-dir", str(folder))
        )

        serve_at = {":8001": here}

        def ask(text: str) -> Any:
            answer = here.request("POST", "/script", {"script": text}).json
            assert "error" not in answer, answer
            return answer["results"][-1]["value"]

        def command(line: str) -> None:
            ended = run(*re.sub(r":\d+(?= |$)", address, line).split()[1:])
            assert ended.returncode == 0, ended.stderr

        def address(port: re.Match[str]) -> str:
            return serve_at[port[0]].at("wire")

        rows = "[{ id: 1, a: 1 }, { id: 2, a: 2 }]"
        ask(
            "DEFINE NAMESPACE shop; DEFINE DATABASE shop.main; USE shop.main; DEFINE TABLE person;"
            f"DEFINE FIELD a ON person TYPE int; INSERT INTO person {rows}"
        )
        command(f"storenode --at :8001 --backup {tmp_path}/night.storesnap")
        ask(
            "USE shop.main; UPDATE person:1 SET a = 0, b = 1; DELETE person:2;"
            "CREATE person:3 SET a = 3"
        )

        (block,) = BLOCK.findall(section("Restore one table", BACKUPS))
        block = block.replace("/var/lib/then", f"{tmp_path}/then")
        block = re.sub(r"\b(night\.storesnap|person\.jsonl)\b", rf"{tmp_path}/\1", block)
        restore, serve, *copied = block.splitlines()
        command(restore)
        assert serve == f"storenode {tmp_path}/then --http :9000 --serve :9001 &"
        (tmp_path / "scripts").mkdir()
        there = serve_at[":9001"] = nodes.enter_context(
            serving(tmp_path / "then", *NodeProcess.words, "--backup-dir", f"{tmp_path}/scripts")
        )
        for line in copied:
            command(line)
        table = "USE shop.main; SELECT VALUE [id, a, b] FROM person"
        assert [row[1:] for row in ask(table)] == [
            [1, 1],
            [2, {"$none": True}],
            [3, {"$none": True}],
        ]

        (statement,) = re.findall(
            r"`(BACKUP SCRIPT OF .*?)`", section("Restore one database", BACKUPS)
        )
        assert there.request("POST", "/script", {"script": statement}).status == 200
        (renamed,) = BLOCK.findall(section("Restore one database", BACKUPS))
        renamed = renamed.replace("/var/backups/storenode", str(folder))
        subprocess.run(["bash", "-euc", renamed], check=True, cwd=tmp_path / "scripts")
        ask("RESTORE SCRIPT FROM 'renamed.storeql'")
        assert ask("USE shop.then; SELECT VALUE a FROM person") == [1, 2]


def test_the_page_names_the_formats_of_this_version() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (.*?\|.*?) \|", section("Upgrade and downgrade"), re.M))
    read = ", ".join(map(str, sorted(frames.READ)))
    assert rows["log"] == f"{frames.FORMAT}, encrypted {frames.SEALED_FORMAT} | {read}"
    assert (
        rows["`STORE`, `NODE` and the like"] == f"{metadata_file.FORMAT} | {metadata_file.FORMAT}"
    )
    assert container.FORMAT == scripts.FORMAT
    backups = rows["snapshots, logs as backups, scripts"]
    assert backups == f"{container.FORMAT} | {container.FORMAT}"
