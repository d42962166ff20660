"""Small complete trainings, each as one would write it for either framework.

A module has `main(steps, compiled)`: it makes its data, trains for so many steps what `compiled`
makes of its function, and returns the losses. Everything else, as evaluations, is part of the work.
"""
