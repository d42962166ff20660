"""Schedules that write where the data tell: scatters, tables with new rows, sorting."""
