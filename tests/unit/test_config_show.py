"""The effective configuration: everything that is set, as plain data, and no secret in it."""

from __future__ import annotations

import json

from async_processor.config.load import load_text
from async_processor.config.settings import Settings
from async_processor.config.show import effective

SECRET = "hunter2"
TEXT = f"""
transport:
  url: redis://user:{SECRET}@h:6379/0
  queues:
    - queue_name: q
      igw_base_url: http://user:{SECRET}@gw
      gate: {{type: endpoint-scrape, url: 'http://user:{SECRET}@pod/metrics', metric: m}}
prometheus: {{url: 'https://user:{SECRET}@p'}}
inference: {{headers: {{X-Api-Key: Bearer {SECRET}, X-Empty: ''}}}}
server: {{bearer_token: {SECRET}}}
"""


def settings() -> Settings:
    return load_text(TEXT, {}, name="config.yaml")


def test_everything_is_plain_data() -> None:
    shown = effective(settings())
    assert json.loads(json.dumps(shown)) == shown
    assert set(shown) == set(Settings.model_fields)
    assert shown["drain_timeout"] == 120
    assert shown["limits"]["payload_bytes"] == 16 * 2**20
    assert shown["transport"]["queues"][0]["gate"]["value_type"] == "saturation"
    assert shown["worker_pools"][0]["workers"] == 64


def test_secrets_are_masked_and_the_rest_is_shown() -> None:
    shown = effective(settings())
    assert SECRET not in json.dumps(shown)
    assert shown["transport"]["url"] == "redis://***@h:6379/0"
    assert shown["transport"]["queues"][0]["igw_base_url"] == "http://***@gw"
    assert shown["transport"]["queues"][0]["gate"]["url"] == "http://***@pod/metrics"
    assert shown["prometheus"]["url"] == "https://***@p"
    assert shown["inference"]["headers"] == {"X-Api-Key": "***", "X-Empty": ""}
    assert shown["server"]["bearer_token"] == "***"


def test_the_settings_themselves_can_be_printed() -> None:
    assert SECRET not in repr(settings())
    assert SECRET not in str(settings())


def test_the_daemon_sees_what_was_written() -> None:
    assert settings().inference.headers["X-Api-Key"] == f"Bearer {SECRET}"
    assert settings().server.bearer_token == SECRET
