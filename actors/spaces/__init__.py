"""Operations on the keys of cache spaces at run time, and the removal of expired keys.

| file | contents |
|---|---|
| `engine.py` | entry point of the surfaces: runs operations at once, or in a later slice |
| `work.py` | operations of one request: run in as few commits as possible, then answered |
| `operations.py` | implementation of each operation, and its equivalent statement |
| `access_cache.py` | cache of users' privileges on spaces |
| `sweeping.py` | actors that remove expired keys |
"""

from actors.spaces.access_cache import CallerOrToken, Names
from actors.spaces.engine import SpaceEngine
from actors.spaces.operations import listed, perform
from actors.spaces.sweeping import StartSweep, find_space
from actors.spaces.work import SEQ, Answers
from language.literals import parse_value

__all__ = [
    "SEQ", "Answers", "Names", "SpaceEngine", "StartSweep", "CallerOrToken", "find_space",
    "listed", "parse_value", "perform",
]  # fmt: skip
