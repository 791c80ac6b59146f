"""What each op does: one file per dialect. Adding an op is adding a decorated function."""
