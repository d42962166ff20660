"""Schedules of windows that slide over a plane: depthwise convolutions and their gradients."""
