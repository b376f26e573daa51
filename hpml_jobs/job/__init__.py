"""The wrapper on the node: start the workers, judge the attempt, publish the record."""
