"""What errata.yaml declares, read strictly into the model; `errata apply`; the open project (`Site`).

May import intake, engine, catalog, language and model.
"""
