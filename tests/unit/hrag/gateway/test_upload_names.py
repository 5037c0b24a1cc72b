"""The explorer knows the same file extensions as the command line."""

import re
from pathlib import Path

from hrag import gateway
from hrag.values.formats import EXTENSIONS

MODULE = Path(gateway.__file__).parent / "explorer" / "upload_names.js"


def test_the_explorer_lists_the_extensions_of_all_formats() -> None:
    constant = MODULE.read_text("utf-8").partition("new Set(")[2].partition(".split")[0]
    listed = " ".join(re.findall('"(.*)"', constant)).split()
    assert sorted(listed) == sorted(extension.removeprefix(".") for extension in EXTENSIONS)
