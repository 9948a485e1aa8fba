"""Base of every section of the configuration."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section: frozen, strict about names, and no number is infinite or NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
