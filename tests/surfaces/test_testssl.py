"""What the TLS scanner of others, testssl.sh, has to say of both surfaces."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.certificates import self_signed
from tests.processes import NodeProcess, serving

TOOL: Final = shutil.which("testssl") or shutil.which("testssl.sh")
OF_THE_CERTIFICATE: Final = {"cert_chain_of_trust", "cert_revocation"}
"""Said of every certificate that is self-signed."""
CHECKS: Final = ("-p", "-s", "-f", "-P", "-S", "-U")
"""Protocols, ciphers, forward secrecy, preferences, defaults, and every known attack."""
OVER_HTTP: Final = ("-h",)
WEAKER: Final = re.compile("cipherlist_(?!STRONG)")
"""Kinds of ciphers that are not AEAD; what they are called differs between its versions."""
BAD: Final = {"MEDIUM", "HIGH", "CRITICAL"}

pytestmark = [
    pytest.mark.hard,
    pytest.mark.timeout(900),
    pytest.mark.skipif(TOOL is None, reason="not installed: testssl.sh"),
]


def scanned(folder: Path, where: str, *checks: str) -> list[dict[str, Any]]:
    """What the tool found at `host:port`, or at a URL."""
    told = folder / "found.json"
    told.unlink(missing_ok=True)
    ended = subprocess.run(
        [
            str(TOOL), "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none",
            "--ip", "127.0.0.1", "--jsonfile", str(told), *checks, where,
        ],
        cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert told.exists(), ended.stdout + ended.stderr
    found: list[dict[str, Any]] = json.loads(told.read_text())
    return found


def faults(found: list[dict[str, Any]]) -> dict[str, str]:
    """Lines that say VULNERABLE or NOT ok, or that weigh as much, but for the certificate's; and
    ciphers without AEAD."""
    return {
        one["id"]: one["finding"]
        for one in found
        if one["id"] not in OF_THE_CERTIFICATE
        and (
            one["severity"] in BAD
            or "VULNERABLE" in one["finding"]
            or "NOT ok" in one["finding"]
            or (WEAKER.match(one["id"]) and one["finding"] != "not offered")
        )
    }


@pytest.mark.parametrize("surface", ["http", "wire"])
def test_nothing_is_found_against_a_surface(tmp_path: Path, surface: str) -> None:
    chain, key = self_signed(tmp_path, "localhost")
    words = (*NodeProcess.words, "--cert", str(chain), "--cert-key", str(key))
    with serving(tmp_path / "store", *words) as node:
        _, port = node.address(surface)
        if surface == "http":
            found = scanned(tmp_path, f"https://localhost:{port}", *CHECKS, *OVER_HTTP)
        else:
            found = scanned(tmp_path, f"localhost:{port}", *CHECKS)
        assert faults(found) == {}
        by_id = {one["id"]: one["finding"] for one in found}
        for protocol in ("SSLv2", "SSLv3", "TLS1", "TLS1_1"):
            assert by_id[protocol] == "not offered"
        assert by_id["TLS1_2"] == "offered" and by_id["TLS1_3"].startswith("offered")
        attacks = {"heartbleed", "CCS", "secure_client_renego", "SWEET32", "LUCKY13", "BEAST"}
        assert attacks <= by_id.keys(), "it did not try everything"
        assert ("BREACH" in by_id) == (surface == "http")
        assert node.stop() == 0
        assert not [line for line in node.lines if line.get("level") == "error"]


async def test_what_python_offers_by_itself_would_be_found(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path, "localhost"))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await asyncio.to_thread(scanned, tmp_path, f"localhost:{port}", "-s")
    (planted,) = faults(found)
    assert WEAKER.match(planted)
