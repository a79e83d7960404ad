"""The contract of every record: a frozen, hashable value that can be stored and sent to another process."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from cupilot.errors import DataError
from cupilot.records import from_plain, to_plain


class RecordContract:
    """Offer a fixture ``record``: an instance with as many fields as possible set."""

    def test_is_a_frozen_dataclass(self, record: Any) -> None:
        assert is_dataclass(record)
        name = fields(record)[0].name
        with pytest.raises(FrozenInstanceError):
            setattr(record, name, getattr(record, name))

    def test_is_hashable_by_value(self, record: Any) -> None:
        copy = from_plain(type(record), to_plain(record))
        assert hash(copy) == hash(record)
        assert len({copy, record}) == 1

    def test_survives_json(self, record: Any) -> None:
        text = json.dumps(to_plain(record))
        copy = from_plain(type(record), json.loads(text))
        assert copy == record
        assert json.dumps(to_plain(copy)) == text

    def test_survives_pickle(self, record: Any) -> None:
        assert pickle.loads(pickle.dumps(record)) == record

    def test_refuses_an_unknown_key(self, record: Any) -> None:
        with pytest.raises(DataError, match="no_such_key"):
            from_plain(type(record), {**to_plain(record), "no_such_key": 1})
