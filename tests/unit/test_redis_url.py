"""What the URL of a Redis may say, and that no message repeats it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from async_processor.redis_io.connect import open_client
from async_processor.redis_io.url import RedisUrl, checked


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h:6379/",
        "redis://user:p%40ss%2Fw@h:6379/15",
        "redis://:pw@[::1]:6379?db=3",
        "rediss://my_redis.prod.svc.cluster.local.:6380/0?ssl_ca_certs=/tls/ca.pem",
        "redis://10.0.0.1?username=u&password=p",
        "redis+sentinel://u:pw@a,b:26380,[::1]:3/main",
        "rediss+sentinel://a/main/7?sentinel_password=x",
        "unix:///run/redis.sock?db=1",
        "unix://u:pw@/run/redis.sock",
    ],
)
def test_what_a_client_can_be_made_for_is_accepted(url: str) -> None:
    assert checked(url) == url
    open_client(url)


LIKE = ", like redis://user:password@host:6379/0, special characters in user and password "


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "must begin with redis://, rediss://, redis+sentinel://"),
        ("amqp://h", "must begin with redis://"),
        ("h:6379", "must begin with redis://"),
        (" redis://h", "must begin with redis://"),
        ("redis://", f"must name a host{LIKE}"),
        ("redis://:6379", f"must name a host{LIKE}"),
        ("redis://user:hunter2@", f"must name a host{LIKE}"),
        ("redis://[::1", f"must be a URL whose host is a name or an IP address{LIKE}"),
        ("redis://::1", f"must be a URL whose port is 1 to 65535{LIKE}"),
        ("redis://256.0.0.1", f"must be a URL whose host is a name or an IP address{LIKE}"),
        ("redis://a..b", f"must be a URL whose host is a name or an IP address{LIKE}"),
        ("redis://a,b:1", f"must be a URL whose host is a name or an IP address{LIKE}"),
        ("redis://h:99999", f"must be a URL whose port is 1 to 65535{LIKE}"),
        ("redis://h:abc", f"must be a URL whose port is 1 to 65535{LIKE}"),
        ("redis://h:0", f"must be a URL whose port is 1 to 65535{LIKE}"),
        ("redis://u:hunter2/w@h", f"must be a URL whose port is 1 to 65535{LIKE}"),
        ("redis://u:hunter2#w@h", f"must be a URL without a fragment{LIKE}"),
        ("redis://h\n", f"must be a URL without spaces and control characters{LIKE}"),
        ("redis://u:hunter2@h\u2100", f"must be a URL whose host is a name or an IP address{LIKE}"),
        ("redis://h/abc", "must end in the number of a database, like /0"),
        ("redis://h/-1", "must end in the number of a database, like /0"),
        ("redis://h/0/1", "must end in the number of a database, like /0"),
        ("redis://h?db=x", "must end in the number of a database, like /0"),
        ("redis://h?decode_responses=1", "must have no unknown options; known: db, password, user"),
        ("redis://h?ssl_cert_reqs=none", "must have no unknown options; known: db, password, user"),
        ("rediss://h?ssl_cert_reqs=none", "must leave the checks of certificates to tls"),
        ("redis+sentinel://h:26379", "must name the service: redis+sentinel://host:port/service/0"),
        ("redis+sentinel:///main", "must name each Sentinel as host:port"),
        ("redis+sentinel://a:1,,b:2/main", "must name each Sentinel as host:port"),
        ("redis+sentinel://a:99999/main", "must name each Sentinel as host:port"),
        ("redis+sentinel://a/main/x", "must end in the number of a database, like /0"),
        ("redis+sentinel://a/main?db=1", "must have no unknown options; known: sentinel_password"),
        ("unix://", "must name the socket's file: unix:///run/redis.sock"),
    ],
)
def test_another_url_is_refused_with_what_is_allowed(url: str, rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(RedisUrl).validate_python(url)
    message = refused.value.errors()[0]["msg"].removeprefix("Value error, ")
    assert message.startswith(rule)
    assert "hunter2" not in message


@given(st.sampled_from(["redis://", "redis+sentinel://", "unix://"]), st.text())
def test_whatever_is_accepted_makes_a_client(scheme: str, rest: str) -> None:
    try:
        url = checked(scheme + rest)
    except ValueError:
        return
    open_client(url)
