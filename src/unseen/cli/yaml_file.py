"""A YAML file of options: one key an option, as in `seed: 1`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from unseen.errors import ConfigError, short

_LARGEST = 1_000_000
_MAPPINGS = ("gate", "column", "synonyms")
"""Options that may stand as `name: value` lines of their own."""
_EXAMPLE = "write one option a line, for example  model: ./my-model"


class YamlFile:
    """Reads options from a file.

    Args:
        path: the file.
        must_exist: false for the file that is read unasked.
    """

    def __init__(self, path: Path, *, must_exist: bool) -> None:
        self.path = path
        self.must_exist = must_exist

    def options(self) -> dict[str, Any]:
        """Option -> a value, a list of values, or None where nothing is written.

        Raises:
            ConfigError: where the file cannot be read, or holds something else than options.
        """
        text = self._text()
        content = {} if text is None else self._content(text)
        if content is None:
            return {}
        if not isinstance(content, dict):
            kind = "a list" if isinstance(content, list) else "a single value"
            raise self._fault(f"holds {kind}, expected options", _EXAMPLE)
        found: dict[str, Any] = {}
        for key, value in content.items():
            name = self._key(key)
            if name in found:
                raise self._fault(f"{short(name)} stands twice", "write it once")
            found[name] = self._value(name, value)
        return found

    def _text(self) -> str | None:
        quoted = shlex.quote(str(self.path))
        try:
            if self.path.is_dir():
                raise self._fault("is a folder, expected a file", f"name a file in it: ls {quoted}")
            with self.path.open("rb") as stream:
                raw = stream.read(_LARGEST + 1)
        except FileNotFoundError as error:
            if not self.must_exist:
                return None
            raise ConfigError(
                f"there is no configuration file {self.path}", fix=f"check the path: ls {quoted}"
            ) from error
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "the name is no path"
            raise self._fault(
                f"cannot be read: {why}", f"check the path and your rights: ls -l {quoted}"
            ) from error
        if len(raw) > _LARGEST:
            raise self._fault("is too large for a file of options", "did you mean --members?")
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise self._fault(
                "is no valid UTF-8",
                f"iconv -f WINDOWS-1252 -t UTF-8 {quoted} > utf8.yaml",
                line,
            ) from error

    def _content(self, text: str) -> Any:
        import yaml

        try:
            return yaml.load(text, Loader=_loader())  # noqa: S506 (a SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._fault(
                f"is no YAML that can be used: {error.problem or error.context}",
                _EXAMPLE,
                None if mark is None else mark.line + 1,
            ) from error
        except yaml.YAMLError as error:
            raise self._fault("is no YAML: it holds control characters", _EXAMPLE) from error
        except (ValueError, RecursionError) as error:
            raise self._fault(
                "is no YAML that can be used: nested too deep, or a number too long", _EXAMPLE
            ) from error

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise self._fault(f"has the key {short(str(key))}, which is no option", _EXAMPLE)
        return key.replace("-", "_")

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict) and key in _MAPPINGS:
            value = [f"{name}={_in_a_line(one)}" for name, one in value.items()]
        if isinstance(value, dict):
            raise self._fault(
                f"{short(key)} holds further keys; every option stands at the top, not under a command",
                _EXAMPLE,
            )
        if isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
            raise self._fault(
                f"{short(key)} holds a list in a list, or an object in one",
                f"write {short(key)}: [one, two]",
            )
        if isinstance(value, list) and None in value:
            raise self._fault(
                f"{short(key)} has an item that is empty", f"write {short(key)}: [one, two]"
            )
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, str | bool | int | float | None):
                raise self._fault(
                    f"{short(key)} has a value of kind {type(one).__name__}", f"write {key}: value"
                )
        return value

    def _fault(self, problem: str, fix: str, line: int | None = None) -> ConfigError:
        place = f"{self.path}" if line is None else f"{self.path} line {line}"
        return ConfigError(f"{place}: {problem}", fix=fix)


def _in_a_line(value: Any) -> Any:
    """Several words for one name as an option has them."""
    return "|".join(map(str, value)) if isinstance(value, list) else value


def _loader() -> Any:
    """YAML's safe loader; dates stay text, and no key stands twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                    if key.value in seen:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"the key {short(key.value)} stands twice", key.start_mark
                        )
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if not tag.endswith(":timestamp")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader
