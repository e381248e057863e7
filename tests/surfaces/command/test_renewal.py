"""SIGHUP presents another certificate to who connects later; a bad one changes nothing."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from actors.node import Node
from storeclient import Client
from surfaces.command import certificates
from surfaces.command.renewal import HangUps, Renewal
from surfaces.command.serving import Presenting, _present
from surfaces.http.shared import Deadlines, HttpSettings
from surfaces.http.surface import HttpSurface
from surfaces.wire.gate import NodeGate
from surfaces.wire.surface import WireSettings, WireSurface
from tests.certificates import self_signed
from tests.logbook import Logbook
from tests.nodes import running
from tests.processes import PASSWORD, USER, NodeProcess, command_line, environment, serving
from tests.surfaces.http.raw import Raw
from tests.surfaces.http.test_metrics import samples
from tests.surfaces.wire.peers import connected

NOW = datetime.now(UTC).replace(microsecond=0)
SERIES = "store_tls_certificate_expires_seconds"


def fingerprint(chain: Path) -> str:
    return sha256(ssl.PEM_cert_to_DER_cert(chain.read_text())).hexdigest()


def put(files: tuple[Path, Path], pair: tuple[Path, Path]) -> None:
    for target, source in zip(files, pair, strict=True):
        target.touch(0o600)
        target.write_bytes(source.read_bytes())


def presented(address: tuple[str, int], session: ssl.SSLSession | None = None) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(address) as plain,
        context.wrap_socket(plain, session=session) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return sha256(shown).hexdigest()


@dataclass
class Served:
    """A node with both surfaces in this process, and what renews their certificate."""

    node: Node
    surfaces: list[Presenting]
    renewal: Renewal
    files: tuple[Path, Path]
    trust: ssl.SSLContext

    async def presented(self) -> set[str]:
        return {await asyncio.to_thread(presented, one.address) for one in self.surfaces}

    def shown(self) -> set[object]:
        info = self.node.facts.info()["surfaces"]
        assert isinstance(info, list) and len(info) == 2
        return {one["certificate_expires"] for one in info if isinstance(one, dict)}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    first = self_signed(folder, "first")
    files = (folder / "chain.pem", folder / "key.pem")
    put(files, first)
    names = (str(files[0]), str(files[1]))
    certificate = certificates.load(*names, NOW)
    async with running(folder / "store") as here:
        at = ("127.0.0.1", 0, certificate.context)
        surfaces: list[Presenting] = [
            HttpSurface(here.node, HttpSettings(*at, deadlines=Deadlines(linger_s=0.2))),
            WireSurface(NodeGate(here.node), WireSettings(*at)),
        ]
        for surface in surfaces:
            await surface.start()
        try:
            _present(here.node, surfaces, certificate)
            renewed = partial(_present, here.node, surfaces)
            renewal = Renewal(names, lambda: NOW, surfaces, renewed)
            trust = ssl.create_default_context(cafile=str(first[0]))
            yield Served(here.node, surfaces, renewal, files, trust)
        finally:
            for surface in surfaces:
                await surface.close()


async def test_who_connects_later_sees_the_new_one_and_open_connections_go_on(
    tmp_path: Path, logbook: Logbook
) -> None:
    expires = NOW + timedelta(days=60)
    second = self_signed(tmp_path, "second", expires)
    async with served(tmp_path) as here:
        http, wire = here.surfaces
        assert isinstance(wire, WireSurface)
        async with (
            await Raw.connect(http.address[1], here.trust) as raw,
            connected(wire, here.trust) as peer,
        ):
            await peer.greet(user=USER, password=PASSWORD)
            put(here.files, second)
            assert await here.presented() == {fingerprint(tmp_path / "first.pem")}
            await here.renewal.renew()
            assert await here.presented() == {fingerprint(second[0])}
            assert here.shown() == {expires}
            assert (await raw.ask("GET", "/health")).status == 200
            assert (await peer.run(1, "RETURN 1")).body is not None
            with pytest.raises(ssl.SSLCertVerificationError):
                await Raw.connect(http.address[1], here.trust)
    (line,) = [one for one in logbook.events if one["event"] == "the certificate was read again"]
    assert line["expires"] == expires.isoformat()
    assert line["fingerprint"] == fingerprint(second[0])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_of_before_is_not_resumed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """A resumed session would go on with the certificate of before, unseen."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version

    def ask(address: tuple[str, int], session: ssl.SSLSession | None) -> ssl.SSLSocket:
        secured = context.wrap_socket(socket.create_connection(address), session=session)
        secured.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with contextlib.closing(secured):
            while secured.recv(65_536):  # TLS 1.3 sends its tickets behind the handshake
                pass
            found = secured.session, secured.session_reused
        asked.append(found)
        return secured

    asked: list[tuple[ssl.SSLSession | None, bool | None]] = []
    async with served(tmp_path) as here:
        address = here.surfaces[0].address
        await asyncio.to_thread(ask, address, None)
        await asyncio.to_thread(ask, address, asked[0][0])
        put(here.files, self_signed(tmp_path, "second"))
        await here.renewal.renew()
        await asyncio.to_thread(ask, address, asked[1][0])
    assert [reused for _, reused in asked] == [False, True, False]


