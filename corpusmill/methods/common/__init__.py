"""methods/common."""
