"""Storage: one file interface with three engines (io_uring, worker threads, simulated)."""
