"""The settings for people and for other programs: what is in force, and what is allowed."""

from __future__ import annotations

import yaml
from pydantic import BaseModel

from driver.config.load import variable


def dump(settings: BaseModel) -> str:
    """A file that, given as `--config`, sets exactly the same."""
    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)
    return text


def schema(model: type[BaseModel]) -> dict[str, object]:
    """JSON schema of the file; each property names its environment variable."""
    document: dict[str, object] = model.model_json_schema()
    properties = document["properties"]
    if isinstance(properties, dict):
        for key, value in properties.items():
            value["x-environment"] = variable(key)
    return document
