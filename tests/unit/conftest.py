"""Property tests draw the same examples every time: a red build can be repeated, a green one stays green."""

from hypothesis import settings

settings.register_profile("windlass", derandomize=True, deadline=None, database=None, max_examples=150)
settings.load_profile("windlass")
