"""Ways to a Redis: passwords, ACL users, TLS, a socket file; and what a refusal says."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from async_processor.errors import BrokerRefused, BrokerUnavailable, ConfigurationError
from async_processor.fields import TlsSettings
from async_processor.redis_io.connect import open_client
from async_processor.testing.redis_probe import probing
from async_processor.testing.requirements import unavailable
from async_processor.testing.servers import RedisServer, server_binaries
from async_processor.transport.redis_sorted_set import RedisSortedSet
from async_processor.transport.settings import RedisSettings

SERVERS = server_binaries()
SECRET = "s3cr3t/with:odd@characters"
QUOTED = "s3cr3t%2Fwith%3Aodd%40characters"


async def used(url: str, tls: TlsSettings | None = None) -> None:
    """Start a transport, use it, stop it."""
    transport = RedisSortedSet(RedisSettings(url=url, tls=tls or TlsSettings()), ["q"])
    try:
        await transport.start()
        assert await transport.claim("q", 1, suspects=False) == []
        await transport.ping()
    finally:
        await transport.stop()


@pytest.fixture(params=SERVERS)
def locked_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    user = f"user worker on >{SECRET} ~* &* +@all".split()
    with RedisServer(
        SERVERS[request.param], ["--requirepass", SECRET, "--" + user[0], *user[1:]]
    ) as server:
        yield server


async def test_a_password_opens(locked_server: RedisServer) -> None:
    await used(f"redis://:{QUOTED}@127.0.0.1:{locked_server.port}/0")


async def test_a_user_and_a_password_open(locked_server: RedisServer) -> None:
    await used(f"redis://worker:{QUOTED}@127.0.0.1:{locked_server.port}/0")


@pytest.mark.parametrize("login", ["", ":wr0ng@", "worker:wr0ng@", "nobody:wr0ng@"])
async def test_a_wrong_login_is_refused_at_start(locked_server: RedisServer, login: str) -> None:
    transport = RedisSortedSet(
        RedisSettings(url=f"redis://{login}127.0.0.1:{locked_server.port}/0")
    )
    with pytest.raises(BrokerRefused, match="denies access") as caught:
        await transport.start()
    assert f"127.0.0.1:{locked_server.port}" in str(caught.value) or not login
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(BrokerUnavailable):
        await transport.ping()
    await transport.stop()


async def test_another_database(redis_server: RedisServer) -> None:
    url = f"redis://127.0.0.1:{redis_server.port}"
    async with probing(f"{url}/5") as there, probing(f"{url}/0") as here:
        await there.submit("q", b"x", 1.0)
        assert await here.waiting("q") == {}
        assert await there.waiting("q") == {b"x": 1.0}


async def test_a_socket_file(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(args=["--unixsocket", str(path)]):
        await used(f"unix://{path}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://u:p#w@host:6379/0", "percent-encoded"),
        ("redis://host:port/0", "percent-encoded"),
        ("redis://host?colour=blue", "unknown options"),
        ("redis+sentinel://host:26379", "name the service"),
        ("redis+sentinel://host:x/main", "host:port"),
        ("redis+sentinel://host:1/main/x", "number of a database"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        open_client(url)
    assert "p#w" not in str(caught.value)


async def test_keys_of_another_type_are_refused_at_start(redis_server: RedisServer) -> None:
    async with probing(redis_server.url) as probe:
        await probe.set_key("retry-sortedset", b"x")
        await probe.set_key("q", b"x")
        transport = RedisSortedSet(RedisSettings(url=redis_server.url), ["q"])
        with pytest.raises(ConfigurationError) as caught:
            await transport.start()
        assert [problem.path for problem in caught.value.problems] == [
            "transport: retry-sortedset",
            "transport: q",
        ]
        assert "holds a string" in str(caught.value)
        await transport.stop()


class Authority:
    """A certificate authority of the test's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._openssl("req -x509 -nodes -keyout ca.key -out ca.pem -subj /CN=authority")
        self.file = str(folder / "ca.pem")

    def issue(self, name: str) -> tuple[str, str]:
        """A certificate for 127.0.0.1 and its key."""
        (self._folder / "extensions").write_text("subjectAltName=IP:127.0.0.1")
        self._openssl(
            f"req -nodes -newkey rsa:2048 -keyout {name}.key -out {name}.csr -subj /CN={name}"
        )
        self._openssl(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem"
            " -extfile extensions"
        )
        return str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key")

    def _openssl(self, command: str) -> None:
        args = ["openssl", *command.split()]
        subprocess.run(args, cwd=self._folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if shutil.which("openssl") is None:
        unavailable("openssl is not installed")
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_server(authority: Authority) -> Iterator[RedisServer]:
    """Asks its clients for a certificate, too. (Debian's Redis is built with TLS.)"""
    certificate, key = authority.issue("server")
    args = ["--port", "0", "--tls-port", "{port}", "--tls-cert-file", certificate]
    args += ["--tls-key-file", key, "--tls-ca-cert-file", authority.file]
    with RedisServer(SERVERS.get("redis"), args, scheme="rediss") as server:
        yield server


async def test_tls_with_a_client_certificate(tls_server: RedisServer, authority: Authority) -> None:
    certificate, key = authority.issue("client")
    await used(
        tls_server.url, TlsSettings(ca_file=authority.file, cert_file=certificate, key_file=key)
    )
    await used(tls_server.url, TlsSettings(insecure=True, cert_file=certificate, key_file=key))


async def test_a_server_that_is_not_trusted_is_refused_at_start(tls_server: RedisServer) -> None:
    with pytest.raises(BrokerRefused, match="not trusted"):
        await used(tls_server.url)


async def test_a_missing_certificate_file_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match=r"transport.tls.ca_file: /nowhere cannot be found"
    ):
        open_client("rediss://127.0.0.1:1", tls=TlsSettings(ca_file="/nowhere"))
