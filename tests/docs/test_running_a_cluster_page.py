"""`docs/running-a-cluster.md`: what it does on its machines is done, and prints what it says.

`make cases-accept` writes what is printed now into the page: read the difference.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from language.parser import parse
from tests.actors.agreement.etcds import needs_etcd
from tests.architecture.sources import ROOT
from tests.docs.machines import BLOCK, Machines, play, rewritten, same, steps

PATH = ROOT / "docs" / "running-a-cluster.md"
PAGE = PATH.read_text(encoding="utf-8")
ASKED = re.compile(r"ask [\w$:.,]+ (?:\"([^\"]*)\"|'([^']*)')")
POLICY = {"$via": "VIA 'https://a'", "$policy": "LEASE 5s ACKS 1 BEHIND 2s PROMOTE AUTO"}
NEEDED = ("etcd", "etcdctl", "openssl")


def asked(page: str) -> list[str]:
    """The statements that a page has asked of nodes."""
    commands = [step.command for block in BLOCK.findall(page) for step in steps(block)]
    found = [one or other for text in commands for one, other in ASKED.findall(text)]
    values = {"$roles": "ROLES serving", "$1": "n1", "$id": "1", **POLICY}
    for name, value in values.items():
        found = [text.replace(name, value) for text in found]
    return [text for text in found if text != "$2"]


def test_every_statement_is_one() -> None:
    found = asked(PAGE)
    assert len(found) > 30
    for text in found:
        parse(text)


def test_commands_and_what_they_print_are_told_apart() -> None:
    one, other = steps("n1$ for n in 1; do\n>   echo $n\n> done\n1\nyou$ true\n", 7)
    assert (one.machine, one.command, one.shown) == ("n1", "for n in 1; do\n  echo $n\ndone", ["1"])
    assert (other.machine, other.command, other.line, other.shown) == ("you", "true", 11, [])


@pytest.mark.parametrize(
    ("shown", "found", "agree"),
    [
        ("lease 3s243ms809us", "lease 4s", True),
        ("at sequence 812, of 3 nodes", "at sequence 45, of 3 nodes", True),
        ("followers     2", "followers 1", False),
        ("life leading", "life following", False),
        ("lease 3s", "lease NULL", False),
        ("id 9244f160-8c3a-49af-a77c-63fdbe0e3110", "id 9244f160", False),
        ("from cluster 157df3bf4dd7499a", "from cluster  c612569f1e674cf", True),
        ("a … b", "a long way to b", True),
    ],
)
def test_what_differs_is_found(shown: str, found: str, agree: bool) -> None:
    assert same([shown], [found]) is agree
    assert not same([shown], [found, found])


@pytest.mark.hard
@pytest.mark.timeout(1_800)
@needs_etcd
def test_the_page_is_done(tmp_path: Path) -> None:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {missing}")
    machines, printed, wrong = Machines(tmp_path), [], []
    (wheel,) = re.findall(r"wheel=(\S+)", PAGE)
    machines.write(wheel, "")
    for machine in ("n1", "n2", "n3"):  # left by an earlier upgrade
        (machines.home(machine) / "storenode-0.1.0-py3-none-any.whl").touch()
    try:
        for step, found in play(PAGE, machines):
            printed.append(found)
            if not same(step.shown, found):
                told = ["  shown", *step.shown, "  found", *found]
                wrong.append("\n".join([f"{PATH.name}:{step.line}: {step.command}", *told]))
                if not os.environ.get("CASES_ACCEPT"):
                    break  # what comes behind rests on it
    finally:
        machines.end()
    if os.environ.get("CASES_ACCEPT"):
        PATH.write_text(rewritten(PAGE, printed), encoding="utf-8")
        pytest.skip("written anew: read the difference")
    assert not wrong, "\n\n".join(wrong)
