"""Certificate authorities and certificates for tests.

The certificates conform to RFC 5280, because Python 3.13 and later verify that strictly.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)
_LOOPBACK = x509.SubjectAlternativeName(
    [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
)


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    cert_file: Path
    key_file: Path


class Authority:
    """Issues certificates. `ca_file` contains the authority's certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = generate_private_key(SECP256R1())
        self._issued = 0
        certificate = _certificate(self._name, self._name, self._key, self._key, is_authority=True)
        self.ca_file = folder / f"{name}.pem"
        self.ca_file.write_bytes(_pem(certificate))

    def issue(self, name: str = "service") -> Pair:
        """Issues a certificate for the loopback addresses."""
        self._issued += 1
        key = generate_private_key(SECP256R1())
        stem = f"{self.ca_file.stem}-{name}-{self._issued}"
        pair = Pair(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        certificate = _certificate(_name(name), self._name, key, self._key, is_authority=False)
        pair.cert_file.write_bytes(_pem(certificate))
        pair.key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair


def with_password(key: bytes) -> bytes:
    """Returns the key, encrypted with a password."""
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    signed_by: EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(_LOOPBACK, critical=False)
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key()),
            critical=False,
        )
        .sign(signed_by, hashes.SHA256())
    )


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    """Returns the uses of a key: an authority signs certificates, a service signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
