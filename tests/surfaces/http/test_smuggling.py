"""S1: malformed and ambiguous requests, each followed by a request that a second reading of the
same bytes would find. Each must be answered once, with a refusal, and the connection closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import httptools
import pytest

from surfaces.http import reading as reading_module
from surfaces.http.surface import HttpSurface
from tests.surfaces.http import raw
from tests.surfaces.http.raw import Raw, parse_head

HIDDEN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""Answered, it would be the second answer."""

G = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
P = (
    b"POST /script HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    b"Authorization: Bearer x\r\n"
)
C = P + b"Transfer-Encoding: chunked\r\n\r\n"

CASES: dict[str, bytes] = {
    # two ways to say where the body ends
    "two equal lengths": P + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nRETUR",
    "two lengths": P + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\nRETUR",
    "a list of lengths": P + b"Content-Length: 5, 5\r\n\r\nRETUR",
    "length then chunked": P + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked then length": P + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "length 0 and chunked": P + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length in a trailer": C + b"1\r\na\r\n0\r\nContent-Length: 40\r\n\r\n",
    "two codings": C[:-2] + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked twice": P + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked not last": P + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "gzip and chunked": P + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": P + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity coding": P + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na",
    "empty coding": P + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "coding in quotes": P + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "coding with a parameter": P + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "coding after vertical tab": P + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "coding with blank name": P + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "coding in 1.0": P.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    # lengths that are no numbers
    "length with plus": P + b"Content-Length: +5\r\n\r\nRETUR",
    "length with minus": P + b"Content-Length: -5\r\n\r\nRETUR",
    "length in hex": P + b"Content-Length: 0x5\r\n\r\nRETUR",
    "length with blank": P + b"Content-Length: 1 2\r\n\r\nRETUR",
    "length with underscore": P + b"Content-Length: 1_0\r\n\r\nRETUR",
    "length with point": P + b"Content-Length: 5.0\r\n\r\nRETUR",
    "length empty": P + b"Content-Length:\r\n\r\n",
    "length too long": P + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "length of 19 digits": P + b"Content-Length: 9223372036854775808\r\n\r\n",
    "length with blank name": P + b"Content-Length : 5\r\n\r\nRETUR",
    "length in other digits": P + "Content-Length: ٥\r\n\r\nRETUR".encode(),
    # line ends
    "bare LF after request line": b"GET /health HTTP/1.1\nHost: localhost\r\n\r\n",
    "bare LF after field": b"GET /health HTTP/1.1\r\nHost: localhost\nX: 1\r\n\r\n",
    "bare LF ends the head": G + b"X: 1\r\n\n",
    "bare LF everywhere": b"GET /health HTTP/1.1\nHost: localhost\n\n",
    "bare CR in a value": G + b"X: a\rb\r\n\r\n",
    "bare CR in the request line": b"GET /health\rHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CR CR LF": G + b"X: a\r\r\n\r\n",
    "bare CR ends the head": G + b"\rX: 1\r\n\r\n",
    "folded field": G + b"X: 1\r\n folded\r\n\r\n",
    "folded by tab": G + b"X: 1\r\n\tfolded\r\n\r\n",
    "folded length": P + b"Content-Length: 5\r\n 0\r\n\r\nRETUR",
    "folded first field": b"GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n",
    # names and values
    "NUL in a value": G + b"X: a\x00b\r\n\r\n",
    "NUL in a name": G + b"X\x00: a\r\n\r\n",
    "NUL in the target": b"GET /hea\x00lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "control in a value": G + b"X: a\x01b\r\n\r\n",
    "DEL in a value": G + b"X: a\x7fb\r\n\r\n",
    "blank before colon": G + b"X : a\r\n\r\n",
    "tab before colon": G + b"X\t: a\r\n\r\n",
    "no colon": G + b"X\r\n\r\n",
    "no name": G + b": a\r\n\r\n",
    "name of high bytes": G + b"X\xc3\xa9: a\r\n\r\n",
    "name with brackets": G + b"X(a): a\r\n\r\n",
    "name with a blank": G + b"X Y: a\r\n\r\n",
    # the request line
    "three words": b"GET /health HTTP/1.1 x\r\nHost: localhost\r\n\r\n",
    "blank in the target": b"GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tab instead of blank": b"GET\t/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "blank first": b" GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "lower-case method": b"get /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unknown method": b"SMUGGLE /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "method of WebDAV": b"PROPFIND /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/0.9 by name": b"GET /health HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "HTTP/1.2": b"GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/3": b"GET /health HTTP/3\r\nHost: localhost\r\n\r\n",
    "HTTP/11.1": b"GET /health HTTP/11.1\r\nHost: localhost\r\n\r\n",
    "HTTP/1.1.1": b"GET /health HTTP/1.1.1\r\nHost: localhost\r\n\r\n",
    "lower-case http": b"GET /health http/1.1\r\nHost: localhost\r\n\r\n",
    "another protocol": b"GET /health QUIC/1.1\r\nHost: localhost\r\n\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an SSH hello": b"SSH-2.0-OpenSSH_9.2\r\n",
    "target without slash": b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target * with GET": b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target with fragment": b"GET /health#x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target of high bytes": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target of another scheme": b"GET ftp://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target naming another host": b"GET http://other/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target with user": b"GET http://u@localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    # the host
    "no Host": b"GET /health HTTP/1.1\r\n\r\n",
    "two Hosts": G + b"Host: localhost\r\n\r\n",
    "two other Hosts": G + b"Host: other\r\n\r\n",
    "empty Host": b"GET /health HTTP/1.1\r\nHost:\r\n\r\n",
    "Host with blank": b"GET /health HTTP/1.1\r\nHost: local host\r\n\r\n",
    "Host with path": b"GET /health HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
    "Host with user": b"GET /health HTTP/1.1\r\nHost: a@localhost\r\n\r\n",
    "Host with comma": b"GET /health HTTP/1.1\r\nHost: localhost, other\r\n\r\n",
    "Host with a word as port": b"GET /health HTTP/1.1\r\nHost: localhost:http\r\n\r\n",
    "Host with half a bracket": b"GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n",
    # fields that stand once
    "two Authorizations": G + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
    "two Content-Types": P + b"Content-Type: text/plain\r\nContent-Length: 1\r\n\r\na",
    "two Origins": G + b"Origin: http://a.example\r\nOrigin: http://b.example\r\n\r\n",
    "two namespaces": G + b"Store-Namespace: a\r\nStore-Namespace: b\r\n\r\n",
    # chunks
    "chunk size in words": C + b"one\r\na\r\n0\r\n\r\n",
    "chunk size with 0x": C + b"0x1\r\na\r\n0\r\n\r\n",
    "chunk size with plus": C + b"+1\r\na\r\n0\r\n\r\n",
    "chunk size with minus": C + b"-1\r\na\r\n0\r\n\r\n",
    "chunk size after blank": C + b" 1\r\na\r\n0\r\n\r\n",
    "chunk size before blank": C + b"1 \r\na\r\n0\r\n\r\n",
    "chunk size empty": C + b"\r\na\r\n0\r\n\r\n",
    "chunk size too long": C + b"ffffffffffffffffff\r\na\r\n0\r\n\r\n",
    "chunk longer than said": C + b"1\r\nab\r\n0\r\n\r\n",
    "chunk size with bare LF": C + b"1\na\r\n0\r\n\r\n",
    "chunk data with bare LF": C + b"1\r\na\n0\r\n\r\n",
    "chunk data without end": C + b"1\r\na0\r\n\r\n",
    "chunk extension with bare LF": C + b"1;x\ny\r\na\r\n0\r\n\r\n",
    "chunk extension with NUL": C + b"1;x=\x00\r\na\r\n0\r\n\r\n",
    "chunk extension with open quote": C + b'1;x="\r\na\r\n0\r\n\r\n',
    "trailer without colon": C + b"1\r\na\r\n0\r\nX\r\n\r\n",
    "trailer with bare LF": C + b"1\r\na\r\n0\r\nX: 1\n\r\n",
    "last chunk with bare LF": C + b"1\r\na\r\n0\r\n\n",
    # too much
    "101 fields": G + b"".join(b"X-%d: 1\r\n" % number for number in range(100)) + b"\r\n",
    "101 trailers": C + b"0\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(101)) + b"\r\n",
    "a head of 64 KiB": G + b"X: " + b"a" * 65_536 + b"\r\n\r\n",
    "a target of 64 KiB": b"GET /" + b"a" * 65_536 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a body declared too large": P + b"Content-Length: 16777217\r\n\r\n",
    "an unknown expectation": P + b"Expect: tea\r\nContent-Length: 1\r\n\r\na",
}  # fmt: skip

