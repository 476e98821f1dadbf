"""What Redis or Valkey is used for, if there is one. It makes some things faster, and nothing right or wrong.

link.py speaks to the driver; the others speak to it: keys.py remembers idempotency keys, cache.py unfinished jobs, popping.py
wakes workers that cannot listen. opening.py puts them together.
"""
