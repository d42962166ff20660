"""Serves exported programs over HTTP: `metaop serve model.mo`; see docs/serving.md.

A request goes through these files:

    application   the endpoints of the protocol
    protocol      converts the body to arrays of the types and shapes that the program takes
    scheduler     waits a bounded time for requests to batch it with
    model         joins rows, runs the program, and splits the results
    rows          proves from the graph which axis holds independent rows
    protocol      arrays to the body of the response

A decoder generates texts step by step: `generation` schedules them, `decoder` computes a step.

`repository` holds models and versions, `server` starts and stops everything.
"""