def expired(folder: Path) -> tuple[Path, Path]:
    return self_signed(folder, "expired", NOW - timedelta(seconds=1))


def not_yet(folder: Path) -> tuple[Path, Path]:
    return self_signed(folder, "not-yet", begins=NOW + timedelta(days=1))


def mismatched(folder: Path) -> tuple[Path, Path]:
    return self_signed(folder, "one")[0], self_signed(folder, "other")[1]


def garbled(folder: Path) -> tuple[Path, Path]:
    chain, key = self_signed(folder, "cut")
    chain.write_text(chain.read_text()[:-200])
    return chain, key


BAD: dict[Callable[[Path], tuple[Path, Path]], str] = {
    expired: "the certificate expired on ",
    not_yet: "the certificate is not valid before ",
    mismatched: "the key does not belong to the certificate",
    garbled: "not a certificate in PEM",
}


async def test_what_is_no_good_changes_nothing_and_the_log_says_why(
    tmp_path: Path, logbook: Logbook
) -> None:
    logbook.allow("the certificate was not renewed: the one before stays in use")
    async with served(tmp_path) as here:
        before = await here.presented(), here.shown(), here.surfaces[0]._listener._tls  # type: ignore[union-attr]
        for make, why in BAD.items():
            put(here.files, make(tmp_path))
            await here.renewal.renew()
            assert why in logbook.events[-1]["reason"], logbook.events[-1]
        put(here.files, self_signed(tmp_path, "keyless"))
        here.files[1].unlink()
        await here.renewal.renew()
        assert logbook.events[-1]["level"] == "error"
        assert logbook.events[-1]["reason"].endswith("key.pem: No such file or directory")
        after = await here.presented(), here.shown(), here.surfaces[0]._listener._tls  # type: ignore[union-attr]
        assert after == before
        put(here.files, self_signed(tmp_path, "second"))
        await here.renewal.renew()
        assert await here.presented() == {fingerprint(tmp_path / "second.pem")}


async def test_each_signal_is_acted_on_also_after_a_bug(
    tmp_path: Path, logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    logbook.allow("the certificate was not renewed")

    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    hang_ups = HangUps(asyncio.Event(), on_terminal=False)
    async with served(tmp_path) as here:
        beside = asyncio.create_task(here.renewal.at_each(hang_ups))
        with monkeypatch.context() as patched:
            patched.setattr(certificates, "load", fails)
            hang_ups._on_hang_up()
            while not any("exc_info" in event for event in logbook.events):
                await asyncio.sleep(0.001)
        put(here.files, self_signed(tmp_path, "second"))
        hang_ups._on_hang_up()
        while "the certificate was read again" not in logbook.names():
            await asyncio.sleep(0.001)
        assert await here.presented() == {fingerprint(tmp_path / "second.pem")}
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)


