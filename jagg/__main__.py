"""`python -m jagg` is the `jagg` command."""

from jagg.cli.main import main

main()
