"""State hash: one digest of all logged keys and values, to compare replicas.

Two stores that replayed the same log have the same hash, on any engine, machine or day. That holds
for a live node, the same node after replay, one restored from a backup, and a follower. The hash
covers the stream of all pairs in key order (`container.pack_pairs`), as in a snapshot.

Index entries are left out: they are derived from the rest, and each version may derive them
differently.
"""

from __future__ import annotations

from collections.abc import Generator

from storage.engine.engine import EngineReader
from storage.formats import keys
from storage.formats.container import pack_pairs, stream_digest


def hash_in_slices(state: EngineReader) -> Generator[None, None, str]:
    """Hash a state, yielding after every few hundred pairs. Return the digest in hexadecimal.

    Pass a view if others write in between.
    """
    digest = stream_digest()
    # In key order, without index entries and the engine's own notes.
    for logged in keys.LOGGED:
        for pairs in state.scan(*logged):
            digest.update(pack_pairs(pairs))
            yield
    return digest.hexdigest()


def state_hash(state: EngineReader) -> str:
    """Hash a state without yielding."""
    slices = hash_in_slices(state)
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return str(done.value)
