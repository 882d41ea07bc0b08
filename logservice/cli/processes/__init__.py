"""`logservice store` and `logservice cluster`: one store process, and a local cluster of them.

Start with `local_cluster.py`; `store_process.py` starts and stops one store. Tests, stories and
benchmarks import both.
"""
