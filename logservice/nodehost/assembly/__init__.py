"""The parts of a store, put together for the process, the simulator and the tests alike.

Start at `store_parts.py`: it opens every data directory (`store_directory.py`), builds the NodeHost
over them, and then what runs beside it. Nothing else of nodehost may import it; the server, the
simulator, benchmarks and tests do.
"""
