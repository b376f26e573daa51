"""Tables Q1, 1, 2 and 3 of the lab, measured and by residual."""
