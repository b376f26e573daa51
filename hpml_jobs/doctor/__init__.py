"""Can this machine send studies: what is asked here, and by a short job on a node."""
