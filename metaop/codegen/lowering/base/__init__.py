"""What schedules of all families share: values of nodes, loop plans, blocks, tasks and checks."""
