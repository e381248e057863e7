"""Strategies for any value of the language."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from protocol import limits
from protocol.values import NONE, RecordId

integers = st.integers(limits.INT_MIN, limits.INT_MAX)
floats = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.builds(
    lambda sign, digits, exponent: Decimal((sign, digits, exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=34).map(tuple),
    st.integers(-6143, 6100),
)
numbers = st.one_of(integers, floats, decimals)
strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
durations = st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000))
datetimes = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(
    lambda value: value.replace(tzinfo=UTC)
)
identities = st.recursive(
    st.one_of(integers, strings.filter(bool), st.uuids()),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_-]{0,8}\Z")
records = st.builds(RecordId, names, identities)
plain = st.one_of(
    st.just(NONE), st.none(), st.booleans(), numbers, strings, st.binary(max_size=8),
    durations, datetimes, st.uuids(), records,
)  # fmt: skip
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)
    ),
    max_leaves=12,
)
