"""The microbenchmark of collectives: times by message size on idle devices."""
