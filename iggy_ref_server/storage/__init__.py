"""Files: one interface, three engines (io_uring, worker threads, memory)."""
