"""`python -m hpml_jobs` and `hpml-jobs`: the front door."""

import sys


def main() -> None:
    """Run what the command line asks for and exit with its code."""
    from hpml_jobs.cli.main import run  # noqa: PLC0415  (a worker that is spawned imports this module)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
