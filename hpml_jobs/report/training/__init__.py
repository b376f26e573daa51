"""Training quality: loss, accuracy, curves, shuffling, replicas."""
