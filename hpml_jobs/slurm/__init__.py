"""SLURM's vocabulary: states, jobs, pending reasons, nodes, environment, commands."""
