"""What every part of the settings has in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from async_processor.fields.docs import field_docs
from async_processor.fields.quantities import PositiveDuration, Whole
from async_processor.fields.secrets import Hidden, shown


class Section(BaseModel):
    """A part of the settings: frozen, unknown keys refused, secrets masked when shown.

    `planned` names keys that a configuration may rightly use and that this version cannot obey.
    """

    planned: ClassVar[frozenset[str]] = frozenset()

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        validate_default=False,
    )

    @classmethod
    def keys(cls) -> Mapping[str, str]:
        """The keys as they are written, and the fields behind them."""
        return {field.alias or name: name for name, field in cls.model_fields.items()}

    def shown(self, name: str) -> Any:
        """The value of a field as it may be shown; sections in it show themselves."""
        return shown(getattr(self, name), hidden=self.hides(name))

    @classmethod
    def hides(cls, name: str) -> bool:
        """Whether the value of a field must not be shown."""
        return any(isinstance(mark, Hidden) for mark in cls.model_fields[name].metadata)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe each key by what stands below its field."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        docs = field_docs(cls, Section)
        for key, name in cls.keys().items():
            if name in docs:
                properties[key]["description"] = docs[name]
        return schema

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [(name, self.shown(name)) for name in type(self).model_fields]


class TlsSettings(Section):
    """How a TLS connection is made: whom to trust, and who we are."""

    ca_file: str = ""
    """Certificates to trust, PEM; default: the system's."""
    cert_file: str = ""
    """Our own certificate, PEM, for servers that ask for one."""
    key_file: str = ""
    """The key of `cert_file`, PEM."""
    insecure: bool = False
    """Accept any certificate: for tests only."""

    @model_validator(mode="after")
    def _whole_pair(self) -> Self:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file belong together: set both or none")
        return self


class Confirm(Section):
    """How many replicas of the broker must have a write before it counts as safe from a failover.

    The write stands on the master in any case; what is not confirmed may be lost with it.
    """

    replicas: Whole = 0
    """Replicas that must have it; 0: nobody is asked. Not on Redis Cluster."""
    timeout: PositiveDuration = 1.0
    """Seconds to wait for them."""
