"""Quotas of tenants, counted in Redis so that they hold for all replicas together.

What must hold, and where it is kept:

* `concurrency`: a tenant never has more slots whose life has not ended than its limit, by Redis'
  clock (`quota_slots.lua`). Each slot ends by itself; its holder renews it every third of its life
  and cuts the work off before it can have ended (`slots.py`).
* `rate-limit`: no interval as long as the window holds more starts than the limit. Kept is the
  log of the starts of the last window, the exact form of a sliding window (`quota_starts.lua`).
  A request is charged once, whatever is retried, until it is settled (`starts.py`).
* An answer that is lost costs nothing but time: a slot or a charge has a name, and asking for it
  again takes no second one.
* While Redis cannot be read nothing passes (`ledger.py`).
"""
