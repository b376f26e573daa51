"""Data-parallel scaling studies of PyTorch training on SLURM clusters."""

__version__ = "0.2.0"
