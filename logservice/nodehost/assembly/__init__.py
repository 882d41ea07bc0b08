"""The parts of a store, put together: for the process, the simulator and the tests alike."""
