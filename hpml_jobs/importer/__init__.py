"""`hpml-jobs import`: a study from a CSV file of timings from another program."""
