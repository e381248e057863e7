"""Samples as an SVG: one small chart for each series, stacked on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from bench.soak.watch import SERIES, Sample

WIDTH: Final = 900
HEIGHT: Final = 90
LEFT: Final = 150
RIGHT: Final = 20
GAP: Final = 24


def draw(samples: Sequence[Sample]) -> str:
    """Return the picture as text."""
    charts = [_chart(name, samples, at) for at, name in enumerate(SERIES)]
    height = len(SERIES) * (HEIGHT + GAP) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(charts)}</svg>\n'
    )


def _chart(name: str, samples: Sequence[Sample], at: int) -> str:
    top = GAP + at * (HEIGHT + GAP)
    values = [float(getattr(sample, name)) for sample in samples]
    most, end = max(values) or 1.0, samples[-1].at_s or 1.0
    points = " ".join(
        f"{LEFT + sample.at_s / end * (WIDTH - LEFT - RIGHT):.1f},"
        f"{top + HEIGHT * (1 - value / most):.1f}"
        for sample, value in zip(samples, values, strict=True)
    )
    right, below = WIDTH - RIGHT - 60, top + HEIGHT + 12
    return (
        f'<text x="8" y="{top + 12}">{escape(name)}</text>'
        f'<text x="8" y="{top + 28}" fill="gray">0 to {most:,.1f}</text>'
        f'<text x="8" y="{top + 44}" fill="gray">at the end {values[-1]:,.1f}</text>'
        f'<path d="M{LEFT} {top + HEIGHT}H{WIDTH - RIGHT}" stroke="lightgray"/>'
        f'<polyline points="{points}" fill="none" stroke="steelblue"/>'
        f'<text x="{right}" y="{below}" fill="gray">{end / 60:.0f} min</text>'
    )
