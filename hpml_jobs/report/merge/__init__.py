"""Records to rows: grouping by conditions, statistics over repeats and seeds."""
