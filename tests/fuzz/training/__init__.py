"""Random training programs, run with metaop and with PyTorch: `python -m tests.fuzz.training`."""