REFUSALS = {*range(400, 500), 501, 505}


def verdict(received: bytes) -> str | None:
    """What is wrong with all that a connection sent in answer to a case; None when nothing is."""
    head, found, rest = received.partition(b"\r\n\r\n")
    if not found:
        return f"no answer: {received[:80]!r}"
    status, fields = parse_head(head + found)
    if status not in REFUSALS:
        return f"answered {status}"
    if fields.get("connection") != "close":
        return "did not say that it closes"
    if not rest.startswith(b'{"error":{'):
        return f"another shape: {rest[:80]!r}"
    if len(rest) != int(fields["content-length"]):
        return f"a second answer: {rest[int(fields['content-length']) :][:80]!r}"
    return None


async def converse(port: int, data: bytes, *, trickled: bool = False) -> str | None:
    """Send a case and what hides behind it; the verdict on the answer."""
    async with await Raw.connect(port) as peer:
        answered = asyncio.create_task(peer.rest())
        with contextlib.suppress(OSError):  # the node may refuse before all is sent
            if trickled:
                await peer.trickle(data + HIDDEN, enough=answered.done)
            else:
                await peer.send(data + HIDDEN)
        try:
            return verdict(await answered)
        except TimeoutError:
            return "not closed"


async def wrong(port: int, names: list[str], *, trickled: bool = False) -> dict[str, str]:
    """The cases among these that are not refused as they must be, with what is wrong."""
    told = await asyncio.gather(*(converse(port, CASES[n], trickled=trickled) for n in names))
    return {name: why for name, why in zip(names, told, strict=True) if why is not None}


