"""Short-lived spaces and topics: declared, dropped and declared again; and a check that their data
expires in time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from protocol.binary import unpack_object
from storage.formats import keys
from tests.simulation.answers import ANYTHING
from tests.simulation.queues import OUT, hand_out

if TYPE_CHECKING:
    from tests.simulation.queues import Said
    from tests.simulation.scripts import Draft

KEY: Final = "gone"
"""Prefix of keys that expire. Log time decides when, and no answer shows it. So only their counts
and bytes are compared."""
EACH: Final = 3
"""Number of spaces, and of topics."""
REFUSALS: Final = frozenset({"Unknown", "AlreadyExists"})
"""Refusals that may come because the dictionaries do not track these spaces and topics."""


def _anything(draft: Draft) -> Any:
    draft.perhaps = True
    return ANYTHING


class Expirer:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def story(self) -> list[Said]:
        """Return a sequence of statements, each a transaction."""
        chance, number = self._chance, self._chance.randrange(EACH)
        space, topic = f"e{number}", f"f{number}"
        lasts = chance.choice(("2ms", "30ms", "1h"))
        keep = chance.choice((" KEEP 40ms", " KEEP 1h", ""))
        stories = [
            [f"DEFINE SPACE IF NOT EXISTS {space}", self._set(space, lasts)],
            [f"DEFINE SPACE {space}", self._set(space, lasts), self._set(space, "30ms")],
            [self._set(space, lasts)],
            [f"DROP SPACE {space}"],
            [f"DEFINE TOPIC {topic}{keep}", f"PUBLISH INTO {topic} VALUE 1"],
            [
                f"DEFINE TOPIC IF NOT EXISTS {topic}{keep}",
                f"DEFINE GROUP IF NOT EXISTS g ON {topic} DEADLINE {chance.choice(('20ms', '1h'))}",
                f"PUBLISH INTO {topic} VALUE 1",
                f"TAKE FROM {topic} AS g",
            ],
            [f"PUBLISH INTO {topic} VALUE 1", f"TAKE FROM {topic} AS g"],
            [f"DROP TOPIC {topic}"],
        ]
        return [(text, _anything) for text in chance.choice(stories)]

    def _set(self, space: str, lasts: str) -> str:
        return f"SET '{KEY} {self._chance.randrange(3)}' IN {space} VALUE 1 EXPIRE {lasts}"


def overdue(pairs: Mapping[bytes, bytes], now_us: int) -> Iterator[str]:
    """Yield the entries of a state that should have expired.

    :param now_us: log time
    """
    at = keys.TAG_AT
    kept = {
        key[3:11] + row["id"].to_bytes(4, "big"): row["keep"]
        for key, value in pairs.items()
        if key[at] == keys.TOPIC
        for row in (unpack_object(value),)
    }
    for key, value in sorted(pairs.items()):
        if key[at] == keys.ENTRY:
            expires = int.from_bytes(value[8:16], "big")  # behind the sequence
            if 0 < expires <= now_us:
                yield f"{key[keys.ENTRY_PREFIX_BYTES :].decode()!r} has expired and is there"
        elif key[at] == keys.MESSAGE:
            keep_us = kept.get(key[3:15])
            if keep_us is not None and int.from_bytes(value[:8], "big") + keep_us <= now_us:
                yield f"message {int.from_bytes(key[15:], 'big')} is held longer than KEEP says"
        elif key[at] == keys.HAND_OUT:
            row = hand_out(value)
            if row.state == OUT and row.due <= now_us:
                yield f"message {int.from_bytes(key[19:], 'big')} is out behind its deadline"
