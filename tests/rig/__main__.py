"""A test SLURM for use by hand: `python -m tests.rig`, until Ctrl-C."""
# ruff: noqa: T201  (a command: it answers by printing)

import argparse
import signal
import sys
from pathlib import Path

from tests.rig import Rig, RigError, missing_requirement


def main() -> int:
    """Start a rig, print the line to paste into another shell, wait for a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="a new or empty folder, kept at the end"
    )
    reason = missing_requirement()
    folder = parser.parse_args().folder
    if reason:
        print(reason, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Rig(folder) as rig:
            print(f"export SLURM_CONF={rig.env['SLURM_CONF']}", flush=True)
            signal.pause()
    except RigError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
