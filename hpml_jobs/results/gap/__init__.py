"""The gap to the ideal speedup: what each cause takes of it."""
