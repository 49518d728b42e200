"""Registered queries over HTTP: register, invoke, list, unregister and follow, with tokens and quotas.

FastAPI, Starlette, uvicorn and pydantic are imported only here. May import all that `psoup` may, and `psoup`; `cli`
starts it.
"""
