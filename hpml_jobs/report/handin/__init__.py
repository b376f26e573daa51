"""The files to hand in beside the page."""
