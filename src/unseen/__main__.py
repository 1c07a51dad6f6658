"""`python -m unseen`, and the command `unseen`."""

import sys


def main() -> None:
    """Runs the command line; an interruption while it is still being loaded is one line too."""
    try:
        from unseen.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
