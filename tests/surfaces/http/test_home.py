"""GET /."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re

import pytest

from protocol.version import VERSION
from surfaces.http.home import accepts_gzip
from surfaces.http.routes import ROUTES
from tests.surfaces.http.raw import Raw


async def test_the_page_says_what_runs_and_where_to_read(raw: Raw) -> None:
    answer = await raw.ask("GET", "/")
    assert answer.status == 200
    assert answer.fields["content-type"] == "text/html; charset=utf-8"
    text = answer.body.decode()
    assert VERSION in text
    assert "docs/" in text
    for route in ROUTES:
        assert route.path in text


@pytest.mark.parametrize("host", ["db.localhost:8100", "[::1]:8000", "10.1.2.3"])
async def test_the_example_calls_the_address_that_was_opened(raw: Raw, host: str) -> None:
    await raw.send(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await raw.answer()
    assert f"curl -u root http://{host}/script" in answer.body.decode()
    assert answer.fields["etag"] != (await raw.ask("GET", "/")).fields["etag"]


async def test_the_example_calls_where_the_surface_listens_when_no_host_is_said(
    raw: Raw, port: int
) -> None:
    await raw.send(b"GET / HTTP/1.0\r\n\r\n")
    answer = await raw.answer()
    assert f"http://127.0.0.1:{port}/script" in answer.body.decode()


async def test_the_policy_allows_its_own_style_and_nothing_else(raw: Raw) -> None:
    answer = await raw.ask("GET", "/")
    policy = answer.fields["content-security-policy"]
    style = re.search(r"<style>(.*?)</style>", answer.body.decode(), re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script" not in answer.body.decode()


async def test_a_copy_that_is_good_is_not_sent_again(raw: Raw) -> None:
    first = await raw.ask("GET", "/")
    again = await raw.ask("GET", "/", if_none_match=first.fields["etag"])
    assert (again.status, again.body) == (304, b"")
    assert again.fields["etag"] == first.fields["etag"]
    other = await raw.ask("GET", "/", if_none_match='"other"')
    assert other.status == 200


async def test_compressed_is_another_copy_of_the_same(raw: Raw) -> None:
    plain = await raw.ask("GET", "/")
    packed = await raw.ask("GET", "/", accept_encoding="br, gzip;q=0.8")
    assert packed.fields["content-encoding"] == "gzip"
    assert packed.fields["vary"] == "Accept-Encoding"
    assert packed.fields["etag"] != plain.fields["etag"]
    assert gzip.decompress(packed.body) == plain.body


async def test_head_of_the_page(raw: Raw) -> None:
    got = await raw.ask("GET", "/")
    head = await raw.ask("HEAD", "/")
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == str(len(got.body))
    assert head.fields["etag"] == got.fields["etag"]


@pytest.mark.parametrize(
    "header, accepted",
    [(b"gzip", True), (b"br,GZIP;q=0.5", True), (b"*", True), (b"gzip;q=0", False),
     (b"gzip; q=0.000", False), (b"br", False), (b"", False)],
)  # fmt: skip
def test_accept_encoding(header: bytes, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
