"""Chat: the conversation, the message field, and a strip of live figures where there is room."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from kt_tui.chat import ChatOptions, Conversation, Endpoint, Message, Status, stream_chat
from kt_tui.supervise.types import EngineState, EngineStatus
from kt_tui.ui.chat_controller import ChatController, StreamFunction, TurnState
from kt_tui.ui.chat_history import ChatHistory
from kt_tui.ui.chat_text import composer_texts, live_rows
from kt_tui.ui.screens.base import ModeScreen
from kt_tui.ui.widgets.composer import Composer, Prompt
from kt_tui.ui.widgets.copypicker import CopyPicker, copy_choices
from kt_tui.ui.widgets.livestrip import LiveStrip
from kt_tui.ui.widgets.transcript import Answer, Transcript

if TYPE_CHECKING:
    from kt_tui.monitor import Snapshot
    from kt_tui.services import ChatSession

DESCRIBE_S = 0.25
MEASURED_TOKENS = 32
"""Answers as long as this tell the speed of decoding."""
EMPTY = "Nothing said yet.\n\nWrite below and press enter; / lists the commands."


class ChatScreen(ModeScreen):
    """Talks to the running engine, or to the server of the app's ``chat_session``."""

    MODE = "chat"
    CSS_PATH = "chat.tcss"
    AUTO_FOCUS = "Prompt"
    HELP = Prompt.HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", id="chat.stop"),
        Binding("ctrl+t", "fold", "Thinking", id="chat.fold-anywhere"),
        Binding("ctrl+end", "to_end", "To the end", show=False, id="chat.end"),
        Binding("ctrl+c", "copy_or_stop", "Copy", show=False, priority=True, id="chat.copy-or-stop"),
    ]

    def __init__(self, stream: StreamFunction = stream_chat) -> None:
        super().__init__()
        self._stream = stream
        self._editing = False
        self._restorable = True
        self._described: tuple[bool, tuple[str, ...], str] | None = None
        self._described_at = 0.0
        self._history: ChatHistory
        self.controller: ChatController

    def compose_body(self) -> ComposeResult:
        """The conversation over the message field, the strip beside both."""
        with Horizontal(id="chat"):
            with Vertical(id="chat-main"):
                yield Static(EMPTY, id="chat-empty", markup=False)
                yield Transcript(id="transcript")
                yield Composer()
            yield LiveStrip()

    def on_mount(self) -> None:
        """Starts with the saved conversation and follows the engine."""
        asked = self._session.system if self._session is not None else self.services.config.get("chat.system")
        system = str(asked or "") or None
        self._history = ChatHistory(self.services.paths.chats, lambda text: self.kt.say(text, "warning"))
        self.controller = ChatController(
            Conversation(system, on_change=self._save),
            self.transcript,
            connect=self._connect,
            options=self._options,
            stream=self._stream,
            changed=self._state_changed,
            leave=self._leave,
            answered=self._answered,
        )
        self.kt.engine_status_signal.subscribe(self, self._engine_changed)
        self.kt.snapshot_signal.subscribe(self, self._figures_changed)
        self._describe()
        self._restore_if_kept()

    async def on_unmount(self) -> None:
        """Closes a running stream, so that the server stops too, and finishes saving."""
        await self.controller.close()
        await self._history.close()

    @property
    def transcript(self) -> Transcript:
        """The conversation's widget."""
        return self.query_one(Transcript)

    @property
    def composer(self) -> Composer:
        """The message field's widget."""
        return self.query_one(Composer)

    # --- the server ----------------------------------------------------------------------------------------

    @property
    def _session(self) -> ChatSession | None:
        return self.kt.chat_session

    def _connect(self) -> Endpoint | None:
        if self._session is not None:
            return self._session.endpoint
        supervisor = self.services.supervisor
        status = supervisor.status
        if status.state is not EngineState.READY or not status.base_url:
            return None
        return Endpoint(status.base_url, supervisor.api_key)

    def _options(self) -> ChatOptions:
        if self._session is not None:
            return self._session.options
        temperature = self.services.config.get("chat.temperature")
        tokens = self.services.config.get("chat.max_tokens")
        return ChatOptions(
            temperature=float(temperature) if isinstance(temperature, int | float) else None,
            max_tokens=tokens if isinstance(tokens, int) else None,
        )

    def _engine_changed(self, status: EngineStatus) -> None:
        if status.state is EngineState.STARTING:
            self._restorable = False  # a new engine, a new conversation
        self._restore_if_kept()
        self._describe()
        self.controller.pump()

    # --- the history ---------------------------------------------------------------------------------------

    def _save(self, position: int) -> None:
        self._restorable = False
        if self._session is not None and not self._session.saved:
            return
        conversation = self.controller.conversation
        answered = [
            message.metrics for message in conversation.messages[position:] if message.metrics is not None
        ]
        if self._session is None and answered:
            self.kt.last_metrics = answered[-1]
        model = self.services.supervisor.status.model
        if self._session is not None:
            model = self._session.endpoint.model or self._session.endpoint.base_url
        self._history.record(model, conversation.system, conversation.messages, position)

    def _answered(self, message: Message) -> None:
        """Keeps the speed of an answer of our own engine beside its prediction; short answers tell too little."""
        metrics, usage = message.metrics, message.usage
        if self._session is not None or metrics is None or metrics.tokens_per_s is None or usage is None:
            return
        if message.status is Status.COMPLETE and (usage.completion_tokens or 0) >= MEASURED_TOKENS:
            speed = metrics.tokens_per_s
            self.run_worker(
                lambda: self.services.record_decode(speed), thread=True, group="speed", exit_on_error=False
            )

    def _restore_if_kept(self) -> None:
        """An engine that outlived its panel is found again with its conversation."""
        if self._restorable and self.services.supervisor.status.kept:
            self._restorable = False
            self.run_worker(self._restore(), group="chat-history", exit_on_error=False)

    async def _restore(self) -> None:
        saved = await self._history.newest()
        if saved is not None and not self.controller.conversation.messages:
            self._history.continue_with(saved)
            self.controller.replace(Conversation(saved.system, saved.messages, on_change=self._save))

    def _figures_changed(self, _snapshot: Snapshot) -> None:
        self._describe()

    # --- what the user does --------------------------------------------------------------------------------

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        """Sends, queues or runs what was written; keeps it in the field if nothing can take it."""
        event.stop()
        prompt = self.composer.prompt
        engine = self.services.supervisor.status.state
        is_command = event.text.startswith("/") and not event.text.startswith("//")
        if (
            not is_command
            and self._connect() is None
            and engine not in (EngineState.STARTING, EngineState.LOADING)
        ):
            self.kt.say(
                "No engine is running to answer. Start one on Launch; your message stays here.", "warning"
            )
            return
        if self._editing and not is_command and not self.controller.busy:
            self._editing = False
            if self.controller.edit_last(event.text):
                prompt.taken()
                return
        prompt.taken()
        self.controller.submit(event.text)

    def on_prompt_steered(self, event: Prompt.Steered) -> None:
        """Page keys in the field scroll the conversation."""
        self.transcript.action_page(-1 if event.key == "pageup" else 1)

    def on_transcript_requested(self, event: Transcript.Requested) -> None:
        """The conversation's own keys."""
        event.stop()
        match event.what:
            case "copy":
                self._copy_picker()
            case "retry":
                if not self.controller.retry():
                    self.kt.say("There is nothing to answer again now.", "warning")
            case "edit":
                self._edit_last()

    def on_transcript_follow_changed(self) -> None:
        """The hint about text below."""
        self._describe()

    def action_stop(self) -> None:
        """Stops the answer; messages that waited behind it come back into the field."""
        if not self.controller.stop():
            self.composer.prompt.focus()
            return
        if waiting := self.controller.take_queue():
            written = self.composer.prompt.text
            self.composer.prompt.put(f"{waiting}\n\n{written}" if written else waiting)

    def action_fold(self) -> None:
        """Shows or hides reasoning."""
        self.transcript.action_fold()

    def action_to_end(self) -> None:
        """Follows the newest text again."""
        self.transcript.action_edge(1)

    def action_copy_or_stop(self) -> None:
        """Copies what is selected; without a selection stops the answer; else it is the app's key."""
        selected = self.composer.prompt.selected_text or self.get_selected_text()
        if selected:
            self.kt.copy(selected)
            self.clear_selection()
        elif self.controller.busy:
            self.action_stop()
        else:
            raise SkipAction

    def _copy_picker(self) -> None:
        entries = self.transcript.entries
        chosen = self.transcript.cursor
        if chosen is None:
            chosen = max((at for at, entry in enumerate(entries) if isinstance(entry, Answer)), default=-1)
        choices = copy_choices(entries[chosen]) if chosen >= 0 else []
        if len(choices) == 1:
            self.kt.copy(choices[0].text)
        elif choices:
            self.app.push_screen(CopyPicker(choices), self._copy)
        else:
            self.kt.say("There is nothing to copy yet.", "warning")

    def _copy(self, text: str | None) -> None:
        if text:
            self.kt.copy(text)

    def _edit_last(self) -> None:
        text = self.controller.conversation.last_user_text()
        if text is None or self.controller.busy:
            self.kt.say("There is no message of yours to edit now.", "warning")
            return
        self._editing = True
        self.composer.prompt.put(text)
        self.composer.prompt.focus()
        self._describe()

    def _leave(self) -> None:
        self.run_worker(self.app.run_action("app.quit"), exit_on_error=False)

    # --- what is shown about it ----------------------------------------------------------------------------

    def _state_changed(self, state: TurnState) -> None:
        """The counters of a running answer change with every piece; four times a second is often enough to read."""
        now = time.monotonic()
        standing = (state.busy, state.queued, state.waiting)
        if standing != self._described or now - self._described_at > DESCRIBE_S:
            self._described, self._described_at = standing, now
            self._describe()

    def _describe(self) -> None:
        """Brings the field's border, the strip and the empty hint up to date."""
        if not self.is_mounted:
            return
        controller, options = self.controller, self._options()
        status = self.services.supervisor.status
        connected = self._connect() is not None
        state = controller.state
        title, parameters, placeholder = composer_texts(
            status, state, options, connected=connected, unseen=self.transcript.unseen, editing=self._editing
        )
        self.composer.describe(title=title, parameters=parameters, placeholder=placeholder)
        self.query_one(LiveStrip).show(live_rows(status, state, controller.conversation, self.kt.snapshot))
        empty = not self.transcript.entries
        self.set_class(empty, "-empty")
