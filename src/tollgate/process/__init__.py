"""Resources of this process: memory, file descriptors, threads, and Python's garbage collector."""
