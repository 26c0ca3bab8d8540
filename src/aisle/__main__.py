"""`python -m aisle`: the same as the `aisle` command."""

from aisle.cli import main

main()
