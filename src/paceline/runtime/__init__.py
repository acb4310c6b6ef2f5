"""Runtimes: execute calls in this process, in worker processes, or on the nodes of a Ray cluster."""
