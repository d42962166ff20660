"""Running what was recorded: which program a subgraph gets, and what happens when it runs.

`executor` runs cuts, `specialisation` decides between programs for exact sizes and for any,
`pieces` runs subgraphs part by part, `refusals` explains refused values to users, `compilations`
shows how a subgraph is compiled.
"""
