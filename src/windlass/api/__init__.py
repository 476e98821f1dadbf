"""The HTTP front door: every endpoint is a value in a table, decoded, judged and told in one way."""
