"""A real SLURM with three fake GPU nodes on one Debian machine, for the tests."""

from tests.rig.slurm import Rig, RigError, missing

__all__ = ["Rig", "RigError", "missing"]
