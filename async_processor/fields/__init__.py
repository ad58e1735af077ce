"""What settings are made of: durations, sizes, names, URLs, secrets, and the section itself.

Everything reads as people write it in YAML, and a number may also be a text, because a value
taken from the environment always is one. A validator's message says what is allowed; where and
what stands there is added by whoever reports the error.
"""

from async_processor.fields.names import (
    BrokerUrl,
    HeaderName,
    HttpUrl,
    HttpUrlWithQuery,
    NonEmpty,
    OptionalHeaderName,
    RedisUrl,
    UrlPath,
)
from async_processor.fields.quantities import (
    ByteSize,
    Count,
    Duration,
    NonNegative,
    Number,
    Port,
    Positive,
    PositiveDuration,
    Share,
    Whole,
    read_duration,
    read_size,
)
from async_processor.fields.secrets import MASK, Secret, SecretHeaders, without_password
from async_processor.fields.section import Confirm, Section, TlsSettings

__all__ = [
    "MASK",
    "BrokerUrl",
    "ByteSize",
    "Confirm",
    "Count",
    "Duration",
    "HeaderName",
    "HttpUrl",
    "HttpUrlWithQuery",
    "NonEmpty",
    "NonNegative",
    "Number",
    "OptionalHeaderName",
    "Port",
    "Positive",
    "PositiveDuration",
    "RedisUrl",
    "Secret",
    "SecretHeaders",
    "Section",
    "Share",
    "TlsSettings",
    "UrlPath",
    "Whole",
    "read_duration",
    "read_size",
    "without_password",
]
