"""Entry points of the image: variables that are flags, and a health check that asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protocol.version import VERSION
from surfaces.command import container
from surfaces.command.arguments import Serve, understand
from surfaces.command.flags import ParsedFlags, UsageRefused
from tests.architecture.sources import ROOT
from tests.certificates import self_signed
from tests.processes import serving

IMAGE = re.compile(r"\bstorenode:(\d[\w.-]*)")
BOTH = {"STORE_HTTP": "0.0.0.0:8000", "STORE_SERVE": "0.0.0.0:8001"}


def test_variables_are_flags() -> None:
    given = {
        **BOTH,
        "STORE_KEEP_LOG": "7d",
        "STORE_KEY_FILE": "/run/key",
        "STORE_CERT": "",
        "X": "1",
    }
    words = container.command_line([], given)
    assert words[0] == container.DIRECTORY and "--cert" not in words
    found = understand(words, {})
    assert isinstance(found, Serve) and found.keep_log is not None and found.opening.keys.own
    wire_alone = understand(container.command_line([], {**BOTH, "STORE_HTTP": ""}), {})
    assert isinstance(wire_alone, Serve) and wire_alone.http is None and wire_alone.wire
    with pytest.raises(UsageRefused, match="nothing to do"):
        understand(container.command_line([], dict.fromkeys(BOTH, "")), {})
    assert container.command_line(["--verify", "x"], BOTH) == ["--verify", "x"]


def test_the_password_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse\n")
    named = {"STORE_USER": "root", "STORE_PASSWORD_FILE": str(file)}
    read = {"STORE_USER": "root", "STORE_PASSWORD": "correct horse"}
    assert container.with_password(named) == read == container.with_password(read)
    with pytest.raises(UsageRefused, match="contradicts"):
        container.with_password({**read, **named})
    file.write_bytes(b"\xff")
    for wrong, why in ((file, "not UTF-8"), (tmp_path / "none", "No such file")):
        with pytest.raises(UsageRefused, match=why):
            container.with_password({"STORE_PASSWORD_FILE": str(wrong)})


def test_a_check_asks_the_node(tmp_path: Path) -> None:
    certificate, key = map(str, self_signed(tmp_path, "node"))
    words = (
        "--http",
        "127.0.0.1:0",
        "--serve",
        "127.0.0.1:0",
        "--cert",
        certificate,
        "--cert-key",
        key,
    )
    with serving(tmp_path / "store", *words) as node:
        http, wire = node.at("http"), node.at("wire")
        tls = {"--cert": certificate}
        for healthy, given in (
            (True, {"--http": http, "--serve": wire, **tls}),
            (True, {"--serve": wire, **tls}),
            (False, {"--http": wire, **tls}),
            (False, {"--serve": http, **tls}),
            (False, {"--http": http}),
            (False, {"--serve": wire}),
        ):
            assert container.is_healthy(ParsedFlags(flags=given)) is healthy, given
    assert not container.is_healthy(ParsedFlags(flags={"--http": http}))


def test_the_command_line_of_a_node_is_found() -> None:
    python = ["/usr/bin/python3", "-IS", container.PROGRAM]
    for served, words in (
        (True, [*python, *container.command_line([], BOTH)]),
        (True, ["/sbin/init", "--", *python, "d", "--serve", ":0"]),
        (False, [*python, "shell", "-c", "RETURN 1"]),
        (False, [*python, "--verify", "x"]),
        (False, ["/usr/bin/python3", "-m", "http.server"]),
    ):
        line = b"".join(word.encode() + b"\0" for word in words)
        assert (container.served(line) is not None) is served, words


def test_files_for_operators_name_the_image_of_this_version() -> None:
    files = [*(ROOT / "packaging/image").glob("*.yaml"), ROOT / "docs/operations.md"]
    named = {path.name: set(IMAGE.findall(path.read_text())) for path in files}
    assert len(named) == 4 and all(versions == {VERSION} for versions in named.values()), named
