"""Checks of the setup: on the login node, and by a short diagnostic job on a node."""
