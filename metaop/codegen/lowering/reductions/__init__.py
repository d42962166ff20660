"""Schedules of maps and reductions: along rows, along outer axes, scans and small windows."""
