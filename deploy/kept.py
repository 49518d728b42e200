"""What must not be guessed: made once, kept in the folder for its owner alone, and never said on a command line."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Secrets:
    """All that this Airflow, its database and its Spark Connect server keep to themselves."""

    database: str
    fernet_key: str
    api_key: str
    jwt: str
    spark: str


def kept_secrets(folder: Path) -> Secrets:
    """The folder's secrets; made when there are none."""
    kept = folder / "secrets.json"
    if kept.exists():
        return Secrets(**json.loads(kept.read_text()))
    made = Secrets(
        database=secrets.token_urlsafe(24),
        fernet_key=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        api_key=secrets.token_urlsafe(32),
        jwt=secrets.token_urlsafe(64),
        spark=secrets.token_urlsafe(32),
    )
    write_privately(kept, json.dumps(asdict(made)))
    return made


def kept_password(file: Path, user: str) -> str:
    """The user's password in the file that Airflow's simple auth manager reads; made when there is none."""
    if file.exists():
        passwords: dict[str, str] = json.loads(file.read_text())
        if user in passwords:
            return passwords[user]
    password = secrets.token_urlsafe(12)
    write_privately(file, json.dumps({user: password}))
    return password


def write_privately(file: Path, text: str) -> None:
    """Write a file that nobody else may read, at no moment."""
    writing = file.with_name(f".{file.name}.tmp")
    writing.unlink(missing_ok=True)
    with os.fdopen(os.open(writing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    writing.replace(file)


if __name__ == "__main__":  # in containers: python -m deploy.kept FILE USER
    kept_password(Path(sys.argv[1]), sys.argv[2])
