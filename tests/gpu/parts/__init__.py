"""The parts: each module measures its figures with `measure(bench)`."""
