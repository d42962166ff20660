"""Schedules of contractions: packed panels, shared memory of a GPU, thin ones read in place."""
