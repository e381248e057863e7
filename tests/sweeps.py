"""Sweeps that are cut into parts: a few of them for every run, the others for `make test-hard`.

The longest would take hours. The hard tier runs a fixed share of their seeds, and all of them with
`make test-hard WHOLE=1`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest
from _pytest.mark.structures import ParameterSet

WHOLE: Final = bool(os.environ.get("WHOLE_SWEEPS"))
"""True if all seeds of the longest sweeps run."""


def share(seeds: range, every: int) -> range:
    """Return each `every`-th seed of a sweep, or all of them if `WHOLE`."""
    return seeds if WHOLE else seeds[::every]


def parts(count: int, always: int) -> list[int | ParameterSet]:
    """Numbers of the parts of a sweep, for `parametrize`. All of them search the same way, each
    with other seeds: the first `always` run with every change, the rest in the hard tier."""
    return [n if n < always else pytest.param(n, marks=pytest.mark.hard) for n in range(count)]


def some_of(cases: Iterable[Any], every: int) -> list[ParameterSet]:
    """Cases, or tuples of what makes one, for `parametrize`: each `every`-th runs with every
    change, the rest in the hard tier."""
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            marks=pytest.mark.hard if number % every else (),
        )
        for number, one in enumerate(cases)
    ]
