"""Profile of a compiled node by whole call stacks: `python -m bench.inside --stacks`.

cProfile sees no compiled function, and Linux's perf alone shows time in the interpreter's library
but not its caller. Here each sample counts for the innermost compiled function on its stack, or for
the interpreter if a plain function lies further in. So a function is charged for itself and for
library calls on its behalf, without the other compiled functions that it calls.

Needs Debian's linux-perf, and permission to sample one's own processes. A greenlet's stack may end
where it was switched to: its samples count all the same, but show no caller.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

SAMPLES_A_SECOND: Final = 1500
STACK_BYTES: Final = 16 * 1024
"""Bytes of stack copied with each sample: deeper callers are lost."""
PLAIN: Final = "(interpreted)"
OTHER: Final = "(neither)"
_COMPILED: Final = "CPyDef_"
_INTERPRETER: Final = "_PyEval_EvalFrameDefault"
_CLONES: Final = re.compile(r"\.(localalias|constprop|part|isra|cold).*| \(inlined\)")


def record(thread: int, seconds: float, into: Path) -> None:
    """Sample a thread's stacks.

    :raises SystemExit: perf is missing, or lacks permission
    """
    command = [
        "perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_A_SECOND),
        "--call-graph", f"dwarf,{STACK_BYTES}", "-t", str(thread), "-o", str(into),
        "sleep", str(seconds),
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise SystemExit("perf is not installed: apt-get install linux-perf") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"perf: {error.stderr.decode().strip()}") from None


def stacks(recorded: Path) -> Iterator[list[str]]:
    """Return the functions of each sample, the innermost first."""
    command = ["perf", "script", "-i", str(recorded), "-F", "ip,sym"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as said:
        assert said.stdout is not None
        yield from parsed(said.stdout)
    if said.returncode:
        raise SystemExit(f"perf script ended with {said.returncode}")


def parsed(lines: Iterable[str]) -> Iterator[list[str]]:
    """Parse the output of perf: a line for each function, an empty one after each sample."""
    stack: list[str] = []
    for line in lines:
        parts = line.split(None, 1)
        if parts:
            stack.append(_CLONES.sub("", parts[1].strip()) if len(parts) > 1 else "?")
        elif stack:
            yield stack
            stack = []
    if stack:
        yield stack


def table(found: Iterable[list[str]], within: str = "", most: int = 60) -> list[str]:
    """Return a line for each of the costliest functions: its share, its name, and the library
    functions it spent the time in.

    :param within: counts only samples with a function of that name on their stack
    """
    own: Counter[str] = Counter()
    by: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for stack in found:
        if any(within in function for function in stack):
            name, at = _innermost(stack)
            own[name] += 1
            by[name][stack[max(at - 1, 0)]] += 1
    samples = own.total()
    lines = [f"{samples} samples"]
    for name, count in own.most_common(most):
        library = ", ".join(
            f"{function} {100 * times / samples:.1f}" for function, times in by[name].most_common(4)
        )
        lines.append(f"{100 * count / samples:6.2f} %  {name:60} {library}")
    return lines


def _innermost(stack: list[str]) -> tuple[str, int]:
    for at, function in enumerate(stack):
        if function.startswith(_COMPILED):
            return function.removeprefix(_COMPILED).replace("___", "."), at
        if function == _INTERPRETER:
            return PLAIN, at
    return OTHER, len(stack)
