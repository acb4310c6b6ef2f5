"""A Gymnasium vector env whose envs live in worker processes."""
