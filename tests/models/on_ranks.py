"""`python -m models`, with the options that are given."""

from models.__main__ import main

main()