async def test_every_case_is_refused_once_and_closed(port: int) -> None:
    assert await wrong(port, list(CASES)) == {}


async def test_every_case_in_single_bytes_is_refused_the_same(port: int) -> None:
    small = [name for name, data in CASES.items() if len(data) < 4096]
    assert await wrong(port, small, trickled=True) == {}


async def test_refused_after_a_good_request_leaves_that_one_answered(
    port: int, figure: Callable[[str, object], None]
) -> None:
    for name, data in CASES.items():
        async with await Raw.connect(port) as peer:
            with contextlib.suppress(OSError):
                await peer.send(HIDDEN + data + HIDDEN)
            assert (await peer.answer()).status == 200, name
            assert verdict(await peer.rest()) is None, name
    figure("S1 malformed and smuggling cases", f"{len(CASES)}, each whole, in bytes, pipelined")
    assert len(CASES) >= 60


async def test_a_lenient_parser_is_caught(
    surface: HttpSurface, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lenient(protocol: object) -> Any:
        parser = httptools.HttpRequestParser(protocol)
        parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_keep_alive=True,
            lenient_transfer_encoding=True,
            lenient_optional_lf_after_cr=True,
            lenient_optional_cr_before_lf=True,
            lenient_optional_crlf_after_chunk=True,
            lenient_spaces_after_chunk_size=True,
        )
        return parser

    monkeypatch.setattr(reading_module, "HttpRequestParser", lenient)
    monkeypatch.setattr(raw, "PATIENCE_SECONDS", 1)  # what is let through is not closed
    names = ["bare LF after field", "folded field", "chunk data with bare LF"]
    assert list(await wrong(port, names)) == names
