"""Reads run folders: results of runs, their comparison as table, page and report, and plots of learning curves."""
