"""Console: GET / and GET /console/{hash}/{file}, static files for a browser.

The files are read once, at import. Each is compressed once, at its first request, since most nodes
never serve the console. The hash covers all of them and is a segment of every file's path. Imports
between them are relative, so a page never loads files of another version, and each file may be
cached for ever.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tornado.httputil import HTTPMessageDelegate

from protocol.errors import NoSuchRoute
from protocol.version import VERSION
from surfaces.http import answers
from surfaces.http.exchange import Exchange
from surfaces.http.shared import Http

PATH: Final = "/console/{hash}/{file}"
FOLDER: Final = Path(__file__).parents[2] / "console"
"""Folder of the static files, beside this package in a checkout and when installed."""
KINDS: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": answers.HTML,
    ".js": b"text/javascript; charset=utf-8",
    ".json": answers.JSON,
    ".svg": b"image/svg+xml",
    ".txt": answers.TEXT,
}
"""Media types by file extension; other files are not served."""
ENTRY: Final = "main.js"
"""Entry script of the page."""
DOCS: Final = "docs/index.html"
"""First of the pages that a build or an install writes: git has none of them."""
IMPORTED: Final = re.compile(r"^(?:import|export)\b[^;]*?\bfrom '(\.[^']+)'", re.MULTILINE)
"""Static imports of a script, as opposed to dynamic ones."""
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    b" connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)
_FIELDS: Final = (
    b"Vary: Accept-Encoding\r\nContent-Security-Policy: %s\r\nReferrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
) % POLICY
_FOR_EVER: Final = b"public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    """A static file: its bytes, its media type, its entity tag without quotes."""

    body: bytes
    kind: bytes
    tag: str

    @cached_property
    def compressed(self) -> bytes:
        """The bytes compressed with gzip."""
        return gzip.compress(self.body, 9, mtime=0)


def ready(body: bytes, kind: bytes) -> StaticFile:
    """Return a static file with these bytes."""
    return StaticFile(body, kind, hashlib.sha256(body).hexdigest()[:32])


def files(folder: Path) -> dict[str, StaticFile]:
    """Return a folder's static files, by relative path; `index.html` at its top is the page."""
    return {
        path.relative_to(folder).as_posix(): ready(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS and path.is_file()
    }


def digest(found: dict[str, StaticFile]) -> str:
    """Return a short hash of all files and their names."""
    whole = "".join(f"{name}\n{file.tag}\n" for name, file in found.items())
    return hashlib.sha256(f"{VERSION}\n{whole}".encode()).hexdigest()[:16]


def wanted(found: dict[str, StaticFile]) -> list[str]:
    """Return the scripts that the page imports statically."""
    names = {ENTRY: None}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        for path in IMPORTED.findall(found[name].body.decode()):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            if other not in names:
                names[other] = None
                waiting.append(other)
    return sorted(names)


def page(template: str, hashed: str, found: dict[str, StaticFile]) -> StaticFile:
    """Return the page, with the path of its files and preload links for its scripts."""
    base = f"/console/{hashed}/"
    links = "\n".join(f'<link rel="modulepreload" href="{base}{name}">' for name in wanted(found))
    text = template.replace("{base}", base).replace("{version}", VERSION)
    return ready(text.replace("{modules}", links).encode(), answers.HTML)


_FOUND: Final = files(FOLDER)
_TEMPLATE: Final = _FOUND.pop("index.html").body.decode()
HASH: Final = digest({**_FOUND, "index.html": ready(_TEMPLATE.encode(), answers.HTML)})
FILES: Final = _FOUND
PAGE: Final = page(_TEMPLATE, HASH, FILES)


class Page(HTTPMessageDelegate):
    """Delegate of GET /."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange

    def finish(self) -> None:
        """Answer the page, or 304 if the browser's copy is current."""
        _answer(self._surface, self._exchange, PAGE, b"no-cache")


class Static(HTTPMessageDelegate):
    """Delegate of GET /console/{hash}/{file}."""

    def __init__(self, surface: Http, exchange: Exchange) -> None:
        self._surface = surface
        self._exchange = exchange

    def finish(self) -> None:
        """Answer the file; 404 for a page of another version."""
        head = self._exchange.head
        assert head is not None
        hashed, _, name = head.path.removeprefix("/console/").partition("/")
        found = FILES.get(name) if hashed == HASH else None
        if found is None:
            why = "reload the page, it is of another version"
            if hashed == HASH and DOCS not in FILES:
                why = "the pages of this checkout are not written, run `make docs`"
            self._exchange.refuse(NoSuchRoute(f"there is no {head.path}: {why}"))
        else:
            _answer(self._surface, self._exchange, found, _FOR_EVER)


def _answer(surface: Http, exchange: Exchange, found: StaticFile, cache: bytes) -> None:
    head = exchange.head
    assert head is not None
    # Never compress over TLS: the length would leak information about the plaintext (BREACH).
    plain = surface.settings.tls is None
    compressed = plain and accepts_gzip(head.fields.get(b"accept-encoding", b""))
    tag = f'"{found.tag}-gzip"' if compressed else f'"{found.tag}"'
    fields = _FIELDS + b"ETag: %s\r\n" % tag.encode()
    named = head.fields.get(b"if-none-match", b"").decode("latin-1")
    if named.strip() == "*" or tag in re.findall(r'"[^"]*"', named):
        exchange.reply(304, fields=fields, cache=cache)
        return
    if compressed:
        fields += b"Content-Encoding: gzip\r\n"
    body = found.compressed if compressed else found.body
    exchange.reply(200, body, found.kind, fields, cache)


def template(path: str) -> str | None:
    """Return the route template for a request path; None: it is not a file."""
    hashed, _, name = path.removeprefix("/console/").partition("/")
    return PATH if hashed and name else None


def accepts_gzip(header: bytes) -> bool:
    """Return True if Accept-Encoding allows gzip with a weight above zero."""
    for part in header.decode("latin-1").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            value = weight.replace(" ", "").removeprefix("q=")
            return not re.fullmatch(r"0(\.0*)?", value)
    return False
