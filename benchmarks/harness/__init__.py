"""What the suites share: how to measure in alternating windows, describe the machine, and store results."""
