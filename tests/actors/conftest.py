"""Fixtures of the tests of all actors."""

from __future__ import annotations

from tests.memory import shared_path, tmp_path

__all__ = ["shared_path", "tmp_path"]
