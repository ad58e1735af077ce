"""Makes a tiny Llama with random weights, for a real vLLM that answers nonsense at once.

    PYTHON_OF_VLLM benchmarks/tiny_model.py FOLDER

Runs in vLLM's environment, hence imports nothing of ours. Nothing is downloaded: the tokenizer is
a byte-level BPE trained on a few sentences.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # type: ignore[import-not-found]

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "Please summarise the following report in three sentences.",
    "How many requests may run at once, and how many wait?",
    "word word word word; hello, hello, hello.",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "assistant:"
)
CONTEXT = 2048


def tokenizer() -> PreTrainedTokenizerFast:
    """Every byte has a token, so that any text can be read."""
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    model.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        bos_token="<s>",
        eos_token="</s>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT,
    )


def main(folder: Path) -> None:
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
