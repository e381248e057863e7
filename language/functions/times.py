"""`time::…` functions. Datetimes are UTC; none depends on a locale or time zone."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from language.env import Env
from language.functions.table import function
from protocol.errors import BadRequest
from protocol.text import parse_datetime

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DIRECTIVE: Final = re.compile(r"%(.?)", re.S)
_FORMAT_CHARACTERS: Final = 256


@function("time::now", result="datetime", env=True, fixed=False)
def now(env: Env) -> datetime:
    """Transaction time, constant within the transaction."""
    return env.now


@function("time::format", "datetime", "string", result="string")
def format_(moment: datetime, pattern: str) -> str:
    """Datetime formatted by a pattern of %Y %m %d %H %M %S %f %j %a %A %b %B %%."""
    if len(pattern) > _FORMAT_CHARACTERS:
        raise BadRequest(f"a pattern of time::format has at most {_FORMAT_CHARACTERS} characters")
    return _DIRECTIVE.sub(lambda found: _part(moment, found[1]), pattern)


def _part(moment: datetime, directive: str) -> str:
    match directive:
        case "Y":
            return f"{moment.year:04}"
        case "m":
            return f"{moment.month:02}"
        case "d":
            return f"{moment.day:02}"
        case "H":
            return f"{moment.hour:02}"
        case "M":
            return f"{moment.minute:02}"
        case "S":
            return f"{moment.second:02}"
        case "f":
            return f"{moment.microsecond:06}"
        case "j":
            return f"{moment.timetuple().tm_yday:03}"
        case "a" | "A":
            name = _DAYS[moment.weekday()]
        case "b" | "B":
            name = _MONTHS[moment.month - 1]
        case "%":
            return "%"
        case _:
            raise BadRequest(f"time::format does not support %{directive}")
    return name if directive.isupper() else name[:3]


@function("time::parse", "string", result="datetime")
def parse(text: str) -> datetime:
    """Datetime parsed from an RFC 3339 text, or midnight of a date alone."""
    return parse_datetime(text)


@function("time::floor", "datetime", "duration", result="datetime")
def floor(moment: datetime, step: timedelta) -> datetime:
    """Datetime rounded down to a multiple of a duration since 1970."""
    if step <= timedelta():
        raise BadRequest("time::floor takes a step above zero")
    try:
        return moment - (moment - _EPOCH) % step
    except OverflowError:
        raise BadRequest(_OUTSIDE.format("time::floor")) from None


@function("time::year", "datetime", result="int")
def year(moment: datetime) -> int:
    """Year."""
    return moment.year


@function("time::month", "datetime", result="int")
def month(moment: datetime) -> int:
    """Month, 1 to 12."""
    return moment.month


@function("time::day", "datetime", result="int")
def day(moment: datetime) -> int:
    """Day of the month, 1 to 31."""
    return moment.day


@function("time::hour", "datetime", result="int")
def hour(moment: datetime) -> int:
    """Hour, 0 to 23."""
    return moment.hour


@function("time::minute", "datetime", result="int")
def minute(moment: datetime) -> int:
    """Minute, 0 to 59."""
    return moment.minute


@function("time::second", "datetime", result="int")
def second(moment: datetime) -> int:
    """Whole second, 0 to 59."""
    return moment.second


@function("time::weekday", "datetime", result="int")
def weekday(moment: datetime) -> int:
    """ISO 8601 day of the week, from 1 for Monday to 7 for Sunday."""
    return moment.isoweekday()


@function("time::week", "datetime", result="int")
def week(moment: datetime) -> int:
    """ISO 8601 week of the year, 1 to 53."""
    return moment.isocalendar().week


@function("time::unix", "datetime", result="int")
def unix(moment: datetime) -> int:
    """Whole seconds since 1970, rounded down."""
    return (moment - _EPOCH) // timedelta(seconds=1)


@function("time::from_unix", "number", result="datetime")
def from_unix(seconds: int | float | Decimal) -> datetime:
    """Datetime from seconds since 1970, to the microsecond."""
    try:
        return _EPOCH + timedelta(microseconds=round(Decimal(seconds) * 1_000_000))
    except (OverflowError, ArithmeticError):
        raise BadRequest(_OUTSIDE.format("time::from_unix")) from None


@function("time::trunc", "datetime", "string", result="datetime")
def trunc(moment: datetime, unit: str) -> datetime:
    """Start of the year, quarter, month, week, day, hour, minute or second it lies in."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "year":
            return day.replace(month=1, day=1)
        case "quarter":
            return day.replace(month=moment.month - (moment.month - 1) % 3, day=1)
        case "month":
            return day.replace(day=1)
        case "week":
            try:
                return day - timedelta(days=moment.weekday())
            except OverflowError:
                raise BadRequest(_OUTSIDE.format("time::trunc")) from None
        case "day":
            return day
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return moment.replace(second=0, microsecond=0)
        case "second":
            return moment.replace(microsecond=0)
    raise _no_unit("time::trunc", unit)


@function("time::add", "datetime", "int", "string", result="datetime")
def add(moment: datetime, count: int, unit: str) -> datetime:
    """Datetime plus a number of years, quarters, months, weeks, days, hours, minutes or seconds."""
    # If the month is too short for the day, its last day.
    try:
        if unit in _MONTHS_OF:
            return _months_later(moment, count * _MONTHS_OF[unit])
        if unit in _SPANS:
            return moment + count * _SPANS[unit]
    except OverflowError:
        raise BadRequest(_OUTSIDE.format("time::add")) from None
    raise _no_unit("time::add", unit)


@function("time::diff", "datetime", "datetime", "string", result="int")
def diff(start: datetime, end: datetime, unit: str) -> int:
    """Whole units, as of `time::add`, from start to end; negative if start is later."""
    if unit in _SPANS:
        spans = abs(end - start) // _SPANS[unit]
        return spans if end >= start else -spans
    if unit not in _MONTHS_OF:
        raise _no_unit("time::diff", unit)
    if end < start:
        return -diff(end, start, unit)
    months = (end.year - start.year) * 12 + end.month - start.month
    if months and _months_later(start, months) > end:
        months -= 1
    return months // _MONTHS_OF[unit]


def _months_later(moment: datetime, months: int) -> datetime:
    """Add months to a datetime. :raises OverflowError: outside the years 1 to 9999"""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    return moment.replace(
        year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1])
    )


def _no_unit(function: str, unit: str) -> BadRequest:
    units = ", ".join([*_MONTHS_OF, *_SPANS])
    return BadRequest(
        f"{function} does not support the unit {unit[:32]!r}: expected one of {units}"
    )


_MONTHS_OF: Final = {"year": 12, "quarter": 3, "month": 1}
_SPANS: Final = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
}
_OUTSIDE: Final = "{} would leave the years 1 to 9999"
