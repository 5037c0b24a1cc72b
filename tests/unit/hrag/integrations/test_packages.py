"""The import of an integration without its framework fails and names the extra to install."""

import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("haystack", "haystack", "haystack"),
    ],
)
def test_a_missing_framework_is_reported_with_its_extra(monkeypatch, module, package, extra):
    submodules = [name for name in sys.modules if name.startswith(f"{package}.")]
    for name in submodules:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"hrag.integrations.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"{package}.*pip install '\.\[{extra}\]'"):
        import_module(f"hrag.integrations.{module}")
