"""What this process takes of the machine: memory, file descriptors, threads, and the time of Python's own collector."""
