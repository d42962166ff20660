"""What can be told of a loop nest without compiling it: its accesses, and if they are right."""
