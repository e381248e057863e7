"""Sweeps that are cut into parts: a few of them for every run, the others for `make test-hard`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


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
