"""Serves exported programs over HTTP: `metaop serve model.mo`; see docs/serving.md.

A request goes through these files:

    application   the addresses of the protocol
    protocol      the body to arrays of the types and shapes that the program takes
    scheduler     waits for others that it can be computed with, at most for a given time
    model         joins rows, runs the program, and parts the results again
    rows          shows from the graph which axis holds independent rows
    protocol      arrays to the body of the answer

A decoder writes texts step by step: `generation` says which, `decoder` computes a step of them.

`repository` keeps models and versions, `server` starts and ends all of it.
"""
