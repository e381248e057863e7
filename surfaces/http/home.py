"""GET /: a page for people who opened the address in a browser. It says what runs here and where
to read on; it holds no script and loads nothing."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Final

from protocol.version import VERSION
from surfaces.http import answers
from surfaces.http.handler import Handler


@dataclass(frozen=True, slots=True)
class Page:
    """A page made ready once: its bytes, compressed too, its tags and its policy."""

    body: bytes
    compressed: bytes
    etag: str
    policy: str


def build(text: str) -> Page:
    """A page whose one inline stylesheet is allowed by its hash, and nothing else is."""
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    body = text.encode()
    return Page(
        body,
        gzip.compress(body, 9, mtime=0),
        hashlib.sha256(body).hexdigest()[:32],
        policy,
    )


CONSOLE: Final = Path(__file__).parents[2] / "console"
"""The room of the static files, beside this one in a checkout and when installed."""
_TEXT: Final = (CONSOLE / "index.html").read_text("utf-8").replace("{version}", VERSION)
ADDRESSES: Final = 64
"""Addresses whose page is kept ready: one node is seldom called by more names."""


@lru_cache(ADDRESSES)
def page(address: str) -> Page:
    """The page as served at `scheme://host:port`, which its example calls."""
    return build(_TEXT.replace("{address}", escape(address)))


class HomeHandler(Handler):
    """GET /."""

    def get(self) -> None:
        """Answer the page, or say that the browser's copy is good."""
        found = page(self._address())
        # Over TLS nothing is compressed: lengths would tell of what is encrypted.
        plain = self.surface.settings.tls is None
        compressed = plain and accepts_gzip(self.asked.fields.get(b"accept-encoding", b""))
        etag = f'"{found.etag}-gzip"' if compressed else f'"{found.etag}"'
        self.set_header("ETag", etag)
        self.set_header("Cache-Control", "no-cache")
        self.set_header("Vary", "Accept-Encoding")
        self.set_header("Content-Security-Policy", found.policy)
        self.set_header("Referrer-Policy", "no-referrer")
        if self.check_etag_header():
            self.set_status(304)
            return
        self.set_header("Content-Type", answers.HTML.decode())
        if compressed:
            self.set_header("Content-Encoding", "gzip")
        self.finish(found.compressed if compressed else found.body)

    def _address(self) -> str:
        """Where the browser found this page; where the surface listens when it does not say."""
        scheme = "http" if self.surface.settings.tls is None else "https"
        host, port = self.surface.address
        own = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"{scheme}://{self.asked.text(b'host') or own}"


def accepts_gzip(header: bytes) -> bool:
    """Whether Accept-Encoding names gzip with a weight above zero."""
    for part in header.decode("latin-1").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            value = weight.replace(" ", "").removeprefix("q=")
            return not re.fullmatch(r"0(\.0*)?", value)
    return False
