"""The shared text step that cuts a document into chunks."""

from collections.abc import Mapping

import pyarrow as pa

from corpusmill.hashing import content_id
from corpusmill.schemas import CHUNKS
from corpusmill.segmentation.partition import PARTITION_VERSION, partition
from corpusmill.segmentation.sentences import SENTENCES_VERSION
from corpusmill.segmentation.sliding import SLIDING_VERSION, windows
from corpusmill.segmentation.tokens import get_tokenizer
from corpusmill.settings import ChunkSettings, Settings
from corpusmill.steps import Text, TextContext, TextStep


class ChunkStepSettings(ChunkSettings):
    """What changes the chunks: the partitioning's settings, the tokenizer and the rules' versions."""

    tokenizer_fingerprint: str
    rules: tuple[int, ...] = (PARTITION_VERSION, SENTENCES_VERSION, SLIDING_VERSION)


def chunk_step(settings: Settings) -> TextStep:
    """The step `chunks`. Methods with equal chunk settings share its results."""
    return TextStep(
        name="chunks",
        version=1,
        settings=ChunkStepSettings(
            **settings.chunk.model_dump(),
            tokenizer_fingerprint=get_tokenizer(settings.chunk.tokenizer).fingerprint,
        ),
        outputs=(CHUNKS,),
        run=chunk_text,
    )


def chunk_text(text: Text, tables: Mapping[str, pa.Table], context: TextContext) -> Mapping[str, pa.Table]:
    """The chunks of one text, in order. Raises TypeError if the settings are not those of this step."""
    settings = context.settings
    if not isinstance(settings, ChunkStepSettings):
        raise TypeError(f"the chunk step needs ChunkStepSettings, got {type(settings).__name__}")
    tokenizer = get_tokenizer(settings.tokenizer)
    if settings.form == "windows":
        pieces = windows(text.text, tokenizer, settings.ct_max, settings.overlap)
    else:
        pieces = partition(text.text, tokenizer, settings.ct_min, settings.ct_max)
    spans = [(piece.span.start, piece.span.end) for piece in pieces]
    return {
        CHUNKS.name: pa.table(
            {
                "text_hash": [text.text_hash] * len(pieces),
                "chunk_id": [content_id("chunk", text.text_hash, context.fingerprint, a, b) for a, b in spans],
                "ordinal": list(range(len(pieces))),
                "start": [a for a, _ in spans],
                "end": [b for _, b in spans],
                "tokens": [piece.tokens for piece in pieces],
            },
            schema=CHUNKS.schema,
        )
    }
