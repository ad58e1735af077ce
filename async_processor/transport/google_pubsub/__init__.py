"""Google Pub/Sub as a transport.

What it can promise, and how:

* A claim is Pub/Sub's own lease, renewed by us. An outcome is written only while the lease stands:
  by our own clock, from when the call was sent that got it (a frozen process reads answers late),
  and towards its end the service is asked, which with exactly-once delivery also knows whether
  somebody else has the message. One that it takes back early is not noticed before.
* A result is published and confirmed before its message is acknowledged. Two steps: a process
  that dies between them leaves a second result behind, and so does an acknowledgement that cannot
  be delivered while the lease lasts, or a publish whose confirmation is lost.
* A refusal is an outage: what must stand is tried until it does, and only what Pub/Sub could never
  take is given up.
* Everything is correlated by the delivery's ack id: two deliveries of one message never settle
  each other.
* What has to be stored anew (a retry, with its count and its due time) is published again to the
  subscription's own topic, marked for this subscription, and only then acknowledged. A copy that
  is not due yet is put off by its lease.
* Giving back costs a delivery attempt of the subscription's dead-letter policy. The first such
  attempt of a message is forgiven, and what would need a second one is published again instead,
  so that the policy counts lost leases alone.
"""

from async_processor.transport.google_pubsub.transport import GooglePubSub

__all__ = ["GooglePubSub"]
