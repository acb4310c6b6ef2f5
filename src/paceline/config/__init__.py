"""The configuration of a run: settings of each algorithm, sections, YAML and flags. Does not import torch."""
