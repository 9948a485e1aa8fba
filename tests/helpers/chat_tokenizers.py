"""Small real tokenizers, each with the chat template and the traps of one family of models."""

import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "Find the exit of the Amber Gallery.\nhint: the exit is in the north-east\nat 3 4, exit north-west",
    "north north-east east south-east south south-west west north-west",
    "user assistant system model You are a helpful assistant. start of turn end im header id Today Date: 26 Jul 2024",
    "# Task\nYou see a door.    The door is locked.\n\n\n|.....|\n|..@..|\n|...>.|\n",
    'success failure {"op": "add", "text": "the exit is not in the west"} [INST] [/INST] <think> </think>',
]

TINY = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHATML = """{% if messages[0]['role'] != 'system' %}
<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- set ns = namespace(last=0) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role != 'assistant' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}
{%- set reasoning = '' %}{% set content = message.content %}
{%- if '</think>' in content %}
{%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last and reasoning %}{{- '<think>\\n' + reasoning + '\\n</think>\\n\\n' }}{% endif %}
{{- content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
LLAMA3 = """{{- bos_token }}
{%- set date = strftime_now("%d %b %Y") %}
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date + '\\n\\n' + system + '<|eot_id|>' }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{{- '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}
{{- message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{% endif %}
"""
LLAMA2 = """{%- if messages[0]['role'] == 'system' %}
{%- set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}
{%- else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}
{%- endfor %}
"""

FAMILIES = ("tiny", "chatml", "qwen3", "llama3", "gemma", "llama2", "unigram")
TEMPLATES = {"tiny": TINY, "chatml": CHATML, "qwen3": QWEN3, "llama3": LLAMA3, "gemma": GEMMA, "llama2": LLAMA2, "unigram": TINY}
_SPECIAL = {
    "tiny": ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"],
    "chatml": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "qwen3": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "gemma": ["<pad>", "<eos>", "<bos>", "<unk>"],
    "llama2": ["<unk>", "<s>", "</s>"],
    "unigram": ["<unk>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"],
}
# Added, but not flagged as special: `skip_special_tokens` and `split_special_tokens` overlook them.
_ORDINARY = {"qwen3": ["<think>", "</think>", "<tool_call>"], "gemma": ["<start_of_turn>", "<end_of_turn>"]}
_ROLES: dict[str, dict[str, str]] = {
    "tiny": {"eos_token": "<|end|>"},
    "chatml": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "qwen3": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
    "llama3": {"eos_token": "<|end_of_text|>", "bos_token": "<|begin_of_text|>"},
    "gemma": {"eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>", "pad_token": "<pad>"},
    "llama2": {"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"},
    "unigram": {"eos_token": "<|end|>", "unk_token": "<unk>"},
}


@cache
def make_tokenizer(family: str) -> Any:
    """The tokenizer of a family; built once, do not change it (see `with_template`)."""
    backend = _byte_level() if family in ("tiny", "chatml", "qwen3", "llama3") else _sentencepiece(family)
    backend.train_from_iterator(CORPUS, _trainer(family))
    # The trainer declares the byte tokens as special, which in real tokenizers they are not.
    state = json.loads(backend.to_str())
    backend = Tokenizer.from_str(json.dumps(state | {"added_tokens": []}))
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in _SPECIAL[family]])
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in _ORDINARY.get(family, [])])
    if family == "qwen3":
        # As in Pythia and Phi: runs of blanks that the vocabulary lacks, added after what is structural.
        backend.add_tokens([AddedToken(" " * n, normalized=False, special=False) for n in (8, 4)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **_ROLES[family])
    tokenizer.chat_template = TEMPLATES[family]
    return tokenizer


def with_template(family: str, template: str | None) -> Any:
    """A copy of a family's tokenizer with another chat template."""
    original = make_tokenizer(family)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(original.backend_tokenizer.to_str()), **_ROLES[family])
    tokenizer.chat_template = template
    return tokenizer


def _byte_level() -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def _sentencepiece(family: str) -> Tokenizer:
    if family == "unigram":
        backend = Tokenizer(models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Metaspace(prepend_scheme="never")
        return backend
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    fallback = [decoders.ByteFallback(), decoders.Fuse()]
    if family == "gemma":
        backend.normalizer = normalizers.Replace(" ", "▁")
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), *fallback])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), *fallback])
    return backend


def _trainer(family: str) -> Any:
    if family == "unigram":
        # The structural tokens are words of the vocabulary too, where the model finds them without being told.
        return trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=_SPECIAL[family], show_progress=False)
    if family in ("gemma", "llama2"):
        fallback = [f"<0x{byte:02X}>" for byte in range(256)]
        return trainers.BpeTrainer(vocab_size=600, special_tokens=[*_SPECIAL[family], *fallback], show_progress=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trainers.BpeTrainer(vocab_size=360, initial_alphabet=alphabet, special_tokens=_SPECIAL[family][:1], show_progress=False)
