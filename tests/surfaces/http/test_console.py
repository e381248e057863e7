"""GET / and the files of the console."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.version import VERSION
from surfaces.http import console
from surfaces.http.console import accepts_gzip
from tests.surfaces.http.raw import Raw
from tests.tables import case

MAIN = f"/console/{console.HASH}/main.js"


def wanted(text: str) -> list[str]:
    """Addresses that a page names of files here."""
    return re.findall(r'(?:src|href)="(/console/[^"]+)"', text)


async def test_the_page_says_what_runs_and_where_its_files_are(raw: Raw) -> None:
    answer = await raw.ask("GET", "/")
    assert answer.status == 200
    assert answer.fields["content-type"] == "text/html; charset=utf-8"
    assert answer.fields["cache-control"] == "no-cache"
    text = answer.body.decode()
    assert f"storenode {VERSION}" in text
    assert "{" not in re.sub(r"<noscript>.*</noscript>", "", text, flags=re.DOTALL)
    found = wanted(text)
    assert MAIN in found
    for address in found:
        assert (await raw.ask("GET", address)).status == 200, address
    at_once = re.findall(r'<link rel="modulepreload" href="/console/[^/]+/([^"]+)"', text)
    assert "main.js" in at_once
    assert [name for name in at_once if not name.endswith(".js")] == []
    assert {"node.js", "values.js", "tabs/all.js", "vendor/preact.js"} <= set(at_once)
    later = ("docs/", "tabs/run", "tabs/node/", "vendor/codemirror.js", "vendor/uplot.js")
    assert [name for name in at_once if name.startswith(later)] == []


async def test_the_policy_allows_what_comes_from_here_and_nothing_else(raw: Raw) -> None:
    for path in ("/", MAIN):
        answer = await raw.ask("GET", path)
        policy = answer.fields["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "trusted-types 'none'" in policy
        assert "unsafe" not in policy
        assert answer.fields["x-content-type-options"] == "nosniff"
        assert answer.fields["referrer-policy"] == "no-referrer"
        assert answer.fields["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in answer.fields
    text = (await raw.ask("GET", "/")).body.decode()
    assert re.findall(r"<style|<script(?! type=\"module\" src=)| style=| on\w+=", text) == []


async def test_every_file_is_served_as_what_it_is_and_kept_for_ever(raw: Raw) -> None:
    examples = re.compile(r"docs/.*\.html")  # they show the passwords that tests look for
    for name in console.FILES:
        if examples.fullmatch(name):
            continue
        answer = await raw.ask("GET", f"/console/{console.HASH}/{name}")
        assert answer.status == 200, name
        assert answer.body == (console.FOLDER / name).read_bytes()
        assert answer.fields["cache-control"] == "public, max-age=31536000, immutable"
    assert (await raw.ask("GET", MAIN)).fields["content-type"] == "text/javascript; charset=utf-8"


async def test_what_is_no_file_of_this_version_is_not_there(raw: Raw) -> None:
    here = f"/console/{console.HASH}"
    for path in [
        "/console", "/console/", here, f"{here}/", "/console/0000000000000000/main.js", MAIN + "x",
        f"{here}/index.html", f"{here}/README.md", f"{here}/vendor/make.py",
        f"{here}/../../protocol/version.py", f"{here}//etc/passwd", f"{here}/%6dain.js",
    ]:  # fmt: skip
        with case(path):
            answer = await raw.ask("GET", path)
            assert (answer.status, answer.error["code"]) == (404, "NoSuchRoute")


async def test_pages_that_are_not_written_are_asked_for_in_vain(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/console/{console.HASH}/{console.DOCS}"
    assert (await raw.ask("HEAD", path)).status == 200
    monkeypatch.delitem(console.FILES, console.DOCS)
    answer = await raw.ask("GET", path)
    assert answer.status == 404 and "run `make docs`" in answer.error["message"]


async def test_a_copy_that_is_good_is_not_sent_again(raw: Raw) -> None:
    for path in ("/", MAIN):
        first = await raw.ask("GET", path)
        tag = first.fields["etag"]
        for named in (tag, f'"other", W/{tag}', "*"):
            again = await raw.ask("GET", path, if_none_match=named)
            assert (again.status, again.body) == (304, b"")
            assert again.fields["etag"] == tag
        other = await raw.ask("GET", path, if_none_match='"other"')
        assert other.status == 200


async def test_compressed_is_another_copy_of_the_same(raw: Raw) -> None:
    for path in ("/", MAIN):
        plain = await raw.ask("GET", path)
        packed = await raw.ask("GET", path, accept_encoding="br, gzip;q=0.8")
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


def test_any_change_changes_the_hash(tmp_path: Path) -> None:
    (tmp_path / "tabs").mkdir()
    (tmp_path / "main.js").write_text("import './tabs/run.js';")
    (tmp_path / "tabs/run.js").write_text("1")
    (tmp_path / "README.md").write_text("not served")
    found = console.files(tmp_path)
    assert list(found) == ["main.js", "tabs/run.js"]
    other = {**found, "main.js": replace(found["main.js"], tag="another")}
    moved = {"main.js": found["main.js"], "tabs/other.js": found["tabs/run.js"]}
    assert len({console.digest(one) for one in (found, other, moved)}) == 3


@pytest.mark.parametrize(
    "header, accepted",
    [(b"gzip", True), (b"br,GZIP;q=0.5", True), (b"*", True), (b"gzip;q=0", False),
     (b"gzip; q=0.000", False), (b"br", False), (b"", False)],
)  # fmt: skip
def test_accept_encoding(header: bytes, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
