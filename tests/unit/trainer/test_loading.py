"""Rows of `headrace export` in the libraries that they are for, where these are installed beside
torch."""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pyarrow.parquet
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from infra.training_files import write_training_file

_TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} </> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


class Store:
    """A store that holds one conversation with a call of a tool."""

    def lines(self, _sql: str, _format_name: str) -> Iterator[str]:
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        asked = [{"role": "user", "content": "where is it"}]
        yield self._step(
            "s-1", None, asked, {"role": "assistant", "content": "", "tool_calls": [call]}
        )
        told = [{"role": "tool", "tool_call_id": "c", "content": "on its way"}]
        yield self._step("s-2", "s-1", told, {"role": "assistant", "content": "on its way"})

    def _step(self, name: str, parent: str | None, new: list[Any], answer: Any) -> str:
        return json.dumps({
            "tenant_id": "acme", "trajectory_id": "t", "step_id": name, "parent_step_id": parent,
            "task_key": "k", "reward": 1.0, "new_messages": [json.dumps(m) for m in new],
            "output": [json.dumps(answer)],
        })  # fmt: skip


def rows(file_format: Any) -> list[dict[str, Any]]:
    file = BytesIO()
    write_training_file(Store(), "true", file_format, 0.5, file, lambda _: None)  # type: ignore[arg-type]
    found: list[dict[str, Any]] = pyarrow.parquet.read_table(BytesIO(file.getvalue())).to_pylist()
    return found


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordLevel({"<u>": 0}, unk_token="<u>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<u>", eos_token="<u>")
    loaded.chat_template = _TEMPLATE
    return loaded


def test_trl_takes_the_rows_for_what_they_are() -> None:
    data_utils = pytest.importorskip(
        "trl.data_utils", reason="trl is not installed beside torch", exc_type=ImportError
    )
    [row] = rows("trl")
    assert data_utils.is_conversational(row)
    text = data_utils.apply_chat_template(
        {"prompt": row["prompt"], "completion": row["completion"], "label": row["label"]},
        tokenizer(),
    )
    assert text["prompt"] == "<user> where is it </> <assistant> "
    assert text["completion"].endswith("<tool> on its way </> <assistant> on its way </> ")
    assert text["label"] is True


def test_verl_reads_the_file_as_its_own_data_set(tmp_path: Any) -> None:
    data_set = pytest.importorskip(
        "verl.utils.dataset.rl_dataset", reason="verl is not installed beside torch",
        exc_type=ImportError,
    )  # fmt: skip
    omegaconf = pytest.importorskip("omegaconf", reason="verl needs omegaconf")
    path = tmp_path / "rows.parquet"
    with path.open("wb") as file:
        write_training_file(Store(), "true", "verl", 0.5, file, lambda _: None)  # type: ignore[arg-type]
    config = omegaconf.OmegaConf.create({"cache_dir": str(tmp_path), "prompt_key": "prompt"})
    loaded = data_set.RLHFDataset(str(path), tokenizer(), config)
    assert len(loaded) == 1
    assert loaded[0]["data_source"] == "headrace"
