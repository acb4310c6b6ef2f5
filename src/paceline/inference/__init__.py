"""Central inference: the driver runs the policy for all workers."""
