"""Windlass: a distributed, fault-tolerant job scheduler on PostgreSQL that knows threads."""
