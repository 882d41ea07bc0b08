"""A declared cluster: one file says which logs, grants and settings a cluster has, `logctl diff`
what is different, `logctl apply` makes it so, and `logctl export` writes the file.

Start reading at declaration.py, which is the file; plan.py is the difference, applying.py carries
it out.
"""
