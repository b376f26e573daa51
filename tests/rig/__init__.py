"""A real SLURM with three fake GPU nodes on one Debian machine, for the tests."""

from tests.rig.configuration import Accounting
from tests.rig.slurm import Rig, RigError, missing_requirement

__all__ = ["Accounting", "Rig", "RigError", "missing_requirement"]
