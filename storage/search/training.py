"""Training of the lists of a VECTOR index: k-means over a sample, in a process of its own.

`python -m storage.search.training` reads a request, and answers with the centroids: it takes
seconds of processor, which the node has not to spare. After each round it writes a byte, so it ends
soon after the node that waits for it. Equal requests have equal answers. Imports numpy.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
ROUNDS: Final = 8
_PRODUCTS: Final = 4_000_000
"""Distances that are computed at once."""
_HEAD: Final = struct.Struct("<QIII?")
ALIVE: Final = b"."
"""Byte after each round."""
ANSWER: Final = b"="
"""Byte before the centroids."""


class TrainingRequest(NamedTuple):
    """Request for a training.

    :ivar unit: True if vectors and centroids have the length 1
    :ivar sample: vectors, in parts
    """

    seed: int
    lists: int
    unit: bool
    sample: list[Floats]

    def pack(self) -> list[bytes]:
        """Return its bytes, in parts."""
        count, size = sum(map(len, self.sample)), self.sample[0].shape[1]
        head = _HEAD.pack(self.seed, self.lists, count, size, self.unit)
        return [head, *(part.astype("<f4").tobytes() for part in self.sample)]


def read_request(raw: bytes) -> TrainingRequest:
    """Return a request from its bytes."""
    seed, lists, count, size, unit = _HEAD.unpack_from(raw)
    sample = np.frombuffer(raw, "<f4", count * size, _HEAD.size).reshape(count, size)
    return TrainingRequest(seed, lists, unit, [sample])


def trained(request: TrainingRequest) -> Iterator[Floats]:
    """Yield the centroids after each round, the last ones last."""
    (sample,) = request.sample
    sample = sample[np.isfinite(sample).all(axis=1)]
    if not len(sample):
        # All are out of the range of float32, so they are in one list.
        sample = np.zeros((1, sample.shape[1]), np.float32)
    generator = np.random.Generator(np.random.PCG64(request.seed))
    lists = min(request.lists, len(sample))
    found = sample[np.sort(generator.choice(len(sample), lists, replace=False))].copy()
    for _ in range(ROUNDS):
        found = _moved(sample, found, generator, unit=request.unit)
        yield found


def _moved(sample: Floats, centroids: Floats, generator: Any, *, unit: bool) -> Floats:
    """Return the means of the vectors that are nearest to each centroid."""
    lists = nearest_lists(sample, centroids)
    order = np.argsort(lists, kind="stable")
    known, starts = np.unique(lists[order], return_index=True)
    sums = np.add.reduceat(sample[order].astype(np.float64), starts, axis=0)
    counts = np.diff([*starts, len(order)])
    moved = np.empty(centroids.shape, np.float64)
    moved[known] = sums / counts[:, None]
    # A list that lost all of its vectors begins again at one of the sample.
    empty = np.setdiff1d(np.arange(len(centroids)), known)
    moved[empty] = sample[generator.integers(0, len(sample), len(empty))]
    if unit:
        lengths = np.sqrt(np.einsum("ij,ij->i", moved, moved))
        moved /= np.where(lengths > 0, lengths, 1)[:, None]
    return moved.astype(np.float32)


def nearest_lists(rows: Floats, centroids: Floats) -> npt.NDArray[np.int64]:
    """Return the list of each vector: that with the nearest centroid."""
    found = np.empty(len(rows), np.int64)
    halves = np.einsum("ij,ij->i", centroids, centroids) / 2
    step = max(_PRODUCTS // len(centroids), 1)
    for at in range(0, len(rows), step):
        found[at : at + step] = np.argmax(rows[at : at + step] @ centroids.T - halves, axis=1)
    return found


def answer(raw: bytes, alive: Callable[[], None]) -> bytes:
    """Return the centroids for a request. :param alive: called after each round"""
    request = read_request(raw)
    *_, found = _heard(trained(request), alive)
    return found.astype("<f4").tobytes()


def _heard(rounds: Iterator[Floats], alive: Callable[[], None]) -> Iterator[Floats]:
    for one in rounds:
        alive()
        yield one


def answer_of(raw: bytes) -> bytes:
    """Return the whole answer to a request."""
    return ANSWER + answer(raw, lambda: None)


def read_answer(raw: bytes, dimension: int) -> Floats:
    """Return the centroids of an answer."""
    found = np.frombuffer(raw.partition(ANSWER)[2], "<f4")
    return found.reshape(-1, dimension)


def run() -> None:
    """Answer one request."""
    out = sys.stdout.buffer

    def alive() -> None:
        # It raises when nobody reads it any more: the node is gone.
        out.write(ALIVE)
        out.flush()

    found = answer(sys.stdin.buffer.read(), alive)
    out.write(ANSWER + found)


if __name__ == "__main__":
    run()
