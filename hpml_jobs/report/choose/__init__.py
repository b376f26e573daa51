"""Which cell to ask for."""
