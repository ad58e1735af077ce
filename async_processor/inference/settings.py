"""How the inference gateway is called."""

from __future__ import annotations

from pydantic import Field

from async_processor.fields import PositiveDuration, SecretHeaders, Section, TlsSettings


class InferenceSettings(Section):
    """Rules for every call."""

    request_timeout: PositiveDuration = 300.0
    """Seconds; a call ends after this or at the deadline, whichever comes first."""
    headers: SecretHeaders = Field(default_factory=dict)
    """Sent with every call, e.g. {Authorization: "Bearer ${INFERENCE_API_KEY}"}; a header whose
    variables are all empty is not set."""
    tls: TlsSettings = TlsSettings()
    """For gateways behind https."""
