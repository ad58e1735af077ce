"""The Python client: submit requests with deadlines, wait for their results, cancel them.

async with Producer("redis://localhost:6379/0") as producer:
    handle = await producer.submit(
        Submission(payload={"model": "m", "prompt": "hi"}, deadline="1h")
    )
    result = await producer.result(handle)
"""

from async_processor.fields import Confirm
from async_processor.producer.blocking import SyncProducer
from async_processor.producer.client import Producer
from async_processor.producer.deadline import Deadline
from async_processor.producer.errors import DeadlinePassed, InvalidSubmission, NoMailbox
from async_processor.producer.reading import ResultReader
from async_processor.producer.submission import Handle, Payload, Submission
from async_processor.producer.taken import Taken, UnreadableResult
from async_processor.producer.unconfirmed import Unconfirmed
from async_processor.wire.result import ErrorCode, Result

__all__ = [
    "Confirm",
    "Deadline",
    "DeadlinePassed",
    "ErrorCode",
    "Handle",
    "InvalidSubmission",
    "NoMailbox",
    "Payload",
    "Producer",
    "Result",
    "ResultReader",
    "Submission",
    "SyncProducer",
    "Taken",
    "Unconfirmed",
    "UnreadableResult",
]
