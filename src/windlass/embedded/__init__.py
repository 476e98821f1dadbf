"""Real PostgreSQL and Valkey as child processes that never outlive their owner: `postgres.py` and `valkey.py`."""
