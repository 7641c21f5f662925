"""What a side of a TLS connection shows and whom it trusts: files, and the contexts made of them, made anew when a file changes.

A context is for connections that begin; those that are open keep the one that they began with.
"""

import hashlib
import logging
import os
import ssl
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from rmq.clock import Clock
from rmq.errors import InvalidArgument
from rmq.measures import Family, gauge
from rmq.secretfiles import read_lines

log = logging.getLogger("rmq.tls")

T_co = TypeVar("T_co", covariant=True)
LOOK_S: Final = 1.0  # between two looks at the files
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ASKS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
_HASHES: Final = {  # object identifiers of signatures, in DER
    bytes.fromhex("2a864886f70d01010c"): "sha384",  # sha384WithRSAEncryption
    bytes.fromhex("2a864886f70d01010d"): "sha512",  # sha512WithRSAEncryption
    bytes.fromhex("2a8648ce3d040303"): "sha384",  # ecdsa-with-SHA384
    bytes.fromhex("2a8648ce3d040304"): "sha512",  # ecdsa-with-SHA512
}
_CRL = b"-----BEGIN X509 CRL-----"
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags of DER
SOON_S: Final = 14 * 86_400.0  # a certificate that ends within this should have been renewed


class Tls(NamedTuple):
    """`ca`: PEM file of the authorities whose certificates are taken ("": when dialling those of the system), with their
    revocation lists if there are any. `cert`, `key`: what this side shows, PEM, the leaf first. `key_password_file`: for an
    encrypted key. `ciphers`: names of OpenSSL, for TLS 1.2. `client_auth`: whether a listener asks for certificates: none,
    optional, require. `server_name`: what the certificate of who is dialled must name ("": the host that was dialled)."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password_file: str = ""
    protocols: Sequence[str] = tuple(VERSIONS)
    ciphers: str = ""
    client_auth: str = "none"
    server_name: str = ""

    @property
    def files(self) -> list[str]:
        return [name for name in (self.ca, self.cert, self.key, self.key_password_file) if name]


class Listening(ssl.SSLContext):
    """`end_point`: see `end_point_of`."""

    end_point = b""


def listening(tls: Tls) -> Listening:
    """Raises InvalidArgument: which file, what is wrong with it."""
    context = Listening(ssl.PROTOCOL_TLS_SERVER)
    if not tls.cert:
        raise InvalidArgument("tls_cert: a listener needs a certificate and its key; `rmq certs make` makes some to try with")
    if tls.client_auth != "none" and not tls.ca:
        raise InvalidArgument("tls_ca: whose certificates of clients are taken? Name the file of that authority")
    context.options |= ssl.OP_NO_RENEGOTIATION
    shown = _read(tls.cert)
    _fill(context, tls)
    if _read(tls.cert) != shown:
        raise InvalidArgument(f"{tls.cert}: it was changed while it was read")
    context.end_point = _end_point(_first_certificate(shown))
    context.verify_mode = _ASKS[tls.client_auth]
    return context


def dialling(tls: Tls) -> ssl.SSLContext:
    """One that checks chain and name, always. Raises InvalidArgument."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not tls.ca:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _fill(context, tls)
    return context


