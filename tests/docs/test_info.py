"""`docs/statements.md` names every field of every INFO, and no field that is none; those of the
trails of vaults stand in `docs/vaults.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from actors.commits.committer import NODE
from actors.node import Node
from actors.node_info import Listening
from actors.scripts.handlers import SUBJECTS
from protocol import limits
from storage.catalog import failover
from storage.faults import LogDamaged
from surfaces.command import flags
from tests.actors import nodes
from tests.actors.nodes import real_environment, running, settings, value
from tests.architecture.sources import ROOT
from tests.processes import serving
from tests.storage.catalog.test_failover import POLICY

PAGE: Final = (ROOT / "docs" / "statements.md").read_text(encoding="utf-8")
VAULTS: Final = (ROOT / "docs" / "vaults.md").read_text(encoding="utf-8")
ROW: Final = re.compile(r"^\| ((?:`[A-Z]+`(?:, )?)+) \| (.*) \|$", re.MULTILINE)
FIELD: Final = re.compile(r"`([a-z_]+)`")

FOLLOWER: Final = "6f3a2c1e-8a54-4be2-9d0a-3a5c0e1f7b11"
EVERYTHING: Final = (
    """
DEFINE TABLE full SCHEMAFULL COMMENT 'c'; DEFINE FIELD f ON full TYPE int DEFAULT 1;
DEFINE INDEX ready ON full FIELDS f;
DEFINE TABLE many; INSERT INTO many $rows;
DEFINE FUNCTION fit($n: int) { $n }; DEFINE ANALYZER en TOKENIZERS class FILTERS lowercase;
DEFINE INDEX words ON full FIELDS text FULLTEXT ANALYZER en BOOST text 2;
DEFINE INDEX near ON full FIELDS v VECTOR DIMENSION 2;
 DEFINE VAULT w; DEFINE SPACE s EXPIRE 1h; SET 'k' IN s VALUE 1;
