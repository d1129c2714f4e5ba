"""A schema that no text can fit is the client's mistake, found while the model writes."""

import pytest

from tests import patient_http

ENDLESS = {"$ref": "#"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "x"}],
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "p", "schema": ENDLESS},
                },
            },
            "response_format",
        ),
        (
            "/v1/responses",
            {
                "input": "x",
                "text": {"format": {"type": "json_schema", "name": "p", "schema": ENDLESS}},
            },
            "text.format",
        ),
    ],
)
def test_it_is_a_400_that_names_the_field(nano_url, path, body, field):
    base = nano_url.removesuffix("/").removesuffix("/v1")
    answer = patient_http.post(base + path, json={"model": "rose-nano", **body})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == field
    assert "no answer can be written under this schema" in error["message"]
