"""The settings of the gateway are parsed, and invalid values are refused by name."""

import pytest

from hrag.config import GatewaySettings, SettingsError, load


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("HRAG_HTTP_ADDRESS", "nowhere", "must be host:port"),
        ("HRAG_HTTP_HOSTS", "a.org:80", "must be host names without port"),
        ("HRAG_HTTP_HOSTS", "a.org,,b.org", "must be host names without port"),
        ("HRAG_HTTP_ORIGINS", "*", "must be origins such as https://example.org"),
        ("HRAG_HTTP_ORIGINS", "https://a.org/", "must be origins such as https://example.org"),
        ("HRAG_HTTP_MAX_BUFFERED_BYTES", "1", "greater than or equal to 1048576"),
    ],
)
def test_invalid_settings_of_the_gateway_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable} is .*{problem}"):
        load(GatewaySettings)


def test_lists_of_the_gateway_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HRAG_HTTP_HOSTS", "A.org, [::1]")
    monkeypatch.setenv("HRAG_HTTP_ORIGINS", "https://a.org,http://localhost:3000")
    settings = load(GatewaySettings)
    assert settings.hosts == ("a.org", "[::1]")
    assert settings.origins == ("https://a.org", "http://localhost:3000")
