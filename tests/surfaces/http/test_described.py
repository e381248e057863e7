"""Requests made up from /openapi.json, right ones and wrong ones, sent to a real node."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import PASSWORD, USER, NodeProcess, serving

TOOL = Path(sys.prefix) / "schemathesis" / "bin" / "st"
"""Beside the environment of this interpreter, wherever the tree is."""
CASES = {"nobody": 1000, "owner": 1000, "who guesses": 30}
"""At least so many of each caller."""
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "response_headers_conformance",
)  # fmt: skip
COUNTED = re.compile(r"(\d+) generated")


CONFIGURATION = """
[phases.coverage]
unexpected-methods = ["PUT", "PATCH", "TRACE"]
"""
"""A method that HTTP does not know is rightly answered 501."""


SLOWED: list[str] = ["/session", "/password", "/vault/unseal", "/vault/passphrase"]
"""Where wrong secrets are answered ever more slowly: a few are enough there."""


def callers() -> dict[str, list[str]]:
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    owner = ["--header", f"Authorization: Basic {pair}"]
    others = [word for path in SLOWED for word in ("--exclude-path", path)]
    guessed = [word for path in SLOWED[1:] for word in ("--include-path", path)]
    return {
        "nobody": ["--max-examples", "30"],
        "owner": [*owner, *others, "--max-examples", "60"],
        "who guesses": [*owner, *guessed, "--max-examples", "4"],
    }


def generated(node: NodeProcess, folder: Path, sent: list[str]) -> int:
    """How many requests were sent, all answered as they are described; a test that fails shows
    what the tool says."""
    host, port = node.address("http")
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    told = subprocess.run(
        [
            str(TOOL), "run", f"http://{host}:{port}/openapi.json", "--checks", ",".join(CHECKS),
            "--phases", "coverage,fuzzing", "--seed", "20261121",
            "--continue-on-failure", "--suppress-health-check", "all", "--no-color", *sent,
        ],
        env={**os.environ, "COLUMNS": "100"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    counted = COUNTED.search(told.stdout)
    assert counted is not None, told.stdout
    return int(counted[1])


@pytest.mark.hard
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("who", CASES)
def test_every_route_answers_as_it_is_described(tmp_path: Path, who: str) -> None:
    if not TOOL.exists():
        pytest.skip("schemathesis is not installed: make test-hard does that")
    with serving(tmp_path / "store") as node:
        count = generated(node, tmp_path, callers()[who])
        assert node.request("GET", "/ready").status == 200
        assert node.stop() == 0
        assert not [line for line in node.lines if line.get("level") == "error"]
    print(f"S2 requests made up from the description, of {who}: {count}")
    assert count >= CASES[who]
