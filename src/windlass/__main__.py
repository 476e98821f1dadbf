"""`python -m windlass`: the command line."""

from windlass.cli import main

main()
