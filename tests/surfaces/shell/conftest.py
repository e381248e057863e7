"""One node for the tests of a worker, a database of its own for each of them."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from surfaces.shell import session
from surfaces.shell.main import main
from tests.processes import PASSWORD, USER, NodeProcess, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def node(shared_path: Path) -> Iterator[NodeProcess]:
    """A node that nobody may kill."""
    with serving(shared_path / "shell") as node:
        node.script("DEFINE NAMESPACE shop")
        yield node


@dataclass
class Here:
    """Runs commands of clients in this process, on a database of the test's own."""

    node: NodeProcess
    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    database: str
    environment: dict[str, str] = field(
        default_factory=lambda: {"STORE_USER": USER, "STORE_PASSWORD": PASSWORD}
    )

    @property
    def address(self) -> str:
        return self.node.at("wire")

    @property
    def place(self) -> str:
        return f"shop.{self.database}"

    def shell(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit code and both outputs of `storenode shell` in the test's database."""
        return self.run("shell", self.address, "--use", self.place, *words, stdin=stdin)

    def run(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self.capture.readouterr()
        code = main(words, self.environment)
        said = self.capture.readouterr()
        return code, said.out, said.err

    def script(self, text: str, **params: Any) -> Any:
        """The value of the last statement, asked over HTTP."""
        answer = self.node.script(text, ns="shop", db=self.database, params=params)
        assert "error" not in answer, answer
        return answer["results"][-1]["value"]


@pytest.fixture
def here(
    node: NodeProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    database = f"d{next(_numbers)}"
    # What is said where a machine is too slow to connect at once stands in no other output.
    monkeypatch.setattr(session, "NOTICE_SECONDS", 60)
    node.script(f"DEFINE DATABASE shop.{database}")
    return Here(node, capsys, monkeypatch, database)
