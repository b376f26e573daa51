"""Numbers of a study: cells, figures of runs, rows, groups of equal conditions, decisions."""
