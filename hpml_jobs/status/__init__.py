"""One state per cell from the manifest, squeue, sacct and records."""
