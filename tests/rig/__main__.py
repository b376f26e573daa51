"""A test SLURM for use by hand: `python -m tests.rig`, until Ctrl-C."""
# ruff: noqa: T201  (a command: printing is how it answers)

import argparse
import signal
import sys
from pathlib import Path

from tests.rig import Rig, RigError, missing


def main() -> int:
    """Start it, print the line to paste into another shell, wait to be told to end."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    parser.add_argument("--folder", type=Path, help="an absent or empty folder, kept at the end")
    reason = missing()
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
