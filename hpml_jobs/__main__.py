"""Entry point of `python -m hpml_jobs` and `hpml-jobs`."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from hpml_jobs.cli.main import run  # noqa: PLC0415  (spawned loader workers import this module)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
