"""The rows of the bench: what `make bench` measures, one idea a file, and what each must reach.

``row`` says what a row is, ``catalogue`` lists them in the order of the report, ``ours`` is our own
cluster as one side of a row. A row's file says how it is measured and what it reads back.
"""
