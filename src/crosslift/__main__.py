"""`python -m crosslift` is the command line."""

from crosslift.cli import main

main()
