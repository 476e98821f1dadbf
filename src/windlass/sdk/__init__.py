"""How programs submit jobs and wait for what became of them."""
