"""What this process uses of the machine: memory, file descriptors, threads, and the time of Python's collector."""
