"""Operations on the keys of cache spaces at run time, and the removal of expired keys.

| file | contents |
|---|---|
| `service.py` | entry point of the surfaces |
| `request.py` | operations of one request, in as few commits as possible: run by the executor |
| `operations.py` | implementation of each operation, and its equivalent statement |
| `access_cache.py` | cache of users' privileges on spaces |
| `sweeping.py` | actors that remove expired keys |
"""

from actors.spaces.access_cache import CallerOrToken, Names
from actors.spaces.operations import listed, perform
from actors.spaces.request import SEQ, Answers
from actors.spaces.service import SpaceService
from actors.spaces.sweeping import StartSweep, find_space, remove_expired
from language.literals import parse_value

__all__ = [
    "SEQ", "Answers", "Names", "SpaceService", "StartSweep", "CallerOrToken", "find_space",
    "listed", "parse_value", "perform", "remove_expired",
]  # fmt: skip
