"""Makes the question of a conversation stand alone, so that it can be searched for.

"And how is it treated?" is searched for as "How is leukaemia treated?". A chat model writes the
question again, within a time limit. If the model fails, is too slow or writes something else, words
of the last turns are appended to the question instead. So a search always follows.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from importlib import resources
from string import Template

import structlog

from hrag.models.chat import ChatEnd, ChatModel, Pieces
from hrag.observe import metrics
from hrag.text.analysis import DEFAULT_LANGUAGE, analyzer, analyzer_name, query_syntax
from hrag.text.conversation import has_pronoun, quoted_turns, with_last_turns
from hrag.text.plain_text import one_line, quoted_lines, without_markers
from hrag.values.answers import FinishReason, Reasoning
from hrag.values.conversation import ConversationTurn, StandaloneMethod, StandaloneQuestion
from hrag.values.deadline import Deadline
from hrag.values.errors import ChatRejected, ChatUnavailable, DeadlineExceeded, HragError

_log = structlog.get_logger()

# A question with more characters is not written again: the model would take long to repeat it, and
# so much text hardly depends on earlier turns.
_MAX_QUESTION_CHARS = 1000
# The model's question may be longer than the original by this many characters.
_MAX_ADDED_CHARS = 300
# The prompt has the last turns, each cut to some characters. A question rarely refers to more, and
# a short prompt is read fast.
_PROMPT_TURNS = 6
_PROMPT_TURN_CHARS = 400
# A model that reasons needs tokens before it writes the question. All others need far fewer.
_MAX_TOKENS = 1024
# The model may take this share of the call's remaining time. The rest is for the search and the
# answer.
_SHARE_OF_TIME = 0.25
# At least this share of the terms of the model's question must be terms of the conversation.
# Otherwise the model has made up a subject, answered the question or talked about its task.
_KNOWN_SHARE = 0.5
# At least this share of the terms of the question must be in the model's question. Otherwise the
# model has repeated another question of the conversation.
_KEPT_SHARE = 0.5
# A model may put these characters around the question, and repeat the `> ` of the prompt.
_QUOTES = "\"'“”‘’«»「」『』`*> "


class StandaloneQuestions:
    """Makes questions stand alone. Safe to call from several threads."""

    def __init__(self, chat: ChatModel, timeout_s: float) -> None:
        """Creates the object. With a `timeout_s` of 0, the chat model is not used."""
        self._chat = chat
        self._timeout_s = timeout_s
        self._prompt = Template(
            resources.files(__package__).joinpath("standalone_prompt.txt").read_text("utf-8")
        )
        self._analyzer = analyzer(analyzer_name(DEFAULT_LANGUAGE))

    def __call__(
        self, question: str, history: Sequence[ConversationTurn], deadline: Deadline
    ) -> StandaloneQuestion:
        """Returns the question in a form that can be understood without `history`.

        The phrases and words that `question` requires are required in this form too. Raises
        DeadlineExceeded if the deadline passes, Cancelled if the caller cancels the call, and
        InvalidArgument if the question requires too many phrases and words.
        """
        required = query_syntax.parse(question).required
        written, failure = "", ""
        if self._timeout_s and len(question) <= _MAX_QUESTION_CHARS:
            try:
                written = self._written(question, history, deadline)
            except HragError as error:
                deadline.check("waiting for the chat model")
                failure = error.message
                _log.warning("standalone_question_failed", model=self._chat.name, problem=failure)
        if written:
            text = query_syntax.with_required(written, required)
            standalone = StandaloneQuestion(text, StandaloneMethod.MODEL)
        else:
            text = with_last_turns(question, history)
            if query_syntax.parse(text).required != required:
                # A phrase that was the whole question is required, also beside other words.
                text = query_syntax.with_required(text, required)
            standalone = StandaloneQuestion(text, StandaloneMethod.LAST_TURNS, failure)
        metrics.question_made_standalone(standalone.method)
        return standalone

    def _written(
        self, question: str, history: Sequence[ConversationTurn], deadline: Deadline
    ) -> str:
        """Returns the question that the model writes.

        Raises ChatRejected if the model writes something else, and ChatUnavailable if it is too
        slow. Also raises the errors of the model.
        """
        turns = [
            replace(turn, text=turn.text[:_PROMPT_TURN_CHARS]) for turn in history[-_PROMPT_TURNS:]
        ]
        quoted_question = without_markers(quoted_lines(question.strip()))
        prompt = self._prompt.substitute(turns=quoted_turns(turns), question=quoted_question)
        limit_s = min(self._timeout_s, _SHARE_OF_TIME * deadline.remaining_s)
        max_chars = len(question) + _MAX_ADDED_CHARS
        try:
            with closing(
                self._chat.stream(prompt, _MAX_TOKENS, deadline.within(limit_s))
            ) as pieces:
                line = _first_line(pieces, max_chars)
        except DeadlineExceeded:
            raise ChatUnavailable(
                f"the chat model {self._chat.name} wrote no question within {limit_s:.1f} s"
            ) from None
        known = " ".join([question, *(turn.text for turn in turns)])
        if len(line) > max_chars or not self._is_about(line, question, known):
            raise ChatRejected(
                f"the chat model {self._chat.name} wrote no question about the conversation"
            )
        return line

    def _is_about(self, line: str, question: str, conversation: str) -> bool:
        """Returns True if a line is plausible as the question of this conversation.

        Enough of its terms are terms of the conversation, it has enough terms of the question, and
        it does not leave a pronoun as it was without adding a term. Words that differ only in their
        inflection are one term. Stop words do not count beside other words.
        """
        line_terms, question_terms = (
            {term.id for term in self._analyzer.query_terms(text)} for text in (line, question)
        )
        known = line_terms.intersection(self._analyzer.terms(conversation).tolist())
        kept = question_terms.intersection(self._analyzer.terms(line).tolist())
        is_repeated = line_terms <= question_terms and has_pronoun(line)
        return (
            bool(kept)
            and len(known) >= _KNOWN_SHARE * len(line_terms)
            and len(kept) >= _KEPT_SHARE * len(question_terms)
            and not is_repeated
        )


def _first_line(pieces: Pieces, max_chars: int) -> str:
    """Returns the first line of a model's text that is not blank, without quotes around it.

    Reads no more of the text. Returns "" if the text ends without such a line, or early.
    """
    text = ""
    for piece in pieces:
        if isinstance(piece, ChatEnd):
            return one_line(text).strip(_QUOTES) if piece.finish_reason is FinishReason.STOP else ""
        if isinstance(piece, Reasoning):
            continue
        text += piece
        line, line_end, _ = text.lstrip().partition("\n")
        if line_end or len(text) > max_chars:
            return one_line(line).strip(_QUOTES)
    return ""
