"""Reload: a store that runs takes up another configuration, as far as that is safe.

Start reading at effects.py, which says for each setting what a reload does to it. reloads.py reads
the file, compares and tells; `server.takers` hands what is new to the parts.
"""
