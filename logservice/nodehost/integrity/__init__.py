"""Finding and mending what no checksum or no single store shows."""
