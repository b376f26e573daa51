"""`hpml-jobs import`: a study from a CSV of timings measured elsewhere."""
