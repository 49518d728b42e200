"""Airflow's REST API: a request, its answer, and what is wrong in words."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from errata.errors import ErrataError

_REFUSED = (401, 403)


class NotAnswering(ErrataError):
    """Nobody answers, or somebody who cannot for the moment."""


def request(url: str, method: str, body: object = None, token: str | None = None) -> Any:
    """What is answered, None where that is nothing."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  always our own http://127.0.0.1
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise _refusal(error, f"{method} {url}", token) from error
    except OSError as error:
        raise NotAnswering(
            "Airflow's API server does not answer", where=f"{method} {url}", why=str(error), how="see its log"
        ) from error
    return json.loads(text) if text else None


def _refusal(error: urllib.error.HTTPError, asked: str, token: str | None) -> ErrataError:
    said = error.read().decode(errors="replace")
    if error.code >= 500:
        return NotAnswering(
            f"Airflow's API server answered with {error.code}", where=asked, why=said, how="see its log"
        )
    if error.code not in _REFUSED:
        return ErrataError(f"Airflow's API server answered with {error.code}", where=asked, why=said)
    if token is None:
        what = "the user or the password is wrong"
        how = "`make airflow` prints both, and keeps them in passwords.json"
    else:
        what = "the token is not valid or has expired, or its user may not do this"
        how = "POST /auth/token with user and password gives a new token"
    return ErrataError(what, where=asked, why=f"{error.code}: {said}", how=how)
