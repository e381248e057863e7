"""The machines of a page, played on this one: each has a folder for its files and an address on the
loopback, and what a page does there is done for real.

A block of `console` is what a person sees who does it. A line begins with the machine's name and
`$`, goes on in lines that begin with `> `, and what it prints stands beneath:

    you$ ask 10.0.0.11 'INFO FOR NODE' | grep life
    life          leading

A file that a page shows in a block of `ini` or `yaml` begins with `# name`, and is there for `you`.
What differs from run to run (ids, times, durations, digests, tokens, numbers of two digits and
more) is held against nothing but its kind, and `…` stands for anything.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.architecture.sources import ROOT
from tests.processes import environment

BLOCK: Final = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
FILE: Final = re.compile(r"^```(?:ini|yaml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT: Final = re.compile(r"(you|n\d)\$ (.*)")
NETWORK: Final = "10.0.0."
"""How the addresses of a page begin."""
PATHS: Final = re.compile(r"(?<![\w.}:/])/(?=(?:etc|var|opt|backups)/)")
"""Where a path of a machine begins, in a command or a file."""
LOOPBACK: Final = "subjectAltName=IP:127.0.0.1,"
"""On the loopback all connections come from there, and etcd holds its peers' certificates against
where they come from."""
INSTALLED: Final = "/opt/storenode/.venv/bin/"
"""Where a machine has its commands; here they are those of this tree, and nothing is installed."""
COMMAND_SECONDS: Final = 600
IMPATIENT: Final = re.compile(r"storenode: no connection yet; retrying for \d+ s, Ctrl-C stops")
"""What is said on a machine that is slower than others."""
MASKS: Final = (
    (re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"\b[0-9a-f]{13,}\b"), "<digest>"),  # etcd writes blanks for zeros that lead
    (re.compile(r"\b(?:\d+(?:\.\d+)?(?:y|w|d|h|m|s|ms|us|µs))+\b"), "<duration>"),
    (re.compile(r"\d+\.\d+"), "<number>"),
    (re.compile(r"(?<![\d.])\d{2,}(?![\d.])"), "<number>"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass
class Step:
    """One command, and what the page says that it prints."""

    machine: str
    command: str
    line: int
    shown: list[str] = field(default_factory=list)


def steps(block: str, line: int = 1) -> list[Step]:
    found: list[Step] = []
    for number, text in enumerate(block.splitlines(), line):
        begins = PROMPT.fullmatch(text)
        if begins is not None:
            found.append(Step(begins[1], begins[2], number))
        elif text.startswith("> ") and not found[-1].shown:
            found[-1].command += f"\n{text[2:]}"
        else:
            found[-1].shown.append(text)
    return found


def same(shown: list[str], found: list[str]) -> bool:
    return len(shown) == len(found) and all(map(_same_line, shown, found))


def _same_line(shown: str, found: str) -> bool:
    pattern = re.escape(_masked(shown)).replace("…", ".*")
    return re.fullmatch(pattern, _masked(found)) is not None


def _masked(line: str) -> str:
    for mask, name in MASKS:
        line = mask.sub(name, line)
    return line.strip()


class Machines:
    def __init__(self, root: Path) -> None:
        self.root = root
        chance = random.Random()
        self._network = f"127.{chance.randrange(16, 250)}.{chance.randrange(250)}."
        """Addresses that nobody else on this machine is likely to have, so that the ports of the
        page are free there."""
        self._bin = root / "bin"
        self._bin.mkdir(parents=True)
        for name in ("systemctl", "ssh", "scp", "storenode", "pip", "sudo", "chown", "poweroff"):
            self._put(self._bin / name, f'#!/bin/sh\nexec "{sys.executable}" -m '
                      f'tests.docs.machine {name} "$@"\n')  # fmt: skip

    def _put(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def home(self, machine: str) -> Path:
        """Where who works there is."""
        home = self.root / machine / "home"
        for folder in ("home", "etc", "var/lib", "opt/storenode"):
            (self.root / machine / folder).mkdir(parents=True, exist_ok=True)
        return home

    def here(self, text: str, machine: str) -> str:
        """A text of the page as it is on this machine."""
        text = text.replace("subjectAltName=", LOOPBACK).replace(INSTALLED, "")
        return PATHS.sub(f"{self.root}/{machine}/", text.replace(NETWORK, self._network))

    def there(self, text: str) -> str:
        """What was printed here as the page shows it."""
        text = re.sub(rf"{re.escape(str(self.root))}/(?:you|n\d)(?:/home/)?", "", text)
        return text.replace(self._network, NETWORK)

    def write(self, name: str, text: str) -> None:
        """A file of the page, for who does what it says."""
        (self.home("you") / name).write_text(self.here(text, "MACHINE").replace(
            f"{self.root}/MACHINE/", "/"))  # fmt: skip

    def run(self, step: Step) -> list[str]:
        """Run one command in that machine's shell, which goes on where its last one ended; the
        lines that it printed."""
        home = self.home(step.machine)
        kept = shlex.quote(str(home / ".kept"))
        script = (
            f"[ -e {kept} ] && . {kept}\nset -a\n{self.here(step.command, step.machine)}\n"
            f"{{ declare -px | grep -v ' PWD=\\| OLDPWD=\\| SHLVL='; declare -f; }} > {kept}\n"
        )
        with (home / ".said").open("w+") as said:
            ended = subprocess.run(
                ["bash", "-c", script],
                cwd=home,
                env={
                    **_environment(),
                    "PATH": f"{self._bin}:{os.environ['PATH']}",
                    "PYTHONPATH": f"{ROOT}:{ROOT / 'clients' / 'python'}",
                    "MACHINES": str(self.root),
                    "MACHINE": step.machine,
                },
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            said.seek(0)
            text = said.read()
        del ended
        lines = [line.rstrip() for line in self.there(text).splitlines()]
        return [line for line in lines if not IMPATIENT.fullmatch(line)]

    def end(self) -> None:
        for path in self.root.glob("*/run/*.pid"):
            try:
                os.killpg(int(path.read_text()), signal.SIGKILL)
            except (OSError, ValueError):
                continue


def _environment() -> dict[str, str]:
    found = environment()
    return {name: value for name, value in found.items() if not name.startswith("STORE_")}


def play(page: str, machines: Machines) -> Iterator[tuple[Step, list[str]]]:
    """Do all that a page says, in its order; what each command printed."""
    for name, text in FILE.findall(page):
        machines.write(name, text)
    for block in BLOCK.finditer(page):
        for step in steps(block[1], page.count("\n", 0, block.start()) + 1):
            yield step, machines.run(step)


def rewritten(page: str, printed: list[list[str]]) -> str:
    """A page with what its commands have printed now."""
    anew = iter(printed)

    def block(old: re.Match[str]) -> str:
        lines = []
        for step in steps(old[1]):
            first, *more = step.command.split("\n")
            lines += [f"{step.machine}$ {first}", *(f"> {line}" for line in more), *_next(step)]
        return "".join(f"{line}\n" for line in lines)

    def _next(step: Step) -> list[str]:
        found = next(anew)
        return step.shown if same(step.shown, found) else found

    return BLOCK.sub(block, page)
