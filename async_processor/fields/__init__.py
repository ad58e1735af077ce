"""What settings are made of: durations, sizes, names, URLs, secrets, and the section itself.

Everything reads as people write it in YAML, and a number may also be a text, because a value
taken from the environment always is one. A validator's message says what is allowed; where and
what stands there is added by whoever reports the error.
"""

from async_processor.fields.addresses import (
    BindAddress,
    HttpUrl,
    HttpUrlWithQuery,
    host_and_port,
    split,
)
from async_processor.fields.headers import (
    OF_THE_CONNECTION,
    HeaderPattern,
    HeaderValue,
    MarkingHeader,
    OperatorsHeader,
)
from async_processor.fields.names import Name, NonEmpty, OptionalName, UrlPath
from async_processor.fields.quantities import (
    ByteSize,
    Count,
    Duration,
    Interval,
    IntervalOrOff,
    NonNegative,
    Number,
    Port,
    Positive,
    PositiveDuration,
    Processes,
    Share,
    Whole,
    read_duration,
    read_size,
)
from async_processor.fields.secrets import MASK, Secret, SecretHeaders, without_password
from async_processor.fields.section import Confirm, Section, TlsSettings

__all__ = [
    "MASK",
    "OF_THE_CONNECTION",
    "BindAddress",
    "ByteSize",
    "Confirm",
    "Count",
    "Duration",
    "HeaderPattern",
    "HeaderValue",
    "HttpUrl",
    "HttpUrlWithQuery",
    "Interval",
    "IntervalOrOff",
    "MarkingHeader",
    "Name",
    "NonEmpty",
    "NonNegative",
    "Number",
    "OperatorsHeader",
    "OptionalName",
    "Port",
    "Positive",
    "PositiveDuration",
    "Processes",
    "Secret",
    "SecretHeaders",
    "Section",
    "Share",
    "TlsSettings",
    "UrlPath",
    "Whole",
    "host_and_port",
    "read_duration",
    "read_size",
    "split",
    "without_password",
]
