"""What holds of every view: axe finds nothing in light and in dark, nothing sticks out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

AXE = Path(__file__).parent / "vendor" / "axe.js"
STICKS_OUT = """() => document.documentElement.scrollWidth <= innerWidth ? []
  : ['the page', ...[...document.querySelectorAll('body *')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
    .filter((one) => !one.closest('.table, nav, pre'))
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 40)}`)]"""


def findings(page: Page) -> list[str]:
    """What axe finds on what is shown, in light and in dark. It is evaluated: the policy lets no
    script of others in."""
    found = []
    page.locator("h1").first.wait_for()  # before that it is read what there is to show
    page.emulate_media(reduced_motion="reduce")  # what is appearing is nobody's to read yet
    page.evaluate(f"() => {{ {AXE.read_text()} }}")
    for theme in ("light", "dark"):
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        told: dict[str, Any] = page.evaluate(
            "() => axe.run(document, { resultTypes: ['violations'] })"
        )
        for one in told["violations"]:
            at = [" ".join(map(str, node["target"])) for node in one["nodes"]]
            found.append(f"{theme}: {one['id']}: {one['help']} ({', '.join(at[:5])})")
    page.evaluate("() => { document.documentElement.dataset.theme = 'system'; }")
    page.emulate_media(reduced_motion="null")
    return found


def overflow(page: Page) -> list[str]:
    """What sticks out of a page that is 320 pixels wide."""
    page.set_viewport_size({"width": 320, "height": 700})
    found: list[str] = page.evaluate(STICKS_OUT)
    page.set_viewport_size({"width": 1280, "height": 800})
    return found
