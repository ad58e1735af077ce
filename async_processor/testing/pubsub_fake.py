"""A Pub/Sub server for tests: real gRPC over a socket in front of a `PubSubBroker`, with faults."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Self

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc import aio

from async_processor.testing.pubsub_broker import PubSubBroker, Subscription

Context = Any
"""grpc's, which has no types."""

Method = tuple[Callable[[Any, Context], Awaitable[Any]], Any, Any]
"""What answers, what it takes, what it gives."""

_UNLIMITED: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)


class PubSubFake:
    """The server; port 0 takes a free one.

    `long_poll` is how many seconds an empty pull waits for a message.
    """

    def __init__(self, *, second: float = 1.0, long_poll: float = 4.0, port: int = 0) -> None:
        self.broker = PubSubBroker(second=second)
        self.calls: defaultdict[str, int] = defaultdict(int)
        """How often each method was called."""
        self._long_poll = long_poll
        self._faults: defaultdict[str, deque[tuple[grpc.StatusCode, bool]]] = defaultdict(deque)
        self._pulls: set[asyncio.Task[Any]] = set()
        self._server: aio.Server | None = None
        self._port = port

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def host(self) -> str:
        """What PUBSUB_EMULATOR_HOST is set to."""
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen: on a free port, after a stop on the same one."""
        self._server = aio.server(options=(*_UNLIMITED, ("grpc.so_reuseport", 1)))
        self._server.add_generic_rpc_handlers(self._handlers())
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        await self._server.start()

    async def stop(self) -> None:
        """Cut every connection; what is kept stays."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    def fail(
        self,
        method: str,
        code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
        *,
        times: int = 1,
        after: bool = False,
    ) -> None:
        """Let the next calls of a method fail; `after` it took effect, if that is said."""
        self._faults[method].extend([(code, after)] * times)

    def heal(self) -> None:
        """Forget the faults that have not struck yet."""
        self._faults.clear()

    def cut_pulls(self) -> None:
        """End every pull that waits, as a connection that breaks does."""
        for pull in tuple(self._pulls):
            pull.cancel()

    def _handlers(self) -> Iterable[grpc.GenericRpcHandler]:
        publisher: Mapping[str, Method] = {
            "Publish": (self._publish, types.PublishRequest, types.PublishResponse),
            "CreateTopic": (self._create_topic, types.Topic, types.Topic),
            "GetTopic": (self._get_topic, types.GetTopicRequest, types.Topic),
        }
        subscriber: Mapping[str, Method] = {
            "Pull": (self._pull, types.PullRequest, types.PullResponse),
            "Acknowledge": (self._acknowledge, types.AcknowledgeRequest, Empty),
            "ModifyAckDeadline": (self._modify, types.ModifyAckDeadlineRequest, Empty),
            "CreateSubscription": (
                self._create_subscription,
                types.Subscription,
                types.Subscription,
            ),
            "DeleteSubscription": (
                self._delete_subscription,
                types.DeleteSubscriptionRequest,
                Empty,
            ),
            "GetSubscription": (
                self._get_subscription,
                types.GetSubscriptionRequest,
                types.Subscription,
            ),
        }
        for service, methods in (("Publisher", publisher), ("Subscriber", subscriber)):
            yield grpc.method_handlers_generic_handler(
                f"google.pubsub.v1.{service}",
                {name: self._handler(name, *method) for name, method in methods.items()},
            )

    def _handler(
        self, name: str, answer: Callable[[Any, Context], Awaitable[Any]], takes: Any, gives: Any
    ) -> grpc.RpcMethodHandler:
        async def handle(request: Any, context: Context) -> Any:
            self.calls[name] += 1
            fault = self._faults[name].popleft() if self._faults[name] else None
            if fault and not fault[1]:
                await context.abort(fault[0], "told to fail")
            reply = await answer(request, context)
            if fault:
                await context.abort(fault[0], "told to lose the answer")
            return reply

        serialize = Empty.SerializeToString if gives is Empty else gives.serialize
        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=takes.deserialize, response_serializer=serialize
        )

    async def _publish(self, request: types.PublishRequest, context: Context) -> Any:
        if request.topic not in self.broker.topics:
            await context.abort(grpc.StatusCode.NOT_FOUND, "Topic not found")
        if any(len(one.data) > 10_000_000 for one in request.messages):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The message is too large")
        ids = [self.broker.publish(request.topic, one) for one in request.messages]
        return types.PublishResponse(message_ids=ids)

    async def _create_topic(self, request: types.Topic, context: Context) -> Any:
        if request.name in self.broker.topics:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "Topic already exists")
        self.broker.create_topic(request.name)
        return request

    async def _get_topic(self, request: types.GetTopicRequest, context: Context) -> Any:
        if request.topic not in self.broker.topics:
            await context.abort(grpc.StatusCode.NOT_FOUND, "Topic not found")
        return types.Topic(name=request.topic)

    async def _create_subscription(self, request: types.Subscription, context: Context) -> Any:
        if request.name in self.broker.subscriptions:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "Subscription already exists")
        if request.topic not in self.broker.topics:
            await context.abort(grpc.StatusCode.NOT_FOUND, "Topic not found")
        return self.broker.create_subscription(request).settings

    async def _delete_subscription(
        self, request: types.DeleteSubscriptionRequest, context: Context
    ) -> Any:
        await self._subscription(request.subscription, context)
        del self.broker.subscriptions[request.subscription]
        return Empty()

    async def _get_subscription(
        self, request: types.GetSubscriptionRequest, context: Context
    ) -> Any:
        return (await self._subscription(request.subscription, context)).settings

    async def _subscription(self, name: str, context: Context) -> Subscription:
        found = self.broker.subscriptions.get(name)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "Subscription does not exist")
        assert found is not None  # noqa: S101 - aborting raises
        return found

    async def _pull(self, request: types.PullRequest, context: Context) -> Any:
        subscription = await self._subscription(request.subscription, context)
        subscription.pulls += 1
        wait = asyncio.ensure_future(self._filled(subscription))
        self._pulls.add(wait)
        try:
            await wait
        except TimeoutError:
            return types.PullResponse()
        except asyncio.CancelledError:
            if wait.cancelled() and not context.cancelled():
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            raise
        finally:
            self._pulls.discard(wait)
            wait.cancel()
        return types.PullResponse(
            received_messages=self.broker.pull(subscription, request.max_messages)
        )

    async def _filled(self, subscription: Subscription) -> None:
        await asyncio.wait_for(subscription.filled.wait(), self._long_poll)

    async def _acknowledge(self, request: types.AcknowledgeRequest, context: Context) -> Any:
        subscription = await self._subscription(request.subscription, context)
        lost = [one for one in request.ack_ids if not self.broker.acknowledge(subscription, one)]
        await self._tell_lost(subscription, lost, context)
        return Empty()

    async def _modify(self, request: types.ModifyAckDeadlineRequest, context: Context) -> Any:
        subscription = await self._subscription(request.subscription, context)
        seconds = request.ack_deadline_seconds
        lost = [
            one for one in request.ack_ids if not self.broker.extend(subscription, one, seconds)
        ]
        await self._tell_lost(subscription, lost, context)
        return Empty()

    async def _tell_lost(
        self, subscription: Subscription, lost: list[str], context: Context
    ) -> None:
        """Only subscriptions with exactly-once delivery say that a lease is gone."""
        if not lost or not subscription.exactly_once:
            return
        info = ErrorInfo(
            reason="EXACTLY_ONCE_ACKID_FAILURE",
            domain="pubsub.googleapis.com",
            metadata=dict.fromkeys(lost, "PERMANENT_FAILURE_INVALID_ACK_ID"),
        )
        packed = Packed()
        packed.Pack(info)
        code, message = grpc.StatusCode.INVALID_ARGUMENT, "Some acknowledgement ids are invalid"
        status = Status(code=code.value[0], message=message, details=[packed])
        await context.abort(
            code,
            message,
            (("grpc-status-details-bin", status.SerializeToString()),),
        )
