"""What an epoch costs, and how far the state of the art is."""
