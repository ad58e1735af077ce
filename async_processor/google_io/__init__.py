"""The one door to Google's client libraries, for the transport and the producer alike.

They are an extra: importing anything here without it raises ConfigurationError.
"""

from async_processor.errors import ConfigurationError, Problem

try:
    import google.pubsub_v1  # noqa: F401
except ImportError as error:
    message = "gcp-pubsub needs the extra: pip install 'async-processor[pubsub]'"
    raise ConfigurationError([Problem(path="transport.type", message=message)]) from error
