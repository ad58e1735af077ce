"""Results are readable whoever wrote them."""

from __future__ import annotations

import pytest

from async_processor.wire import result
from async_processor.wire.result import ErrorCode


def test_an_error_code_of_another_version_is_kept() -> None:
    body = b'{"id":"r-1","payload":"{}","error_code":"QUANTUM_FLUX","error_message":"why"}'
    read = result.decode(body)
    assert read.error_code == "QUANTUM_FLUX"
    assert result.decode(result.encode(read)) == read


def test_known_error_codes_are_themselves() -> None:
    body = b'{"id":"r-1","payload":"{}","error_code":"CANCELLED"}'
    assert result.decode(body).error_code is ErrorCode.CANCELLED


@pytest.mark.parametrize("body", [b"null", b"[]", b'{"payload":"x"}', b'{"id":1,"payload":""}'])
def test_what_is_no_result_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        result.decode(body)
