"""How gRPC is secured: a certificate from files, one of our own making, or none.

A gateway that speaks to an endpoint picker takes any certificate by default: what is kept off is reading along, not
somebody who stands between. Who wants that too gives files, and asks for the client's certificate.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.config import ConfigInvalid
from gateway.epp_config import Epp

VALID: Final = timedelta(days=3650)
_CLOCKS_DIFFER: Final = timedelta(days=1)
_NAME: Final = "prefixgate-epp"


def credentials_of(settings: Epp) -> "grpc.ServerCredentials | None":
    """What the server shows; None where it speaks without TLS. Raises `ConfigInvalid` for files that cannot be used."""
    if settings.tls == "off":
        return None
    authorities = None
    try:
        if settings.client_ca_file is not None:
            authorities = settings.client_ca_file.read_bytes()
        if settings.cert_file is not None and settings.key_file is not None:
            key, chain = settings.key_file.read_bytes(), settings.cert_file.read_bytes()
            x509.load_pem_x509_certificates(chain)
            serialization.load_pem_private_key(key, None)
        else:
            key, chain = self_signed(datetime.now(UTC))
    except OSError as error:
        raise ConfigInvalid(f"epp: cannot read {error.filename}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise ConfigInvalid("epp: cert_file and key_file must be PEM, the key without a password") from None
    return grpc.ssl_server_credentials([(key, chain)], authorities, authorities is not None)


def self_signed(now: datetime) -> tuple[bytes, bytes]:
    """A key and a certificate that vouches for itself, PEM. A millisecond."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME), x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret, certificate.public_bytes(pem)
