"""The bodies of ``/v1/chat/completions`` and ``/v1/completions``: what is read, refused and ignored.

A field that would change the answer and cannot be honoured is refused; one that only informs (``user``,
``metadata``, ``store``) and any that is unknown is ignored, so that clients of other servers work unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, field_validator

from engine.request import RequestError, SamplingParams
from engine.server.errors import from_validation

_MOST_STOPS = 16
_LONGEST_STOP = 1000


class StreamOptions(BaseModel):
    """``stream_options``."""

    include_usage: bool = False


class GenerationBody(BaseModel):
    """What both kinds of completion share. A null field counts as absent."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    max_tokens: int | None = Field(None, ge=-1)
    stop: list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list, max_length=256)
    ignore_eos: bool = False

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_as_list(cls, value: object) -> object:
        return [] if value is None else [value] if isinstance(value, str) else value

    @field_validator("stop")
    @classmethod
    def _stop_in_bounds(cls, value: list[str]) -> list[str]:
        if len(value) > _MOST_STOPS or not all(0 < len(stop) <= _LONGEST_STOP for stop in value):
            raise ValueError(f"takes at most {_MOST_STOPS} texts of 1 to {_LONGEST_STOP} characters")
        return value

    @field_validator("stream", "ignore_eos", mode="before")
    @classmethod
    def _null_is_false(cls, value: object) -> object:
        return False if value is None else value

    @field_validator("stop_token_ids", mode="before")
    @classmethod
    def _null_is_empty(cls, value: object) -> object:
        return [] if value is None else value

    @field_validator("max_tokens", "max_completion_tokens", check_fields=False)
    @classmethod
    def _some_tokens(cls, value: int | None) -> int | None:
        if value == 0:
            raise ValueError("must be at least 1, or -1 for as many as fit")
        return value

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Check a request body.

        Raises:
            RequestError: Naming the first field that is wrong, or that cannot be honoured.
        """
        _refuse_unsupported(document)
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise from_validation(error) from error

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def token_limit(self) -> int | None:
        """Tokens asked for; None for as many as fit."""
        return self.max_tokens

    def sampling(self, defaults: Mapping[str, float]) -> SamplingParams:
        """How tokens are chosen; what the request does not say is taken from the model's defaults."""

        def value(name: str, otherwise: float) -> float:
            given = getattr(self, name)
            return defaults.get(name, otherwise) if given is None else float(given)

        limit = self.token_limit()
        return SamplingParams(
            temperature=value("temperature", 1.0),
            top_k=max(int(value("top_k", 0)), 0),
            top_p=value("top_p", 1.0),
            min_p=value("min_p", 0.0),
            seed=self.seed,
            max_tokens=None if limit == -1 else limit,
            stop=tuple(self.stop),
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
        )


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``. ``messages`` are checked by :mod:`engine.server.messages`."""

    messages: Any = None
    max_completion_tokens: int | None = Field(None, ge=-1)
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("chat_template_kwargs", mode="before")
    @classmethod
    def _null_is_no_argument(cls, value: object) -> object:
        return {} if value is None else value

    def token_limit(self) -> int | None:
        """``max_completion_tokens`` goes before the older ``max_tokens``."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionBody(GenerationBody):
    """``POST /v1/completions``: one prompt, as a text or as token ids."""

    prompt: str | list[StrictInt]
    echo: bool = False


def _refuse_unsupported(document: Mapping[str, Any]) -> None:
    """Refuse what would change the answer and is not there."""
    neutral: dict[str, tuple[object, ...]] = {
        "n": (1,),
        "best_of": (1,),
        "logprobs": (False, 0),
        "top_logprobs": (0,),
        "logit_bias": ({},),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "repetition_penalty": (1,),
        "min_tokens": (0,),
        "functions": ([],),
        "suffix": ("",),
        "echo": (False,),
        "continue_final_message": (False,),
        "regex": (),
        "ebnf": (),
        "audio": (),
    }
    for name, values in neutral.items():
        value = document.get(name)
        if value is not None and value not in values:
            raise RequestError(
                f"{name} is not supported by this server; leave it out.",
                param=name,
                code="unsupported_parameter",
            )
    if document.get("tools") and document.get("tool_choice") != "none":
        raise RequestError(
            "tools are not supported by this server yet; leave them out or set tool_choice to 'none'.",
            param="tools",
            code="unsupported_parameter",
        )
    form = document.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise RequestError(
            "response_format can only be of type 'text' on this server.",
            param="response_format",
            code="unsupported_parameter",
        )
