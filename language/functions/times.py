"""`time::…`. Datetimes are UTC; nothing here depends on a locale or a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
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
    """The time of the transaction: the same wherever it is asked for."""
    return env.now


@function("time::format", "datetime", "string", result="string")
def format_(moment: datetime, pattern: str) -> str:
    """A datetime by a pattern of %Y %m %d %H %M %S %f %j %a %A %b %B %%."""
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
            raise BadRequest(f"time::format knows no %{directive}")
    return name if directive.isupper() else name[:3]


@function("time::parse", "string", result="datetime")
def parse(text: str) -> datetime:
    """The datetime that a text of RFC 3339 names, or midnight of a date alone."""
    return parse_datetime(text)


@function("time::floor", "datetime", "duration", result="datetime")
def floor(moment: datetime, step: timedelta) -> datetime:
    """The last whole step since 1970 that is not after a datetime."""
    if step <= timedelta():
        raise BadRequest("time::floor takes a step above zero")
    try:
        return moment - (moment - _EPOCH) % step
    except OverflowError:
        raise BadRequest("time::floor would leave the years 1 to 9999") from None


@function("time::year", "datetime", result="int")
def year(moment: datetime) -> int:
    """The year."""
    return moment.year


@function("time::month", "datetime", result="int")
def month(moment: datetime) -> int:
    """The month, 1 to 12."""
    return moment.month


@function("time::day", "datetime", result="int")
def day(moment: datetime) -> int:
    """The day of the month, 1 to 31."""
    return moment.day
