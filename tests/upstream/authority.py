"""A certificate authority for tests, and server certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Authority:
    """`ca_file` is to be trusted, `context(names)` is for a server."""

    folder: Path

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
        self.ca_file = str(self.folder / "ca.pem")
        certificate = self._sign(self.name, self.key.public_key(), [], authority=True)
        Path(self.ca_file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _sign(self, subject: x509.Name, public, names: list[str], *, authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        # Python 3.13 and newer reject an authority without these, and certificates without the identifier
        if authority:
            builder = builder.add_extension(
                x509.SubjectKeyIdentifier.from_public_key(public), critical=False
            ).add_extension(_SIGNS, critical=True)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(name) for name in names]), critical=False
            )
        return builder.sign(self.key, hashes.SHA256())

    def context(self, *names: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
        certificate = self._sign(subject, key.public_key(), list(names), authority=False)
        path = self.folder / f"{names[0]}.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