@contextmanager
def kept_alive(address: tuple[str, int], trust: ssl.SSLContext) -> Iterator[Callable[[], int]]:
    """A connection over HTTPS: asks /health on it."""
    connection = http.client.HTTPSConnection(*address, context=trust, timeout=60)

    def ask() -> int:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
        return answer.status

    try:
        connection.connect()
        yield ask
    finally:
        connection.close()


def test_sighup_renews_a_serving_node(tmp_path: Path) -> None:
    files = (tmp_path / "chain.pem", tmp_path / "key.pem")
    now = datetime.now(UTC).replace(microsecond=0)  # NOW may be long ago
    first = self_signed(tmp_path, "first", now + timedelta(days=3, hours=1))
    second = self_signed(tmp_path, "second", expires := now + timedelta(days=90))
    put(files, first)
    trust = ssl.create_default_context(cafile=str(first[0]))
    anew = ssl.create_default_context(cafile=str(second[0]))
    words = (*NodeProcess.words, "--cert", str(files[0]), "--cert-key", str(files[1]))
    with serving(tmp_path / "store", *words) as node:
        at = {name: node.address(name) for name in ("http", "wire")}
        soon = "the certificate expires soon: replace its files, then send SIGHUP"
        if soon not in node.events():
            node.wait_line(soon)
        (line,) = [one for one in node.lines if one["event"] == soon]
        assert (line["level"], line["days_left"]) == ("warning", 3)
        assert line["surfaces"] == ["http", "wire"]
        host, port = at["wire"]
        old = Client(f"{host}:{port}", user=USER, password=PASSWORD, tls=trust)
        with kept_alive(at["http"], trust) as ask, contextlib.closing(old):
            assert old.run("RETURN 1") is not None
            put(files, (second[0], first[1]))
            node.signal(signal.SIGHUP)
            told = node.wait_line("the certificate was not renewed: the one before stays in use")
            assert told is not None and told["level"] == "error"
            assert told["reason"].endswith("the key does not belong to the certificate")
            assert {presented(one) for one in at.values()} == {fingerprint(first[0])}
            put(files, second)
            node.signal(signal.SIGHUP)
            assert node.wait_line("the certificate was read again") is not None
            assert {presented(one) for one in at.values()} == {fingerprint(second[0])}
            assert ask() == 200
            assert old.run("RETURN 2") is not None
        with Client(f"{host}:{port}", user=USER, password=PASSWORD, tls=anew) as client:
            surfaces = client.run("INFO FOR NODE").value["surfaces"]
            assert [one["certificate_expires"] for one in surfaces] == [expires, expires]
            trail = client.query("INFO FOR AUDIT")
            assert [one["action"] for one in trail].count("renew certificate") == 1
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        scrape = urllib.request.Request(
            f"https://localhost:{at['http'][1]}/metrics",
            headers={"Authorization": f"Basic {basic}"},
        )
        with urllib.request.urlopen(scrape, context=anew) as answer:
            shown = samples(answer.read().decode())
        for name in at:
            assert shown[SERIES, frozenset({("surface", name)})] == expires.timestamp()
        assert node.stop() == 0


def test_without_a_certificate_sighup_does_nothing_until_the_terminal_is_gone(
    tmp_path: Path,
) -> None:
    parent, child = os.openpty()
    process = subprocess.Popen(
        command_line(str(tmp_path / "store"), "--http", "127.0.0.1:0"),
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=child,
    )  # fmt: skip
    os.close(child)

    def read_until(said: bytes) -> None:
        shown = b""
        while said not in shown:
            shown += os.read(parent, 4096)

    read_until(b"ready")
    process.send_signal(signal.SIGHUP)
    read_until(b"no certificate to reload")
    os.close(parent)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0
    assert (tmp_path / "store" / "log" / "CLOSED").exists()
