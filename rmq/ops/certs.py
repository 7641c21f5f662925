"""A private authority and certificates by it: for tests, first steps, and clusters that have no authority of their own.

Keys are P-256, in PKCS 8, which every client of RocketMQ reads. Files are put in place whole, so that nodes, which reread
them, never see half of one.
"""

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rmq.clock import Clock
from rmq.errors import InvalidArgument
from rmq.secretfiles import replace

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_EARLY = timedelta(minutes=10)  # clocks of other machines may be behind


class Made(NamedTuple):
    """The paths of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """The authority in `folder`: `ca.pem` and `ca.key`. Raises InvalidArgument if these files are no authority."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.files = Made(folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key")
        try:
            self._cert = x509.load_pem_x509_certificate(self.files.cert.read_bytes())
            key = serialization.load_pem_private_key(self.files.key.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidArgument(f"{folder}: its ca.pem and ca.key cannot be used ({error}); choose another folder") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidArgument(f"{self.files.key}: not made by this command; sign with that authority's own tools")
        self._key = key
        self._clock = clock

    @classmethod
    def make(cls, folder: Path, clock: Clock, name: str = "rmq private CA") -> "Authority":
        """Makes a new authority; replaces one in the folder. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, AUTHORITY, key, [_authority(name, name, key, key, clock)])
        return cls(folder, clock)

    @property
    def days_left(self) -> float:
        """How long it is valid; below 0: it has ended."""
        return (self._cert.not_valid_after_utc - _now(self._clock)) / timedelta(days=1)

    def subordinate(self, folder: Path, name: str) -> "Authority":
        """Makes another authority that this one certifies. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        own = self._cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        _write(folder, AUTHORITY, key, [_authority(name, str(own), key, self._key, self._clock)])
        return Authority(folder, self._clock)

    def issue(self, name: str, hosts: Sequence[str], days: float = 365, begin: datetime | None = None) -> Made:
        """A certificate for servers and clients: `name` is its common name and file, `hosts` are the names and addresses that
        it stands for. `days` may be negative, for tests of expired ones. Raises OSError, InvalidArgument."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._cert.subject, key, begin or _now(self._clock), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(digital_signature=True, key_cert_sign=False, crl_sign=False), critical=True)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([general_name(host) for host in hosts]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        cert = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        return _write(self.folder, name, key, [cert])

    def revoke(self, *certs: Path) -> None:
        """Writes the list of these revoked certificates into ca.pem, after the authority."""
        now = _now(self._clock)
        listed = x509.CertificateRevocationListBuilder().issuer_name(self._cert.subject)
        listed = listed.last_update(now - _EARLY).next_update(now + timedelta(days=30))
        for cert in certs:
            serial = x509.load_pem_x509_certificate(cert.read_bytes()).serial_number
            gone = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - _EARLY).build()
            listed = listed.add_revoked_certificate(gone)
        pem = listed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        replace(self.files.cert, self._cert.public_bytes(serialization.Encoding.PEM) + pem, 0o644)


def _authority(
    name: str, by: str, key: ec.EllipticCurvePrivateKey, signs: ec.EllipticCurvePrivateKey, clock: Clock
) -> x509.Certificate:
    builder = _builder(_named(name), _named(by), key, _now(clock), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    usage = _usage(digital_signature=False, key_cert_sign=True, crl_sign=True)
    return builder.add_extension(usage, critical=True).sign(signs, hashes.SHA256())


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.wall_ms() // 1000, UTC)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def general_name(host: str) -> x509.GeneralName:
    """Raises InvalidArgument."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.fullmatch(host):
            about = "a name as it stands in the name service (of other letters: xn--...) or an address is needed, without a port"
            raise InvalidArgument(f"host {host!r}: {about}") from None
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, days: float
) -> x509.CertificateBuilder:
    end = begin + timedelta(days=days)
    public = key.public_key()
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(min(begin, end) - _EARLY).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _usage(digital_signature: bool, key_cert_sign: bool, crl_sign: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only")
    wanted = {"digital_signature": digital_signature, "key_cert_sign": key_cert_sign, "crl_sign": crl_sign}
    return x509.KeyUsage(**wanted, **dict.fromkeys(others, False))


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, chain: Sequence[x509.Certificate]) -> Made:
    """The key first: a node that finds only one of them new goes on with the old pair until the other is there."""
    made = Made(folder / f"{name}.pem", folder / f"{name}.key")
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    replace(made.key, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none), 0o600)
    replace(made.cert, b"".join(cert.public_bytes(encoding) for cert in chain), 0o644)
    return made
