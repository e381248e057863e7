from __future__ import annotations

import pytest

from protocol.errors import CATALOGUE, Refusal, Unknown


def test_every_class_has_a_status_and_a_meaning() -> None:
    for code, refusal in CATALOGUE.items():
        assert refusal.__name__ == code
        assert 400 <= refusal.status < 600
        assert refusal.__doc__ and refusal.__doc__.strip().endswith(".")
        assert refusal.retry == (refusal.retry or refusal.retry_after_s is not None)


def test_a_code_cannot_stand_twice() -> None:
    with pytest.raises(AssertionError, match="twice"):
        type("Unknown", (Refusal,), {}, status=404)


def test_where_in_a_script_stands_beside_the_code() -> None:
    answer = Unknown("no table t", table="t", statement=2, line=3, column=9).answer("r-1")
    assert answer == {
        "code": "Unknown", "message": "no table t", "status": 404, "retry": False,
        "detail": {"table": "t"}, "request": "r-1", "statement": 2, "line": 3, "column": 9,
    }  # fmt: skip
