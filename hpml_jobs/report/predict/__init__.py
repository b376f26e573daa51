"""What was not measured: predictions of a group."""
