"""Entry point of `python -m hpml_jobs` and `hpml-jobs`."""

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from hpml_jobs.cli.main import run  # noqa: PLC0415  (spawned loader workers import this module)

    code = run(sys.argv[1:])
    gc.freeze()  # else the interpreter visits every object once more before it ends
    sys.exit(code)


if __name__ == "__main__":
    main()
