"""Fault injection: random faults in all modes, a long run with killed workers, three libraries side by side."""
