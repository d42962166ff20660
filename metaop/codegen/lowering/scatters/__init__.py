"""Schedules that write at indices from data: scatters, replacement of rows, sorting."""
