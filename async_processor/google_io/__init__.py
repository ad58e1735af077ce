"""The one door to Google's client libraries, for the transport and the producer alike.

They are an extra: importing anything here without it raises ConfigurationError.
"""

import os

from async_processor.errors import ConfigurationError, Problem

# gRPC's own log is no JSON, and tells of connections what our errors tell; it is set up once, now.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

try:
    import google.pubsub_v1  # noqa: F401
except ImportError as error:
    message = "gcp-pubsub needs the extra: pip install 'async-processor[pubsub]'"
    raise ConfigurationError([Problem(path="transport.type", message=message)]) from error
