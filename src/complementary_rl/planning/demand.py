"""Which processes a configuration asks for, and how much memory each takes: formulas of `engines.memory`, at the largest that may happen.

trainer   training memory / ranks + gathered (ranks > 1) + activations of the largest micro-batch
sampler   b·P + KV cache of all sequences it may hold at once, each as long as the context      (the engine's own: it cannot wait)
vLLM      b·P + KV cache of one such sequence at least; what is left of the GPU holds more       (it lets the others wait)
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from complementary_rl.config import ActorConfig, Config, ExtractorConfig, ModelConfig, WorkersConfig
from complementary_rl.engines.local.loading import need_of
from complementary_rl.engines.memory import MemoryNeed
from complementary_rl.planning.shapes import model_configuration

Kind = Literal["engine", "trainer", "sampler", "vllm", "embedder"]

VLLM_SHARE = 0.9
"""Of a GPU, which a vLLM server takes unless it is told otherwise (--gpu-memory-utilization)."""
_LOGITS = 4 * (1 << 24) * 4
"""Logits of a chunk, their softmax, its gradient and theirs: see `engines.local.scoring`."""
_FLOAT = 4
_OWN_EMBEDDERS = ("hashing", "packaged:minilm")
"""Too small to count."""


@dataclass(frozen=True, slots=True)
class Process:
    """One kind of process. `gpus`: of each, a fraction shares one; 0 is on CPUs. `parts`: bytes by what they are for.

    `spare_per_token`: what a token more in the cache takes, for processes that use what is left; `sequences` × `tokens` is what may be
    asked of it at once.
    """

    name: str
    kind: Kind
    count: int
    gpus: float
    parts: dict[str, int] = field(default_factory=dict)
    spare_per_token: int = 0
    sequences: int = 0
    tokens: int = 0

    @property
    def bytes(self) -> int:
        """What each needs."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Role:
    """One trained model as it is planned."""

    name: str
    settings: ActorConfig | ExtractorConfig
    workers: WorkersConfig
    need: MemoryNeed
    context: int
    gathered: int
    sequences: int

    @property
    def model(self) -> ModelConfig:
        """Its section `model`."""
        return self.settings.model


def roles(config: Config) -> list[Role]:
    """The models that the method trains or samples. Raises UserError for a model whose shape cannot be found out."""
    batch = config.env.groups_per_step * config.env.group_size
    found = [_role("actor", config.actor, config.cluster.actor, batch, keep_reference=False)]
    if config.run.method != "baseline":
        keep = config.extractor.kl_coefficient > 0
        found.append(_role("extractor", config.extractor, config.cluster.extractor, config.distill.batch_size, keep_reference=keep))
    return found


def processes(config: Config, planned: list[Role], *, on_cpu: bool = False) -> list[Process]:
    """All of them, the main process's engines and embedder included. `on_cpu`: the machine has no GPU for what is not on Ray."""
    found: list[Process] = []
    for role in planned:
        found += _on_ray(role) if role.settings.engine == "ray" else [_in_main(role, on_cpu=on_cpu)]
        if role.settings.sampler == "vllm":
            found.append(_servers(role))
    if config.run.method != "baseline" and config.bank.embedder not in _OWN_EMBEDDERS:
        need = need_of(config.bank.embedder, model_configuration(config.bank.embedder), ModelConfig())
        found.append(Process("embedder", "embedder", 1, 0.0 if on_cpu else 0.1, {"weights": _FLOAT * need.parameters}))
    return found


def trainer_parts(role: Role, ranks: int) -> dict[str, int]:
    """Bytes of one of `ranks` trainers."""
    parts = {"weights, gradients, optimiser": math.ceil(role.need.training / ranks)}
    if ranks > 1:
        parts["gathered weights and gradients"] = role.gathered
    tokens = max(role.context, role.settings.optim.max_tokens_per_microbatch)
    parts[f"activations of {tokens:,} tokens"] = tokens * role.need.activations_per_token + _LOGITS
    return parts


def _role(name: str, settings: ActorConfig | ExtractorConfig, workers: WorkersConfig, batch: int, *, keep_reference: bool) -> Role:
    shape = model_configuration(settings.model.path)
    need = need_of(settings.model.path, shape, settings.model, keep_reference=keep_reference)
    context = settings.model.max_context or shape.max_position_embeddings
    tables = (1 if shape.tie_word_embeddings else 2) * shape.vocab_size * shape.hidden_size
    layer = (need.parameters - tables) / shape.num_hidden_layers
    # FSDP2 gathers the tables for the whole pass, and a layer while the next one comes; gradients likewise on the way back.
    width = need.sampling // need.parameters if settings.model.lora else 2 * _FLOAT
    return Role(name, settings, workers, need, context, int(width * (tables + 2 * layer)), batch)


def _in_main(role: Role, *, on_cpu: bool) -> Process:
    parts = trainer_parts(role, 1)
    parts["sampler's copy"] = role.need.held - role.need.training
    if role.settings.sampler == "engine":
        parts |= _cache(role, role.sequences)
    gpus = 0.0 if on_cpu or role.model.device == "cpu" else 0.01
    return Process(f"{role.name} (in the main process)", "engine", 1, gpus, parts)


def _on_ray(role: Role) -> list[Process]:
    workers = role.workers
    trainer = Process(f"{role.name} trainer", "trainer", workers.train, workers.train_gpus, trainer_parts(role, workers.train))
    parts = {"weights": role.need.sampling}
    if role.settings.sampler == "engine":
        parts |= _cache(role, math.ceil(role.sequences / workers.sample))
    return [trainer, Process(f"{role.name} sampler", "sampler", workers.sample, workers.sample_gpus, parts)]


def _servers(role: Role) -> Process:
    servers = len(role.settings.vllm.urls)
    return Process(
        f"{role.name} vLLM server",
        "vllm",
        servers,
        1.0,
        {"weights": role.need.sampling, **_cache(role, 1)},
        spare_per_token=role.need.kv_cache_per_token,
        sequences=math.ceil(role.sequences / servers),
        tokens=role.context,
    )


def _cache(role: Role, sequences: int) -> dict[str, int]:
    name = f"KV cache of {sequences} × {role.context:,} tokens"
    return {name: sequences * role.context * role.need.kv_cache_per_token}
