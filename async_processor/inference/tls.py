"""Whom the engine trusts and as whom it shows itself."""

from __future__ import annotations

import ssl
from typing import Literal

from async_processor.errors import ConfigurationError, Problem
from async_processor.fields import TlsSettings


def client_context(options: TlsSettings) -> ssl.SSLContext | Literal[True]:
    """The context for outgoing connections; True stands for the default one, which verifies.

    A `ca_file` replaces the system's authorities.

    Raises:
        ConfigurationError: a file cannot be read or holds nothing of use.
    """
    if options == TlsSettings():
        return True
    context = _verifying(options.ca_file)
    if options.cert_file:
        _show_certificate(context, options)
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _verifying(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable("inference.tls.ca_file", ca_file, error) from error


def _show_certificate(context: ssl.SSLContext, options: TlsSettings) -> None:
    try:
        context.load_cert_chain(options.cert_file, options.key_file, password=_no_password)
    except (OSError, ValueError) as error:
        files = f"{options.cert_file} with {options.key_file}"
        raise _unusable("inference.tls.cert_file", files, error) from error


def _no_password() -> str:
    """Asked for when a key is encrypted; without it OpenSSL would ask on the terminal."""
    return ""


def _unusable(path: str, files: str, error: Exception) -> ConfigurationError:
    return ConfigurationError([Problem(path=path, message=f"{files} cannot be used: {error}")])
