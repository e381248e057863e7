"""The suite itself: each rule has a case, each case a rule, and every step is one that is known."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.cases import FOLDER, BadCase, cases, read, rules
from tests.conformance.steps import EXPECTS, Run
from tests.conformance.values import canonical, pack, unpack

CALL = re.compile(r"^\| (`[a-z_.]+`(?: `[a-z_.]+`)*) \|", re.MULTILINE)


def calls() -> set[str]:
    """The calls of the page about testees."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = {name.strip("`") for row in CALL.findall(page) for name in row.split()}
    assert {"open", "cache.get", "backup.file"} <= found
    return found


def test_every_rule_has_a_case() -> None:
    """That every case has a rule `cases` sees to."""
    named = {rule for case in cases() for rule in case.rules}
    assert len(rules()) == len(set(rules())) >= 51
    assert not [rule for rule in rules() if rule not in named]


def test_every_group_is_as_large_as_it_was_meant_to_be() -> None:
    least = {
        "values": 120, "malformed": 40, "connecting": 20, "requests": 25, "errors": 65,
        "caches": 35, "topics": 40, "feeds": 35, "vaults": 15, "faults": 45, "nodes": 50, "tls": 6,
    }  # fmt: skip
    found = Counter(case.group for case in cases())
    assert {group: found[group] for group in least if found[group] < least[group]} == {}


def test_every_step_is_known() -> None:
    known = calls() | {name[3:] for name in vars(Run) if name.startswith("do_")}
    words = {
        (word, case.id)
        for case in cases()
        for step in case.steps
        for word in step
        if word not in EXPECTS | {"end", "together"}
    }
    assert not [one for one in words if not {one[0], one[0].replace(".", "_")} & known]


@pytest.mark.parametrize(
    "wrong",
    [
        "- {name: a, rule: C999, node: real, steps: [{ping: {}}]}",
        "- {name: a, node: real, steps: [{ping: {}}]}",
        "- {name: a, rule: C1, node: moon, steps: [{ping: {}}]}",
        "- {name: a, rule: C1, node: real, steps: []}",
        "- {name: a, rule: C1, node: real, does: 1, steps: [{ping: {}}]}",
    ],
)
def test_a_case_that_is_none_is_refused(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(wrong)
    with pytest.raises(BadCase):
        list(read(tmp_path / "wrong.yaml"))


def test_values_have_two_forms_that_agree() -> None:
    found = json.loads((FOLDER / "values.json").read_text(encoding="utf-8"))
    for one in [*found["both"], *found["read"]]:
        assert canonical(unpack(bytes.fromhex(one["wire"]))) == canonical(one["value"]), one
    for one in found["both"]:
        assert pack(one["value"]).hex() == one["wire"], one
