"""The page writes a search as curl, Python and TypeScript: exactly the request, without a key."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.explorer import Explorer, expect

if TYPE_CHECKING:
    from tests.browser.conftest import Served

pytestmark = pytest.mark.browser

KEY = "hrag_secret-of-this-test"
QUERY = 'the gasket\'s "torque" \\ $HOME `id` 😀 \\u0041 %s'
# The call of the program is sent to the page, which compares it with its own.
_SENT = """async (source) => {
  let sent;
  const fetch = async (url, options) => {
    sent = { url, body: JSON.parse(options.body), headers: options.headers };
    return { ok: true, json: async () => ({}) };
  };
  const process = { env: { HRAG_TOKEN: "from the environment" } };
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction("fetch", "process", source)(fetch, process);
  return sent;
}"""


@pytest.fixture
def sent(explorer: Explorer) -> dict[str, Any]:
    """The request of a search with a filter, and with characters that languages quote."""
    fields = {"mode": "CONTEXT", "rerank": "false", "cutLast": "true", "tokenBudget": "50"}
    explorer.show(filter="team~is~a'b~~year~present", **fields)
    with explorer.page.expect_request("**/Search") as waited:
        explorer.search(QUERY)
    explorer.page.get_by_text("This search as code").click()
    request: dict[str, Any] = waited.value.post_data_json
    assert request["text"] == QUERY
    assert request["rerank"] is False
    return request


def code(explorer: Explorer, language: str) -> str:
    explorer.page.get_by_label("Language of the code").select_option(language)
    return explorer.page.locator(".code-block").text_content() or ""


def test_curl_sends_the_same_search(
    explorer: Explorer, served: Served, sent: dict[str, Any]
) -> None:
    program = code(explorer, "curl")
    body = subprocess.run(
        ["bash", "-c", f'curl() {{ printf %s "${{@: -1}}"; }}\n{program}'],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(body.stdout) == sent
    assert f"'{served.gateway.url}/hrag.v1.RetrieverService/Search'" in program


def test_python_sends_the_same_search(explorer: Explorer, sent: dict[str, Any]) -> None:
    program = code(explorer, "Python")
    shows = "lambda request: print(request.data.decode()) or exit()"
    probe = f"import urllib.request\nurllib.request.urlopen = {shows}\n"
    output = subprocess.run(
        [sys.executable, "-c", probe + program], check=True, capture_output=True, text=True
    )
    assert json.loads(output.stdout) == sent
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert found.stderr == ""


def test_every_value_of_json_is_a_value_of_python(explorer: Explorer) -> None:
    """A text may be a word of Python or the name of a property of every JavaScript object."""
    words = ["null", "true", "false", "None", "undefined", "NaN", "constructor", "toString"]
    words += ["__proto__", "", "0", "\u2028", "\0", "{x}", '"""', QUERY]
    values = [None, True, False, 0, -1.5, 1e300, 2**53, [], {}, [[]], words]
    request = {"values": values, **{f"k{word}": word for word in words}, "constructor": "a"}
    explorer.page.goto(explorer.url)
    program = explorer.page.evaluate(
        """async (text) => {
          const { LANGUAGES } = await import("./request_code.js");
          return LANGUAGES.Python("http://localhost/", JSON.parse(text), false);
        }""",
        json.dumps(request),
    )
    literal = program.partition("search = ")[2].partition("\nheaders = ")[0]
    assert ast.literal_eval(literal) == request


def test_typescript_sends_the_same_search(
    explorer: Explorer, served: Served, sent: dict[str, Any]
) -> None:
    program = code(explorer, "TypeScript")
    script = re.sub(r"const found: .* = await", "const found = await", program)
    assert script != program
    call = explorer.page.evaluate(_SENT, script)
    assert call["body"] == sent
    assert call["url"] == f"{served.gateway.url}/hrag.v1.RetrieverService/Search"


def test_a_key_is_never_part_of_the_code(explorer: Explorer) -> None:
    explorer.show(q="gasket")
    page = explorer.page
    explorer.use_key(KEY)
    expect(explorer.search("gasket").first).to_be_visible()
    page.get_by_text("This search as code").click()
    for language, place in (
        ("curl", "Bearer $HRAG_TOKEN"),
        ("Python", "os.environ['HRAG_TOKEN']"),
        ("TypeScript", "process.env.HRAG_TOKEN"),
    ):
        program = code(explorer, language)
        assert place in program
        assert KEY not in program
    environment = {**os.environ, "HRAG_TOKEN": "any"}
    found = subprocess.run(
        [sys.executable, "-c", code(explorer, "Python")],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert "gasket" in found.stdout


def test_the_code_can_be_copied(explorer: Explorer) -> None:
    explorer.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    explorer.show(q="gasket")
    explorer.page.get_by_text("This search as code").click()
    program = code(explorer, "Python")
    explorer.page.get_by_role("button", name="Copy", exact=True).click()
    expect(explorer.page.get_by_role("status")).to_have_text("The code was copied.")
    assert explorer.page.evaluate("navigator.clipboard.readText()") == program