DEFINE TOPIC bounded BYTES 1MiB; DEFINE TOPIC unbounded; DEFINE TOPIC dead;
DEFINE TABLE telling ON CHANGE OF f PUBLISH INTO unbounded;
DEFINE READER r ON bounded; DEFINE GROUP g ON bounded DEADLINE 1s DEAD LETTER dead BACKOFF 1s;
PUBLISH INTO bounded VALUE 1;
DEFINE USER eve ROLE member PASSWORD 'a password of hers';
DEFINE REPLICA n1 PEER 'n1:1' CERTIFICATE '{hexed}'; REVOKE CERTIFICATE '{other}';
DEFINE REPLICA n2 PEER 'n2:1' NODE '{follower}';
BACKUP TO 'all'; DEFINE INDEX built ON many FIELDS n; INFO FOR INDEX built ON many
""".replace("{hexed}", "ab" * 32)
    .replace("{other}", "cd" * 32)
    .replace("{follower}", FOLLOWER)
)
ASKED: Final = {
    "STORE": ["STORE"],
    "NAMESPACE": ["NAMESPACE a"],
    "DATABASE": ["DATABASE a.b"],
    "TABLE": ["TABLE full", "TABLE many", "TABLE telling"],
    "INDEX": [
        "INDEX ready ON full",
        "INDEX words ON full",
        "INDEX near ON full",
        "INDEX refused ON many",
    ],
    "SPACE": ["SPACE s"],
    "TOPIC": ["TOPIC bounded", "TOPIC unbounded"],
    "GROUP": ["GROUP g ON bounded"],
    "FUNCTION": ["FUNCTION fit"],
    "ANALYZER": ["ANALYZER en"],
    "VAULT": ["VAULT w"],
    "USERS": ["USERS"],
    "USER": ["USER ana"],
    "GRANTS": ["GRANTS"],
    "NODE": ["NODE"],
    "CLUSTER": ["CLUSTER"],
    "STATE": ["STATE"],
    "RUNNING": ["RUNNING"],
    "BACKUPS": ["BACKUPS"],
    "STATEMENTS": ["STATEMENTS"],
    "AUDIT": ["AUDIT"],
    "HISTORY": ["HISTORY OF many:1"],
}
OF_ENTRIES: Final = {"STATEMENTS", "AUDIT", "HISTORY"}
"""What is asked by a statement of its own."""
TRAILS: Final = {
    "AUDIT OF ALL VAULTS": "## The trail",
    "AUDIT OF ALL VAULTS CHECK": "### Looking through a trail",
}
"""And under which heading its fields stand."""
FREE: Final = {"settings", "value"}
"""Whose own fields stand elsewhere: they are the flags, or those of a record."""


def fields(answer: Any) -> Iterator[str]:
    """The names of the fields of an answer, at every depth."""
    if isinstance(answer, list):
        for one in answer:
            yield from fields(one)
    elif isinstance(answer, dict):
        for name, inner in answer.items():
            yield name
            if name not in FREE:
                yield from fields(inner)


def named(subject: str, page: str = PAGE) -> set[str]:
    rows = [row for subjects, row in ROW.findall(page) if f"`{subject}`" in subjects]
    assert len(rows) == 1, f"INFO FOR {subject} has {len(rows)} rows"
    return set(FIELD.findall(rows[0]))


def named_of_a_trail(heading: str, page: str = VAULTS) -> set[str]:
    """The fields that the table under a heading names."""
    lines = page.partition(heading + "\n")[2].partition("\n#")[0].splitlines()
    names = [line.split("|")[1] for line in lines if line.startswith("| `")]
    return set(FIELD.findall(" ".join(names)))


async def answered(node: Node) -> dict[str, set[str]]:
    """The fields of every INFO of a node that holds one of everything."""
    await nodes.prepare(node)
    rows = [{"id": number, "n": number % 2} for number in range(limits.INDEX_AT_ONCE + 1)]
    found = {subject: set[str]() for subject in ASKED}
    found["INDEX"] |= set(fields(await value(node, EVERYTHING, {"rows": rows})))
    await value(node, "DEFINE INDEX refused ON many FIELDS n UNIQUE")
    while (await value(node, "INFO FOR INDEX refused ON many"))["state"] != "failed":
        await nodes.yield_often()
    damage = LogDamaged("file", 1, 1, "what")
    node.log_checks.damage["file", 1] = damage
    with node.committer.begin_transaction() as tx:
        failover.define(tx, node.store.id, POLICY)
        await node.committer.released(node.committer.commit(tx, NODE))
    node.member.followers = node.member.followers.attached(FOLLOWER, 1, 0)
    node.facts.listening = (Listening("http", "127.0.0.1:1"),)
    for subject, each in ASKED.items():
        for one in each:
            found[subject] |= set(fields(await value(node, f"INFO FOR {one}")))
    return found


async def test_every_field_of_every_info_stands_there(tmp_path: Any) -> None:
    assert set(ASKED) - OF_ENTRIES == set(SUBJECTS), "an INFO that nobody asks here"
    (tmp_path / "backups").mkdir()
    told = settings(str(tmp_path / "store"), backup_dir=str(tmp_path / "backups"))
    async with running(real_environment(), told) as node:
        for subject, found in (await answered(node)).items():
            assert found == named(subject), f"INFO FOR {subject}"
        for asked, heading in TRAILS.items():
            answer = await value(node, f"INFO FOR {asked}")
            assert set(fields(answer)) == named_of_a_trail(heading), asked


def test_the_settings_are_the_flags_of_a_node_that_serves(tmp_path: Any) -> None:
    serve = {flag.name for flag in flags.FLAGS if flag.serving_only}
    with serving(tmp_path / "store", "--http", "127.0.0.1:0", "--keep-log", "7d") as node:
        shown = node.script("INFO FOR NODE")["results"][0]["value"]["settings"]
    words = {f"--{name.replace('_', '-')}" for name in shown}
    assert serve | {"--accept-clock-jump", "--key-file"} == words - {"--directory"}
    assert shown["keep_log"] == {"$dur": "1w"}
    assert shown["directory"] == str(tmp_path / "store")
