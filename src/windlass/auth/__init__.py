"""Who calls, and what he may: scopes, tokens, keys and passwords as values, judged without a database."""
