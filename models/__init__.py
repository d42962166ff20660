"""Networks, one readable file each: `python -m models list`, `python -m models NAME train`."""
