"""Faults of every kind under load, and the arithmetic that says whether anything was lost.

A *trial* submits requests to daemons whose broker, network, clocks and inference servers are made
to fail by a *plan*, which follows from a seed. The *ledger* keeps every execution and every
incident; the *verdict* is arithmetic:

* as many results as requests, no id twice, none missing;
* of two executions of one request the first was refused, or a blow (a death, a cut, an outage)
  struck it where and while it ran; no blow counts twice for one request;
* no daemon ended by itself, and nothing but results is left in Redis.

`python -m async_processor.testing.chaos --help` runs the long campaign.
"""
