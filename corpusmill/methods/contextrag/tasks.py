"""The model task of building: the summary of a cluster of chunks."""

from pydantic import Field

from corpusmill.frozen import Frozen
from corpusmill.models.contracts import Task
from corpusmill.models.prompts import load_prompt, marks

RULE_SUMMARY_TOKENS = 200
as_data = marks("passage")


class TopicInput(Frozen):
    """Chunks of one cluster, those nearest its centre first."""

    passages: tuple[str, ...] = Field(min_length=1)


class TopicSummary(Frozen):
    summary: str


def _render(inputs: TopicInput) -> dict[str, str]:
    return {"passages": "\n\n".join(f"<passage>\n{as_data(text)}\n</passage>" for text in inputs.passages)}


def _rule(inputs: TopicInput) -> TopicSummary:
    from corpusmill.models.rules import summary

    return TopicSummary(summary=summary(inputs.passages, RULE_SUMMARY_TOKENS) or inputs.passages[0])


def _check(inputs: TopicInput, output: TopicSummary) -> str | None:
    return None if output.summary.strip() else "the summary is empty"


SUMMARISE_TOPIC: Task[TopicInput, TopicSummary] = Task(
    name="summarise_topic",
    role="summarise",
    prompt=load_prompt("corpusmill.methods.contextrag", "summarise_topic"),
    input_type=TopicInput,
    output_type=TopicSummary,
    render=_render,
    rule=_rule,
    check=_check,
    max_output_tokens=1024,
)
