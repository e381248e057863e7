"""`docs/cluster-tests.md`: each promise of a cluster names tests, and these exist."""

from __future__ import annotations

from tests.architecture.sources import ROOT
from tests.docs.test_security_page import gone, promises, said_wrong

PAGE = (ROOT / "docs" / "cluster-tests.md").read_text(encoding="utf-8")
HELD = f"## What is promised\n\n{PAGE}"
"""As the page about security has it, whose checker this is."""


def test_every_promise_of_a_cluster_is_held_by_a_test_that_exists() -> None:
    found = promises(HELD)
    assert len(found) > 20
    assert [promise for promise, tests in found if not tests] == []
    assert gone(HELD) == []
    assert said_wrong(HELD) == []
