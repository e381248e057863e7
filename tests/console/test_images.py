"""The pictures of the console: one for each tab, and each shown by a page."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT
from tests.console.images import FOLDER, OF_SEVERAL, VIEWS

TABS = ROOT / "console" / "tabs"
ALL = VIEWS + OF_SEVERAL


def test_each_tab_has_its_picture() -> None:
    names = set(re.findall(r"^    name: '(\w+)'", (TABS / "all.js").read_text(), re.MULTILINE))
    assert len(names) == len({path.stem for path in TABS.glob("*.js")} - {"all"})
    assert names == {view.address.removeprefix("#/").partition("/")[0] for view in ALL}


def test_each_picture_is_there_and_shown() -> None:
    there = {path.name for path in FOLDER.glob("*.png")}
    assert there == {f"{view.name}.png" for view in ALL} | {"sign-in.png"}
    page = (ROOT / "docs" / "console.md").read_text()
    assert there == set(re.findall(r"\(images/([\w-]+\.png)\)", page))
