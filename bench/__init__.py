"""Measurements of the service as its users see it: `python -m bench`."""
