"""Operating-system settings: CPU affinity, threads, malloc, timers, memory fences, file descriptors."""
