"""A script of the user, measured from outside, in its own processes."""
