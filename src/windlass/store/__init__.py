"""PostgreSQL, the truth. `store.open_store` is the way in; `protocol` says what is offered to whom."""
