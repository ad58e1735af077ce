"""Private keys share their queue's slot, on a real cluster's terms, and Sentinel URLs are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from async_processor.redis_io.address import place, sentinel_address
from async_processor.redis_io.keys import (
    go_claim_keys,
    lot_key,
    queue_keys,
    quota_keys,
)
from async_processor.wire.names import slot_tag

NAMES = st.text(st.sampled_from("{}ab:"), min_size=1).filter(
    lambda name: "}" not in name or slot_tag(name) != name  # others are refused at start
)


@given(NAMES)
def test_all_keys_of_a_queue_share_its_slot(name: str) -> None:
    keys = queue_keys(name)
    go = go_claim_keys(name, clustered=True)
    private = (keys.claims, keys.leases, keys.deliveries, keys.stranded, keys.lots)
    lots = (lot_key(name, "a"), lot_key(name, "{b}"))
    for key in (*private, *lots, go.claimed, go.owners, go.index):
        assert key_slot(key.encode()) == key_slot(name.encode())


@given(
    st.text(st.sampled_from("quota:"), min_size=1),
    st.text(st.sampled_from("{}ab:"), min_size=1),
    st.text(),
)
def test_all_tenants_of_a_quota_share_a_slot(prefix: str, attribute: str, tenant: str) -> None:
    keys = quota_keys(prefix, "concurrency", attribute)
    for key in (keys.slots(tenant), keys.starts(tenant), keys.charged(tenant)):
        encoded = key.encode(errors="surrogatepass")
        assert key_slot(encoded) == key_slot(keys.wanted.encode())


@given(NAMES)
def test_the_tag_is_what_the_slot_is_computed_from(name: str) -> None:
    assert key_slot(name.encode()) == key_slot(f"{{{slot_tag(name)}}}".encode())


def test_names() -> None:
    assert queue_keys("requests").claims == "{requests}:claims"
    assert queue_keys("{llm}:requests").claims == "{llm}:requests:claims"
    assert lot_key("requests", "a") == "{requests}:lot:a"
    assert quota_keys("quota:", "concurrency", "userid").slots("a") == (
        "quota:{concurrency:userid}:slots:a"
    )
    assert go_claim_keys("requests", clustered=False).index == "requests:claims-idx"
    assert go_claim_keys("requests", clustered=True).index == "{requests}:claims-idx"


def test_a_sentinel_url() -> None:
    url = "rediss+sentinel://me:p%40ss@a:1,b,[::1]:3/main/7?sentinel_password=other"
    address = sentinel_address(url)
    assert address.hosts == (("a", 1), ("b", 26379), ("::1", 3))
    assert (address.service, address.database) == ("main", 7)
    assert (address.user, address.password) == ("me", "p@ss")
    assert (address.sentinel_user, address.sentinel_password) == (None, "other")
    assert address.encrypted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:pw@host:6379/0", "host:6379"),
        ("redis://host", "host"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("unix://u:pw@/run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
def test_places_show_no_secret(url: str, shown: str) -> None:
    assert place(url) == shown
