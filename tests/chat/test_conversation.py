import pytest

from kt_tui.chat import (
    ContentDelta,
    ContentWasReasoning,
    Conversation,
    Draft,
    Endpoint,
    Failed,
    Finished,
    Message,
    Metrics,
    ReasoningDelta,
    Status,
    Usage,
)
from kt_tui.chat.commands import (
    COMMANDS,
    Action,
    CommandContext,
    complete,
    execute,
    find,
    is_command,
    message_text,
)


def talk():
    return Conversation(
        "be brief",
        [
            Message("user", "one"),
            Message("assistant", "1"),
            Message("user", "two"),
            Message("assistant", "2"),
        ],
    )


def contents(conversation):
    return [message.content for message in conversation.messages]


def test_a_request_holds_the_system_prompt_and_no_reasoning():
    conversation = Conversation("be brief")
    conversation.append(Message("user", "q"))
    conversation.append(Message("assistant", "a", reasoning="secret thoughts"))
    assert conversation.request() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"},
    ]


def test_retry_regenerates_the_last_answer_and_keeps_the_question():
    conversation = talk()
    assert conversation.retry()
    assert contents(conversation) == ["one", "1", "two"]
    assert conversation.request()[-1]["content"] == "two"
    assert conversation.system == "be brief"
    assert conversation.retry()  # a question without an answer is asked again as it is
    assert contents(conversation) == ["one", "1", "two"]
    assert not Conversation().retry()


def test_editing_the_last_question_drops_its_answer():
    conversation = talk()
    assert conversation.last_user_text() == "two"
    assert conversation.edit_last("three")
    assert contents(conversation) == ["one", "1", "three"]
    assert not Conversation().edit_last("x")


def test_clear_keeps_the_system_prompt():
    conversation = talk()
    conversation.clear()
    assert conversation.request() == [{"role": "system", "content": "be brief"}]


def test_a_partial_answer_stays_in_the_conversation_and_an_empty_one_is_not_sent():
    conversation = Conversation()
    conversation.append(Message("user", "q"))
    conversation.append(Message("assistant", "par", status=Status.STOPPED))
    conversation.append(Message("user", "go on"))
    conversation.append(Message("assistant", "", reasoning="r", status=Status.FAILED))
    assert [m["content"] for m in conversation.request()] == ["q", "par", "go on"]


def test_changes_are_told_from_the_first_position_that_differs():
    told = []
    conversation = Conversation(None, [], told.append)
    conversation.append(Message("user", "a"))
    conversation.append(Message("assistant", "b"))
    conversation.update_last(Message("assistant", "bb"))
    conversation.edit_last("c")
    conversation.clear()
    assert told == [0, 1, 1, 0, 0]


def test_a_draft_moves_content_to_reasoning_when_told():
    draft = Draft()
    for event in (
        ContentDelta("thinking"),
        ContentWasReasoning(),
        ContentDelta("answer"),
        ReasoningDelta("!"),
    ):
        draft.apply(event)
    assert (draft.reasoning, draft.content) == ("thinking!", "answer")


@pytest.mark.parametrize(
    ("end", "stopped", "status", "note"),
    [
        (Finished("length", note="truncated"), False, Status.COMPLETE, "truncated"),
        (Failed("broken", "x"), False, Status.FAILED, "broken"),
        (None, True, Status.STOPPED, "stopped"),
        (None, False, Status.STREAMING, ""),
    ],
)
def test_the_message_of_a_draft_says_how_it_ended(end, stopped, status, note):
    draft = Draft(content="x")
    if end:
        draft.apply(end)
    message = draft.message(stopped=stopped)
    assert (message.content, message.status, message.note) == ("x", status, note)


def context(conversation=None, busy=False):
    return CommandContext(conversation or talk(), Endpoint("http://127.0.0.1:1", "sesame", "m"), busy)


ALIASES = {
    "/h": "help",
    "/?": "help",
    "/c": "clear",
    "/r": "retry",
    "/i": "info",
    "/q": "quit",
    "/exit": "quit",
    "/QUIT": "quit",
}


@pytest.mark.parametrize(("typed", "name"), ALIASES.items())
def test_aliases(typed, name):
    assert is_command(typed)
    assert find(typed[1:]).name == name


def test_completion():
    assert [c.name for c in complete("/")] == [c.name for c in COMMANDS]
    assert [c.name for c in complete("/re")] == ["retry"]
    assert [c.name for c in complete("/EX")] == []
    assert [c.name for c in complete("/exit")] == ["quit"]
    assert complete("/system x") == []
    assert complete("hello") == []
    assert complete("//") == []


def test_a_double_slash_is_text():
    assert not is_command("//etc")
    assert message_text("//etc") == "/etc"
    assert message_text("a/b") == "a/b"


def test_commands_do_what_they_say():
    ctx = context()
    help_text = execute("/help", ctx).text
    assert all(f"/{command.name}" in help_text for command in COMMANDS)
    assert execute("/retry", ctx).action is Action.RETRY
    assert contents(ctx.conversation) == ["one", "1", "two"]
    assert execute("/clear", ctx).action is Action.CLEARED
    assert ctx.conversation.system == "be brief"
    assert execute("/retry", ctx).action is Action.ERROR
    assert execute("/quit", ctx).action is Action.QUIT
    unknown = execute("/frobnicate now", ctx)
    assert unknown.action is Action.ERROR
    assert "/frobnicate" in unknown.text


def test_system_shows_sets_and_removes():
    ctx = context()
    assert execute("/system", ctx).text == "be brief"
    execute("/system  speak  Latin ", ctx)
    assert ctx.conversation.system == "speak  Latin"
    execute("/system -", ctx)
    assert ctx.conversation.system is None
    assert "no system prompt" in execute("/system", ctx).text


def test_info_tells_counts_of_the_server_and_no_key():
    conversation = Conversation()
    conversation.append(Message("user", "q"))
    usage = Usage(prompt_tokens=37, completion_tokens=8)
    conversation.append(Message("assistant", "a", usage=usage, metrics=Metrics(0.5, 0.1, 10.0, 2.0)))
    text = execute("/info", context(conversation)).text
    assert "last prompt 37, last answer 8" in text
    assert "0.50 s, 10.0 tokens/s" in text
    assert "sesame" not in text


def test_changing_commands_wait_for_an_answer_that_is_coming():
    ctx = context(busy=True)
    assert execute("/retry", ctx).action is Action.ERROR
    assert execute("/clear", ctx).action is Action.ERROR
    assert len(ctx.conversation.messages) == 4
    assert execute("/info", ctx).action is Action.SHOW
