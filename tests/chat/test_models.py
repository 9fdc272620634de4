import pytest
from raw_server import response

from kt_tui.chat import ChatError, Endpoint, resolve_model, served_models


async def test_a_wanted_model_that_is_served_is_taken(server):
    server.models("a", "b")
    choice = await resolve_model(Endpoint(server.url, None, "b"))
    assert (choice.endpoint.model, choice.notice) == ("b", "")


async def test_a_model_that_is_no_longer_served_gives_a_notice_and_the_choice(server):
    server.models("new-name")
    choice = await resolve_model(Endpoint(server.url, None, "old-name"))
    assert choice.endpoint.model == "new-name"
    assert choice.served == ("new-name",)
    assert "old-name" in choice.notice


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"<html>", b'{"data": 5}', b"null", b"{" * 100_000, b'{"data": [{"id": null}, 5, {}]}'],
)
async def test_what_is_no_list_of_models_is_one_sentence(server, body):
    server.rules["/v1/models"] = [response(body, content_type="application/json", length=True)]
    with pytest.raises(ChatError, match=r"OpenAI-compatible|serves no model"):
        await resolve_model(Endpoint(server.url))


async def test_a_web_page_is_one_sentence(server):
    page = b"<html><title>502 Bad Gateway</title></html>"
    server.rules["/v1/models"] = [response(page, "502 Bad Gateway", "text/html")]
    with pytest.raises(ChatError, match="502 Bad Gateway"):
        await served_models(Endpoint(server.url))
