"""TLS between nodes, without input or output: bytes to bytes.

TLS 1.3 only, with a certificate and its key on each side. The certificates are self-signed: the
handshake verifies the fingerprint and the dates, and a rejected peer gets only the alert. No
session is resumed: each connection is verified again.

OpenSSL is reached through pyOpenSSL, since the standard library's `ssl` requests no certificate
that no authority has signed. Keys are read from memory, not from a file.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple
from weakref import WeakMethod

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from OpenSSL import SSL
from OpenSSL.crypto import X509

from protocol import limits

RECORD_BYTES: Final = 16 * limits.KIB
"""Maximum payload of one TLS record."""

Judge = Callable[[str, datetime], str | None]
"""Check of a certificate, given its fingerprint and expiry. Returns the reason for a rejection, or
None."""


class TlsFailed(Exception):
    """The handshake or the connection failed. The text is this node's or OpenSSL's reason."""


class CertificateRejected(TlsFailed):
    """The other side rejected this node's certificate."""


class PeerCertificate(NamedTuple):
    """Certificate of the other side."""

    fingerprint: str
    expires: datetime


def context(chain: list[x509.Certificate], key: object) -> SSL.Context:
    """Return the TLS context of a node, for both sides.

    :param chain: its own certificate first
    :param key: that certificate's private key
    """
    made = SSL.Context(SSL.TLS_METHOD)
    made.set_min_proto_version(SSL.TLS1_3_VERSION)
    made.set_max_proto_version(SSL.TLS1_3_VERSION)
    made.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_COMPRESSION)
    made.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    made.use_certificate(chain[0])
    for one in chain[1:]:
        made.add_extra_chain_cert(one)
    made.use_privatekey(key)  # type: ignore[arg-type]
    made.check_privatekey()
    made.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _verify)
    return made


def _verify(connection: SSL.Connection, *told: Any) -> bool:
    """Verify one certificate: OpenSSL's callback, which delegates to the channel.

    The function is shared by all connections, and holds no channel. In a reference cycle each
    channel would stay until the garbage collector runs, which does not count OpenSSL's ten
    kilobytes of it.
    """
    judge = connection.get_app_data()()
    return judge is not None and bool(judge(*told))


class Channel:
    """End of a TLS connection.

    :param serves: True on the accepting side
    :param judge: called with the other side's certificate, before it is trusted
    :param now: the wall clock
    """

    def __init__(
        self, own: SSL.Context, serves: bool, judge: Judge, now: Callable[[], datetime]
    ) -> None:
        self._judge = judge
        self._now = now
        self._refused: str | None = None
        self.shown: PeerCertificate | None = None
        """Certificate that was accepted by `judge`. The peer has proved its key once `established`
        is True."""
        self.established = False
        """True if the handshake is done."""
        self.ended = False
        """True if the other side has sent its TLS close."""
        self._connection = SSL.Connection(own, None)
        self._connection.set_app_data(WeakMethod(self._verify))
        if serves:
            self._connection.set_accept_state()
        else:
            self._connection.set_connect_state()

    def start_handshake(self) -> None:
        """Start the handshake, on the dialling side.

        :raises TlsFailed: it failed
        """
        self._shake_hands()

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the other side, and return their plaintext. `take` has the bytes to be
        sent.

        :raises TlsFailed: `take` may still have an alert to be sent
        """
        self._connection.bio_write(data)
        if not self.established:
            self._shake_hands()
            if not self.established:
                return b""
        parts: list[bytes] = []
        try:
            while part := self._connection.recv(RECORD_BYTES):
                parts.append(part)
        except SSL.WantReadError:
            pass
        except SSL.ZeroReturnError:
            self.ended = True
        except SSL.Error as error:
            raise _failure(error) from error
        return b"".join(parts)

    def send(self, data: bytes | memoryview) -> None:
        """Encrypt data; `take` returns the encrypted bytes.

        :raises TlsFailed: it failed
        """
        try:
            self._connection.sendall(data)
        except SSL.Error as error:
            raise _failure(error) from error

    def end(self) -> None:
        """Send the TLS close."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            return  # before the end of the handshake no close can be sent

    def take(self) -> bytes:
        """Return the encrypted bytes to be sent."""
        parts: list[bytes] = []
        while True:
            try:
                parts.append(self._connection.bio_read(limits.MIB))
            except SSL.WantReadError:
                return b"".join(parts)

    def _shake_hands(self) -> None:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return
        except SSL.Error as error:
            raise TlsFailed(self._refused) if self._refused else _failure(error) from error
        proved = self._connection.get_peer_certificate(as_cryptography=True)
        judged = None if self.shown is None else self.shown.fingerprint
        if proved is None or proved.fingerprint(hashes.SHA256()).hex() != judged:
            raise TlsFailed("the certificate changed during the handshake")
        self.established = True

    def _verify(self, shown: X509, _error: int, depth: int, _ok: int) -> bool:
        """Verify a certificate of the chain. OpenSSL calls this for each certificate and for each
        of its own errors. Only the first certificate counts, and OpenSSL's opinion of it is
        ignored."""
        if depth > 0:
            return True
        try:
            certificate = shown.to_cryptography()
            begins, expires = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
        except ValueError:
            self._refused = "invalid certificate"
            return False
        now = self._now()
        if now >= expires:
            self._refused = f"the certificate {fingerprint} has expired"
        elif now < begins:
            self._refused = f"the certificate {fingerprint} is not valid yet"
        else:
            self._refused = self._judge(fingerprint, expires)
        self.shown = None if self._refused else PeerCertificate(fingerprint, expires)
        return self._refused is None


def _failure(error: SSL.Error) -> TlsFailed:
    """Return OpenSSL's own reason: these texts are constants."""
    if isinstance(error, SSL.SysCallError):
        return TlsFailed("the connection ended during the handshake")
    words = [str(entry[-1]) for entry in (error.args[0] if error.args else []) if entry]
    if any("alert" in one and ("certificate" in one or "unknown ca" in one) for one in words):
        return CertificateRejected("the peer does not trust this node's certificate")
    return TlsFailed(f"TLS: {', '.join(words) or 'it failed'}")
