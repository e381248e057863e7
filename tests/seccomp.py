"""A program some of whose system calls are refused, as in a container or by a service manager:
`python -m tests.seccomp setpriority=EPERM … -- program …`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Final

NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    "x86_64": {"setpriority": 141, "fadvise64": 221, "fallocate": 285, "sched_setscheduler": 144},
    "aarch64": {"setpriority": 140, "fadvise64": 223, "fallocate": 47, "sched_setscheduler": 119},
}
"""Of system calls, by the kind of machine."""

_NO_NEW_PRIVILEGES: Final = 38
_SET_SECCOMP: Final = 22
_FILTER: Final = 2
_LOAD: Final = 0x20
_SKIP_UNLESS_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_ERRNO: Final = 0x00050000
_ALLOW: Final = 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def under(refused: Mapping[str, str]) -> list[str]:
    """The words in front of a program. :param refused: names of errors, by those of calls"""
    calls = [f"{call}={error}" for call, error in refused.items()]
    return [sys.executable, "-m", "tests.seccomp", *calls, "--"]


def refuse(refused: Mapping[int, int]) -> None:
    """Refuse system calls from now on. :param refused: errors, by the numbers of calls"""
    steps = [(_LOAD, 0, 0, 0)]  # the number of the call
    for number, error in refused.items():
        steps += [(_SKIP_UNLESS_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((_NO_NEW_PRIVILEGES, 1, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program))):
        if libc.prctl(*words, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def main(words: Sequence[str]) -> None:
    """Refuse what is named, then be the program behind `--`."""
    end = words.index("--")
    named = dict(word.split("=") for word in words[:end])
    numbers = NUMBERS[platform.machine()]
    refuse({numbers[call]: getattr(errno, error) for call, error in named.items()})
    os.execv(words[end + 1], list(words[end + 1 :]))


if __name__ == "__main__":
    main(sys.argv[1:])
