"""Certificates are those of the name, although an address is what is connected to."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from everthink.guard.transport import GuardedTransport

from .site import Names, Site, served

pytestmark = pytest.mark.anyio


class Authority:
    """Signs certificates of names, for as long as a test runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Nobody's authority")])
        own = self._begun(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self._own = own.sign(self._key, hashes.SHA256())

    def trust(self) -> ssl.SSLContext:
        """A client that trusts this authority and no other."""
        return ssl.create_default_context(cadata=_pem(self._own).decode())

    def server(self, *names: x509.GeneralName) -> ssl.SSLContext:
        """A server with a certificate of these names."""
        key = ec.generate_private_key(ec.SECP256R1())
        begun = self._begun(x509.Name([]), key)
        signed = begun.add_extension(x509.SubjectAlternativeName(names), True).sign(
            self._key, hashes.SHA256()
        )
        file = self._folder / "server.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + _pem(signed))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - dt.timedelta(hours=1),
            not_valid_after=now + dt.timedelta(hours=1),
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def greeted() -> list[str | None]:
    """The server names that clients ask for, one for each handshake."""
    return []


@pytest.fixture
async def site(authority: Authority, greeted: list[str | None]) -> AsyncIterator[Site]:
    def greet(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        greeted.append(name)

    tls = authority.server(
        x509.DNSName("mcp.example.com"),
        x509.DNSName("xn--bcher-kva.example.com"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    )
    tls.sni_callback = greet
    async with served(Site(), tls=tls) as site:
        yield site


def client(authority: Authority, **options: Any) -> httpx2.AsyncClient:
    guard = GuardedTransport(loopback=True, verify=authority.trust(), resolve=Names(["127.0.0.1"]), **options)
    return httpx2.AsyncClient(transport=guard)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("mcp.example.com", "mcp.example.com"),
        ("bücher.example.com", "xn--bcher-kva.example.com"),
        ("127.0.0.1", None),
    ],
)
async def test_the_server_is_greeted_by_its_name_and_shows_a_certificate_of_it(
    authority: Authority, site: Site, greeted: list[str | None], host: str, name: str | None
) -> None:
    async with client(authority) as web:
        assert (await web.get(f"https://{host}:{site.port}/")).text == "hello"
    assert greeted == [name]
    assert site.asked == [(f"{name or host}:{site.port}", "/")]


async def test_a_certificate_of_another_name_is_not_taken(authority: Authority, site: Site) -> None:
    async with client(authority) as web:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await web.get(f"https://other.example.com:{site.port}/")
    assert site.asked == []


async def test_a_connection_made_for_one_name_carries_nothing_for_another(
    authority: Authority, site: Site
) -> None:
    async with client(authority) as web:
        await web.get(f"https://mcp.example.com:{site.port}/")
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await web.get(f"https://other.example.com:{site.port}/secret")
    assert site.asked == [(f"mcp.example.com:{site.port}", "/")]


async def test_a_certificate_of_an_authority_that_nobody_named_is_not_taken(site: Site) -> None:
    guard = GuardedTransport(allow=[f"mcp.example.com:{site.port}"], resolve=Names(["127.0.0.1"]))
    async with httpx2.AsyncClient(transport=guard) as web:
        with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await web.get(f"https://mcp.example.com:{site.port}/")
