"""What training learns: Table 4, loss by iteration, counted iterations."""
