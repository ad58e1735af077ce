"""The HTTP engine over TLS: it verifies unless told not to, and shows its certificate if asked.

The certificates are made for the test by the openssl command line.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from async_processor.clock import SystemClock
from async_processor.errors import ConfigurationError
from async_processor.fields import TlsSettings
from async_processor.inference.base import Answer, Call, Failure, NoAnswer, Reply
from async_processor.inference.http import HttpEngine
from async_processor.testing.requirements import unavailable


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (ca), and a server's and a client's certificate signed by it."""
    if shutil.which("openssl") is None:
        unavailable("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca, ca_key = str(folder / "ca.pem"), str(folder / "ca.key")
    openssl(
        "req", "-x509", *key, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=test-ca",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )  # fmt: skip
    for name in ("server", "client"):
        request, extensions = str(folder / f"{name}.csr"), folder / f"{name}.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1\n")
        openssl(
            "req", *key, "-keyout", str(folder / f"{name}.key"), "-out", request,
            "-subj", f"/CN={name}",
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial",
            "-days", "2", "-extfile", str(extensions), "-out", str(folder / f"{name}.pem"),
        )  # fmt: skip
    return folder


@asynccontextmanager
async def gateway(certificates: Path, *, wants_certificate: bool = False) -> AsyncIterator[str]:
    """An inference gateway behind TLS that answers every request with {}."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    if wants_certificate:
        context.load_verify_locations(certificates / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    talking: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()
            await reader.read()
        writer.transport.abort()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    finally:
        listener.close()
        await asyncio.gather(*talking)
        await asyncio.sleep(0)


async def ask(url: str, tls: TlsSettings) -> Reply:
    engine = HttpEngine(clock=SystemClock(), connections=1, tls=tls)
    await engine.start()
    try:
        return await engine.send(Call(url=url, headers={}, body=b"{}", timeout=30))
    finally:
        await engine.stop()


async def test_a_certificate_of_an_unknown_authority_is_refused(certificates: Path) -> None:
    async with gateway(certificates) as url:
        reply = await ask(url, TlsSettings())
    assert isinstance(reply, NoAnswer)
    assert reply.failure is Failure.TLS
    assert "certificate" in reply.message


async def test_a_known_authority_is_trusted(certificates: Path) -> None:
    async with gateway(certificates) as url:
        reply = await ask(url, TlsSettings(ca_file=str(certificates / "ca.pem")))
    assert isinstance(reply, Answer)


async def test_a_certificate_for_another_host_is_refused(certificates: Path) -> None:
    async with gateway(certificates) as url:
        other = url.replace("127.0.0.1", "localhost")
        reply = await ask(other, TlsSettings(ca_file=str(certificates / "ca.pem")))
    assert isinstance(reply, NoAnswer)
    assert reply.failure is Failure.TLS


async def test_insecure_verifies_nothing(certificates: Path) -> None:
    async with gateway(certificates) as url:
        assert isinstance(await ask(url, TlsSettings(insecure=True)), Answer)


async def test_the_clients_certificate_is_shown(certificates: Path) -> None:
    tls = TlsSettings(
        ca_file=str(certificates / "ca.pem"),
        cert_file=str(certificates / "client.pem"),
        key_file=str(certificates / "client.key"),
    )
    async with gateway(certificates, wants_certificate=True) as url:
        assert isinstance(await ask(url, tls), Answer)


async def test_without_a_client_certificate_a_gateway_that_wants_one_fails(
    certificates: Path,
) -> None:
    async with gateway(certificates, wants_certificate=True) as url:
        reply = await ask(url, TlsSettings(ca_file=str(certificates / "ca.pem")))
    assert isinstance(reply, NoAnswer)
    assert reply.failure in (Failure.TLS, Failure.RESET)
    assert reply.transient


async def test_plain_http_on_the_other_side_is_a_tls_failure() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        reply = await ask(f"https://127.0.0.1:{port}/", TlsSettings(insecure=True))
    assert isinstance(reply, NoAnswer)
    assert reply.failure in (Failure.TLS, Failure.RESET)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (TlsSettings(ca_file="/nowhere/ca.pem"), "inference.tls.ca_file"),
        (TlsSettings(ca_file=__file__), "inference.tls.ca_file"),
        (TlsSettings(cert_file="/no/c.pem", key_file="/no/c.key"), "inference.tls.cert_file"),
        (TlsSettings(cert_file=__file__, key_file=__file__), "inference.tls.cert_file"),
    ],
)
async def test_an_unusable_file_stops_the_start(settings: TlsSettings, path: str) -> None:
    engine = HttpEngine(clock=SystemClock(), connections=1, tls=settings)
    with pytest.raises(ConfigurationError) as raised:
        await engine.start()
    assert [problem.path for problem in raised.value.problems] == [path]


async def test_an_encrypted_key_is_an_error_and_no_prompt(
    certificates: Path, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    openssl(
        "pkey", "-in", str(certificates / "client.key"), "-aes256", "-passout", "pass:hunter2",
        "-out", str(locked),
    )  # fmt: skip
    engine = HttpEngine(
        clock=SystemClock(),
        connections=1,
        tls=TlsSettings(cert_file=str(certificates / "client.pem"), key_file=str(locked)),
    )
    with pytest.raises(ConfigurationError, match=r"locked\.key cannot be used"):
        await engine.start()
