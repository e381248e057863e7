"""Description of the machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import shlex
import statistics
import subprocess
import sysconfig
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.processes import MEASURED
from compiling.modules import compiled

SYNCS = 200
ENOUGH_CORES = 4
"""Cores that a run needs: one for the loop, one for log and engine, two for the drivers."""


def facts(directory: Path) -> dict[str, Any]:
    """Describe the machine, its system, and the latency of a sync of its disk.

    :param directory: where the stores of this run are kept
    """
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": _processor(),
        "cores": cores,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": interpreter(),
        "build": build(),
        "filesystem": _filesystem(directory),
        "fdatasync_us": round(_sync_us(directory)),
        "load_before": round(os.getloadavg()[0], 2),
        "pinned": "nothing",
        "drivers": _drivers(cores),
        "commit": _commit(),
    }


def interpreter() -> str:
    """Describe the Python interpreter and its build options, which alone change figures by
    tenths."""
    options = shlex.split(sysconfig.get_config_var("CONFIG_ARGS") or "")
    means = {"--enable-optimizations": "profile-guided", "--with-lto": "link-time optimised"}
    told = [word for option, word in means.items() if any(o.startswith(option) for o in options)]
    name = f"{platform.python_implementation()} {platform.python_version()}"
    # Debian's says nothing, and is built with both.
    return f"{name} ({' and '.join(told) or 'its build options tell of no optimisation'})"


def build(tree: Path = MEASURED) -> str:
    """Describe the build of the node's tree: plain, or compiled (`make compiled`)."""
    modules = compiled(tree)
    return f"compiled, {len(modules)} modules by mypyc {version('mypy')}" if modules else "plain"


def _drivers(cores: int) -> str:
    """Describe where the drivers run.

    On few cores they take processor time from the node. Ratios to a peer that is driven in the same
    way still hold; rates do not carry over to another machine.
    """
    if cores < ENOUGH_CORES:
        return f"share {cores} cores with the node: rates are lower than the node's own"
    return "have cores beside the node's"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _filesystem(directory: Path) -> str:
    """Return the type of a directory's file system: a sync to memory would be no sync."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, found = line.split()[:3]
        if len(where) > len(best) and directory.resolve().is_relative_to(where):
            best, kind = where, found
    return kind


def _sync_us(directory: Path) -> float:
    """Return the median time of a small append and its fdatasync, microseconds."""
    took = []
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 200)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"
