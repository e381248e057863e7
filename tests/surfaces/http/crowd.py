"""Many connections from a process of their own, for rigs that need more descriptors than one has.

`python crowd.py PORT HELD EXTRA`: holds HELD connections, then opens EXTRA more and prints the
status that each of them is answered with; at a line on standard input lets one of the held go,
asks on a new one and prints the milliseconds until it was answered 200.
"""

from __future__ import annotations

import socket
import sys
import time

ASK = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    made.settimeout(60)
    return made


def status(made: socket.socket) -> str:
    made.sendall(ASK)
    return made.recv(65_536).split(b" ", 2)[1].decode()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(port: int, held: int, extra: int) -> None:
    crowd = [connect(port) for _ in range(held)]
    assert status(crowd[-1]) == "200"  # all before it have been accepted too
    others = [connect(port) for _ in range(extra)]
    say(" ".join(status(other) for other in others))
    for other in others:
        other.close()
    sys.stdin.readline()
    crowd.pop(0).close()
    began = time.perf_counter()
    while True:
        with connect(port) as again:
            if status(again) == "200":
                break
    say(f"{(time.perf_counter() - began) * 1000:.1f}")
    sys.stdin.readline()


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
