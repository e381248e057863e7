"""Addresses: written forms, and reserving one before the store is opened."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from surfaces.command.addresses import Address, AddressRefused, Reservation, parse


@pytest.mark.parametrize(
    ("text", "host", "port", "written"),
    [
        (":8000", "127.0.0.1", 8000, "127.0.0.1:8000"),
        ("localhost:0", "localhost", 0, "localhost:0"),
        ("0.0.0.0:65535", "0.0.0.0", 65535, "0.0.0.0:65535"),
        ("[::1]:80", "::1", 80, "[::1]:80"),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"),
        ("db-1.example.org:443", "db-1.example.org", 443, "db-1.example.org:443"),
    ],
)
def test_written_forms(text: str, host: str, port: int, written: str) -> None:
    assert parse(text) == Address(host, port)
    assert str(parse(text)) == written


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        (":1", True), ("localhost:1", True), ("[::1]:1", True), ("127.9.9.9:1", True),
        ("0.0.0.0:1", False), ("h:1", False), ("127.evil.example:1", False),
    ],
)  # fmt: skip
def test_who_can_reach_it(text: str, loopback: bool) -> None:
    assert parse(text).is_loopback is loopback


def test_reservation_finds_a_free_port_and_lets_the_surface_listen_on_it() -> None:
    reservation = Reservation(parse(":0"))
    assert reservation.address.port > 0
    with socket.socket() as surface:
        surface.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        surface.bind((reservation.address.host, reservation.address.port))
        surface.listen()
        reservation.release()
        with socket.create_connection(surface.getsockname()):
            pass


def test_taken_port_is_refused_by_name() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(AddressRefused, match=f"^{taken}: the port is in use$"):
            Reservation(taken)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "0.0.0.0", True), ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False), ("::1", "::", True), ("::1", "127.0.0.1", False),
        ("::", "0.0.0.0", False),
    ],
)  # fmt: skip
def test_addresses_that_overlap_are_those_that_cannot_both_be_listened_on(
    one: str, other: str, overlap: bool
) -> None:
    first = Reservation(Address(one, 0))
    port = first.address.port
    second = Reservation(Address(other, port))
    apart = Reservation(Address(other, 0))
    assert first.overlaps(second) == second.overlaps(first) == overlap
    assert not first.overlaps(apart)
    for reservation in (first, second, apart):
        reservation.release()

    async def listens() -> None:
        with ExitStack() as stack:
            for host in (one, other):
                server = await asyncio.start_server(lambda _reader, _writer: None, host, port)
                stack.callback(server.close)

    if overlap:
        with pytest.raises(OSError, match="in use"):
            asyncio.run(listens())
    else:
        asyncio.run(listens())


def test_a_name_is_refused_where_one_of_its_addresses_is_taken() -> None:
    """`localhost` is ::1 too, where the machine has it."""
    for family, _, _, _, where in set(socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)):
        with socket.socket(family) as other:
            other.bind(where)
            other.listen()
            taken = Address("localhost", other.getsockname()[1])
            with pytest.raises(AddressRefused, match=f"^{taken}: the port is in use$"):
                Reservation(taken)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (Address("192.0.2.1", 8000), "192.0.2.1:8000: the address does not belong to this machine"),
        (Address("no-such-host.invalid", 1), "no-such-host.invalid:1: "),
        (Address(f"::1%{'a' * 70}", 1), f"[::1%{'a' * 70}]:1: invalid host name"),
    ],
)
def test_address_of_another_is_refused(address: Address, message: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        Reservation(address)
    assert str(caught.value).startswith(message)
