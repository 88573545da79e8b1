"""Hyperparameters."""

import json
import re
from typing import Any

from millrace.core.export import export

_ASSIGNMENT = re.compile(r"\s*([a-zA-Z]\w*)(?:\[(\d+)\])?\s*=\s*(\[[^\]]*\]|[^,\[]*)\s*(?:,|$)")


def _parsed(name: str, kind: type, text: str) -> Any:
    text = text.strip()
    try:
        if kind is bool:
            if text in ("true", "True", "1"):
                return True
            if text in ("false", "False", "0"):
                return False
            raise ValueError(text)
        return kind(text)
    except ValueError:
        raise ValueError(
            f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}'"
        ) from None


@export(v1="contrib.training.parse_values")
def parse_values(values: str, type_map: dict[str, type]) -> dict[str, Any]:
    """{name: value} of "name=value,name=[value,value]"; the types are those of `type_map`.

    `name[2]=value` gives {name: {2: value}}. ValueError for what is not so, or names not known.
    """
    result: dict[str, Any] = {}
    at = 0
    while at < len(values):
        match = _ASSIGNMENT.match(values, at)
        if match is None:
            raise ValueError(f"Malformed hyperparameter value: {values[at:]}")
        at = match.end()
        name, index, text = match.groups()
        if name not in type_map:
            raise ValueError(f"Unknown hyperparameter: {name}")
        kind = type_map[name]
        if index is not None:
            result.setdefault(name, {})[int(index)] = _parsed(name, kind, text)
        elif name in result:
            raise ValueError(f"Multiple assignments to variable '{name}' in {values}")
        elif text.startswith("["):
            parts = [part for part in text[1:-1].split(",") if part.strip()]
            result[name] = [_parsed(name, kind, part) for part in parts]
        else:
            result[name] = _parsed(name, kind, text)
    return result


@export(v1="contrib.training.HParams")
class HParams:
    """Hyperparameters as attributes: `HParams(learning_rate=0.1, units=[10, 20])`.

    ValueError for names that are taken, and for values of another type than the first.
    """

    _hparam_types: dict[str, tuple[type, bool]]

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any):
        if hparam_def is not None:
            raise ValueError("HParams are made of keyword arguments, not of a HParamDef")
        object.__setattr__(self, "_hparam_types", {})
        object.__setattr__(self, "_model_structure", model_structure)
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter. ValueError for a name that is there, or an empty list."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        if isinstance(value, (list, tuple)):
            if not value:
                raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
            self._hparam_types[name] = (type(value[0]), True)
        else:
            self._hparam_types[name] = (type(value), False)
        object.__setattr__(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Gives a hyperparameter another value of its type. KeyError for one that is not there."""
        if name not in self._hparam_types:
            raise KeyError(f"Hyperparameter {name!r} is not there: {sorted(self._hparam_types)}")
        kind, is_list = self._hparam_types[name]
        if isinstance(value, (list, tuple)):
            if not is_list:
                raise ValueError(f"Must not pass a list for single-valued parameter: {name}")
            value = [self._cast(name, kind, v) for v in value]
        elif is_list:
            raise ValueError(f"Must pass a list for multi-valued parameter: {name}.")
        else:
            value = self._cast(name, kind, value)
        object.__setattr__(self, name, value)

    @staticmethod
    def _cast(name: str, kind: type, value: Any) -> Any:
        if kind is type(None) or (
            isinstance(value, kind) and (kind is bool) == (isinstance(value, bool))
        ):
            return value
        if value is None:
            return None
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind is float and number:
            return float(value)
        if kind is int and number and int(value) == value and not isinstance(value, float):
            return int(value)
        raise ValueError(
            f"Could not cast hparam '{name}' of type '{kind.__name__}' from value {value!r}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._hparam_types:
            self.set_hparam(name, value)
        else:
            object.__setattr__(self, name, value)

    def del_hparam(self, name: str) -> None:
        """Takes a hyperparameter away."""
        if name in self._hparam_types:
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> "HParams":
        """Sets hyperparameters from "name=value,name=[value,value]"."""
        types = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, types))

    def override_from_dict(self, values_dict: dict[str, Any]) -> "HParams":
        """Sets hyperparameters from a dict. KeyError for names that are not there."""
        for name, value in values_dict.items():
            if isinstance(value, dict):
                current = list(getattr(self, name))
                for index, element in value.items():
                    current[index] = element
                value = current
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json: str) -> "HParams":
        """Sets hyperparameters from a JSON object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """The hyperparameters as a JSON object."""
        values = {n: v for n, v in self.values().items() if not callable(v)}
        return json.dumps(values, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """{name: value}."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or `default` where it is not there."""
        return getattr(self, key) if key in self._hparam_types else default

    def get_model_structure(self) -> Any:
        """What was given as the structure of the model."""
        return self._model_structure

    def set_model_structure(self, model_structure: Any) -> None:
        """Keeps a structure of the model."""
        object.__setattr__(self, "_model_structure", model_structure)

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({', '.join(f'{n}={v!r}' for n, v in sorted(self.values().items()))})"
