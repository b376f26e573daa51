"""Data-parallel scaling studies of PyTorch training on SLURM clusters."""

__version__ = "0.9.0"
