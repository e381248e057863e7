"""Operations on the keys of cache spaces while the node runs, and the removal of expired ones.

| file | what it holds |
|---|---|
| `engine.py` | the one way by which surfaces have operations done, at once or in their turn |
| `work.py` | operations asked for together: done in as few commits as may be, then answered |
| `operations.py` | which rule does an operation, and which statement it stands for |
| `entrances.py` | who asks and for which space, looked up once for all |
| `sweeping.py` | the actors that remove what has expired |
"""

from actors.spaces.engine import Spaces
from actors.spaces.entrances import Names, Who
from actors.spaces.operations import listed, perform
from actors.spaces.sweeping import Sweep, find_space
from actors.spaces.work import SEQ, Answers
from language.literals import parse_value

__all__ = [
    "SEQ", "Answers", "Names", "Spaces", "Sweep", "Who", "find_space", "listed", "parse_value",
    "perform",
]  # fmt: skip
