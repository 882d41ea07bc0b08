"""Exported snapshots, and installing them behind what clients truncated."""
