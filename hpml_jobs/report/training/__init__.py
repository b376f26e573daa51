"""Training quality: loss, accuracy, curves."""
