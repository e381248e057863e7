"""`python -m bench.soak --minutes 60`: run, draw, judge. Exits with 1 if a series grows."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from bench.nodes import NodeProcess, define_place
from bench.soak import drawing, watch, work
from bench.soak.judge import TooShort, Verdict, judge
from bench.soak.watch import SLACK, Sample

OUT: Final = Path(__file__).parents[2] / "build" / "soak"
SAMPLES: Final = 720
"""Samples of a whole run, whatever its length: every fifth second of an hour."""


class Soak:
    """A run on one node."""

    def __init__(self, node: NodeProcess, minutes: float, seed: int) -> None:
        self._node = node
        self._seconds = minutes * 60
        self._seed = seed
        self.told = work.WorkCounts()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Run the workers and take samples. Re-raise an unexpected error of a worker."""
        workers = [
            asyncio.create_task(self._worker(name, number), name=f"{name} {number}")
            for name, (_, count) in work.WORK.items()
            for number in range(count)
        ]
        watching = asyncio.create_task(self._watch())
        await asyncio.wait([*workers, watching], return_when=asyncio.FIRST_COMPLETED)
        for task in (*workers, watching):
            task.cancel()
        ended = await asyncio.gather(*workers, watching, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _worker(self, name: str, number: int) -> None:
        random = Random(f"{self._seed} {name} {number}")
        worker = work.Worker(self.told, random, self._node.http, self._node.wire)
        await work.go_on(name, work.WORK[name][0], worker)

    async def _watch(self) -> None:
        began = time.monotonic()
        done = refused = 0
        for at in range(1, SAMPLES + 1):
            await asyncio.sleep(max(began + self._seconds * at / SAMPLES - time.monotonic(), 0))
            reads, self.told.reads_s = self.told.reads_s, []
            writes, self.told.writes_s = self.told.writes_s, []
            told = self.told.done.total(), self.told.refused.total()
            p50, p99 = watch.percentiles_ms(reads)
            write_p50, write_p99 = watch.percentiles_ms(writes)
            self.samples.append(
                Sample(
                    at_s=time.monotonic() - began,
                    **watch.process(self._node.process.pid),
                    log_mib=watch.folder_mib(self._node.directory / "log"),
                    state_mib=watch.folder_mib(self._node.directory / "state"),
                    done=told[0] - done,
                    refused=told[1] - refused,
                    read_p50_ms=p50,
                    read_p99_ms=p99,
                    write_p50_ms=write_p50,
                    write_p99_ms=write_p99,
                )
            )
            done, refused = told


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """Judge each series of `SLACK`.

    :raises TooShort: there are too few samples
    """
    return [
        judge(name, [getattr(sample, name) for sample in samples], slack)
        for name, slack in SLACK.items()
    ]


def main() -> None:
    """Run the soak that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--module", default="surfaces.command.main", help="module of the node's command"
    )
    parser.add_argument(
        "--small", action="store_const", const="bench.soak.small", dest="module",
        help="use small limits for what fills up, so that growth shows within minutes",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    sys.exit(soak(asked.minutes, asked.seed, asked.module, asked.out))


def soak(minutes: float, seed: int, module: str, out: Path) -> int:
    """Run, write the samples and the picture, print the judgement. Return the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="storenode-soak-", dir=out))
    run: Soak | None = None
    try:
        with NodeProcess(folder / "store", module=module) as node:
            with node.client() as client:
                define_place(client)
                client.query(work.DEFINITIONS)
            run = Soak(node, minutes, seed)
            asyncio.run(run.run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if run is not None and run.samples:
            watch.write(out / "samples.csv", run.samples)
            (out / "soak.svg").write_text(drawing.draw(run.samples))
    for title, counts in (("done", run.told.done), ("refused", run.told.refused)):
        print(f"{title}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    try:
        found = verdicts(run.samples)
    except TooShort as short:
        print(f"too few samples to judge: {short}")
        return 2
    for verdict in found:
        print(verdict)
    return 1 if any(verdict.grows for verdict in found) else 0


if __name__ == "__main__":
    main()
