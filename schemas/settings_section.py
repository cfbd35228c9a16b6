"""What every section of the settings is."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the TOML file. Unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
