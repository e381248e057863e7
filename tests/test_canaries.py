"""The look for secrets finds one, in whatever a test hears."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import canaries
from tests.nodes import PASSWORD, running
from tests.processes import serving


def found() -> list[str]:
    """What was found, and is forgotten: it was planted."""
    seen = canaries.found()
    canaries.begin()
    return seen


@pytest.mark.parametrize("said", [f"hi {PASSWORD}", "cm9vdDpjb3JyZWN0IGhvcnNlIGJhdHRlcnk="])
def test_a_password(said: str) -> None:
    canaries.heard(said.encode(), "somewhere")
    assert len(found()) == 1


def test_a_token_is_its_owners_alone() -> None:
    canaries.heard(b'{"token":"0123456789abcdefghij"}', "POST /session")
    assert canaries.found() == []
    canaries.heard(b"and 0123456789abcdefghij again", "GET /metrics")
    assert len(found()) == 1


async def test_in_what_scripts_are_told(tmp_path: Path) -> None:
    async with running(tmp_path / "store") as node:
        await node.answer(f"THROW '{PASSWORD}'")
        assert len(found()) == 1
        await node.values("DEFINE TABLE t COMMENT 'plain'; INFO FOR TABLE t")
        assert found() == []
        await node.values(f"DEFINE TABLE u COMMENT '{PASSWORD}'; INFO FOR TABLE u")
        assert len(found()) >= 1


def test_in_what_a_process_says(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node:
        node.script(f"RETURN '{PASSWORD}'")
        assert len(found()) == 1
        token = node.request("POST", "/session").json
        node.script(f"RETURN '{token['token']}'")
        assert len(found()) == 1
