"""`python -m unseen`."""

from unseen.cli.main import main

main()