def _fill(context: ssl.SSLContext, tls: Tls) -> None:
    versions = [VERSIONS[name] for name in tls.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if tls.ciphers:
        try:
            context.set_ciphers(tls.ciphers.replace(",", ":"))
        except ssl.SSLError:
            raise InvalidArgument(
                f"tls_ciphers: OpenSSL knows none of {tls.ciphers!r}; `openssl ciphers -v` lists them"
            ) from None
    if tls.cert:
        _show(context, tls)
    if tls.ca:
        _trust(context, tls.ca)


def _show(context: ssl.SSLContext, tls: Tls) -> None:
    for name in (tls.cert, tls.key or tls.cert):
        _read(name)
    password = read_lines(tls.key_password_file)[0] if tls.key_password_file else ""
    try:
        context.load_cert_chain(tls.cert, tls.key or None, lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "that key belongs to another certificate"
        else:
            why = "no PEM, or the key is encrypted with another password (tls_key_password_file)"
        raise InvalidArgument(f"{tls.cert} with {tls.key or 'the key in it'}: {why}") from None
    _check_secret(tls)


def _check_secret(tls: Tls) -> None:
    """A key that everybody can read is no secret (S12). A group may: certificates of Debian's machines are kept so."""
    name = tls.key or tls.cert
    mode = Path(name).stat().st_mode
    if mode & stat.S_IROTH and not tls.key_password_file and sys.platform != "win32":
        raise InvalidArgument(f"{name}: everybody on this machine may read this key (mode {mode & 0o777:04o}); chmod 600 {name}")


def _trust(context: ssl.SSLContext, name: str) -> None:
    lists = _CRL in _read(name)
    try:
        context.load_verify_locations(name)
    except ssl.SSLError:
        raise InvalidArgument(f"{name}: no certificates of authorities (PEM) stand there") from None
    if lists:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{name}: cannot be read ({error.strerror})") from None


def end_point_of(connection: ssl.SSLObject) -> bytes:
    """`tls-server-end-point` (RFC 5929) of a TLS connection: the hash of its server's certificate."""
    if connection.server_side:
        return connection.context.end_point if isinstance(connection.context, Listening) else b""
    certificate = connection.getpeercert(binary_form=True)
    return _end_point(certificate) if certificate else b""


def _first_certificate(pem: bytes) -> bytes:
    return _certificates(pem)[0]


def _certificates(pem: bytes) -> list[bytes]:
    """In DER."""
    parts = (part.partition(_END)[0] for part in pem.split(_BEGIN)[1:])
    return [ssl.PEM_cert_to_DER_cert((_BEGIN + part + _END).decode()) for part in parts]


def first_end(pem: bytes) -> float:
    """When the first of these certificates ends (Unix s): then nobody who checks them takes them any more."""
    return min(map(_not_after, _certificates(pem)))


def _not_after(certificate: bytes) -> float:
    """Python's ssl tells it of the other side only. (RFC 5280, 4.1: version, serial number, signature, issuer, validity)"""
    rest = _inside(_inside(certificate))
    for _ in range(4 if rest[0] == _VERSION else 3):
        rest = rest[_whole(rest) :]
    begin_and_end = _inside(rest)
    end = begin_and_end[_whole(begin_and_end) :]
    form = "%y%m%d%H%M%SZ" if end[0] == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(_inside(end).decode(), form).replace(tzinfo=UTC).timestamp()


def _end_point(certificate: bytes) -> bytes:
    """With the hash of the certificate's own signature; with SHA-256 where that has none, or an old one (RFC 5929, 4.1)."""
    signed = _inside(certificate)  # tbsCertificate, signatureAlgorithm, signatureValue
    algorithm = _inside(_inside(signed[_whole(signed) :]))
    return hashlib.new(_HASHES.get(algorithm, "sha256"), certificate).digest()


def _head(der: bytes) -> tuple[int, int]:
    """Where the content of the DER value begins that stands first, and its length."""
    size = der[1]
    if size < 0x80:
        return 2, size
    begin = 2 + (size & 0x7F)
    return begin, int.from_bytes(der[2:begin], "big")


def _inside(der: bytes) -> bytes:
    begin, size = _head(der)
    return der[begin : begin + size]


def _whole(der: bytes) -> int:
    return sum(_head(der))


class Contexts(Generic[T_co]):
    """What is made of the files, for a connection that begins now. Raises InvalidArgument when made; files that are wrong later
    are told, and what was there before goes on. `shown`: of a port, whose certificate others check; it warns of its end."""

    def __init__(self, tls: Tls, make: Callable[[Tls], T_co], clock: Clock, shown: bool = False) -> None:
        self.tls = tls
        self._make = make
        self._clock = clock
        self._stamps = _stamps(tls.files)
        self._context = make(tls)
        self._shown = shown
        self._end_s = self._told_end()
        self._looked = clock.monotonic()

    def now(self) -> T_co:
        """Looks at the files, but not for every connection."""
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._look()
        return self._context

    def _look(self) -> None:
        stamps = _stamps(self.tls.files)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            context = self._make(self.tls)
            if self._shown and first_end(_read(self.tls.cert)) < self._clock.wall_ms() / 1000 < self._end_s:
                raise InvalidArgument(f"the certificate in {self.tls.cert} has ended, the one before has not")
            self._context, self._end_s = context, self._told_end()
        except InvalidArgument as error:  # maybe one of two files is still to come, or one is replaced once more
            log.error("the changed TLS files are not taken, connections go on with those before: %s", error)
        else:
            log.info("TLS files changed: new connections use %s", ", ".join(self.tls.files))

    def _told_end(self) -> float:
        if not self._shown:
            return 0.0
        end_s = first_end(_read(self.tls.cert))
        left_s = end_s - self._clock.wall_ms() / 1000
        if left_s < SOON_S:
            when = f"{datetime.fromtimestamp(end_s, UTC):%Y-%m-%d %H:%M} UTC"
            about = f"ends in {left_s / 86_400:.1f} days" if left_s > 0 else "has ended, nobody who checks it connects"
            log.warning("the certificate in %s %s (%s): put a new one and its key in place", self.tls.cert, about, when)
        return end_s

    def metrics(self) -> Iterable[Family]:
        self.now()  # nobody may have connected since the files changed
        yield gauge("rmq_certificate_end_seconds", "when the certificate that the ports show ends, Unix time", self._end_s)


def _stamps(files: Sequence[str]) -> list[tuple[int, ...]]:
    """What tells a file from the one that was there before; a renamed one has another inode."""
    found: list[tuple[int, ...]] = []
    for name in files:
        try:
            status = os.stat(name)
            found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        except OSError:
            found.append(())
    return found


def explain(error: OSError) -> str:
    """Why a connection did not come about, in words for whoever dialled."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not taken: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).lower().replace("_", " ")
        return f"TLS: {reason}"
    return error.strerror or str(error) or "it ended the connection during the TLS handshake; maybe it takes no TLS"
