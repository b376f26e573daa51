"""From the command line to checked cells. Hydra is used here only."""
