"""Networks, one readable file each; `python -m models.NAME` trains or runs one."""
