"""Garbage collection: which segments can go, and the pass that frees them."""
