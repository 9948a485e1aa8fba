"""Where the processes of a run go, whether they fit, and what to change if they do not. Nothing is started or loaded."""

import math
from dataclasses import dataclass, field

from complementary_rl.config import Config
from complementary_rl.engines.memory import MemoryNeed
from complementary_rl.planning.demand import VLLM_SHARE, Process, Role, processes, roles, trainer_parts

GIB = 1 << 30
HEADROOM = 0.95
"""Of a GPU's memory; the rest is for the CUDA context and fragmentation."""
_MOST_RANKS = 64
_SNAPSHOT = 12
"""Bytes a trained parameter: weight and two moments."""
_ALMOST = 1e-9


@dataclass(slots=True)
class Gpu:
    """One GPU, the share of it that is given away, and who has it."""

    index: int
    given: float = 0.0
    holds: list[Process] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """What those on it need."""
        return sum(process.bytes for process in self.holds)


@dataclass(frozen=True, slots=True)
class Plan:
    """`problems` say why a run would not fit and what to change; empty if it does. `notes` are worth knowing."""

    models: list[tuple[str, str, MemoryNeed]]
    processes: list[Process]
    gpus: list[Gpu]
    per_node: int
    capacity: int
    problems: list[str]
    notes: list[str]


def make_plan(config: Config, *, gpus: int | None = None, gpu_bytes: int = 80 * GIB, per_node: int = 8) -> Plan:
    """Place the processes of `config` on `gpus` GPUs (None: as many as it takes; 0: none) of `gpu_bytes` each.

    Raises UserError for a model whose shape cannot be found out.
    """
    planned = roles(config)
    needed = processes(config, planned, on_cpu=gpus == 0)
    capacity = int(gpu_bytes * HEADROOM)
    placed, problems = _place(needed, gpus)
    for gpu in placed:
        if gpu.bytes > capacity:
            problems.append(_too_much(gpu, planned, capacity))
    host = sum(process.count * process.bytes for process in needed if not process.gpus)
    notes = [_waiting(process, gpu_bytes) for process in needed if process.kind == "vllm"]
    if host:
        notes.append(f"processes without a GPU take {host / GIB:.1f} GiB of the machines' own memory")
    copied = sum(_SNAPSHOT * role.need.trained for role in planned if role.settings.engine == "ray")
    if copied:
        notes.append(f"snapshots of weights and optimiser take {copied / GIB:.1f} GiB of Ray's object store, over all machines")
    models = [(role.name, role.model.path, role.need) for role in planned]
    return Plan(models, needed, placed, per_node, capacity, list(dict.fromkeys(problems)), notes)


def _place(needed: list[Process], limit: int | None) -> tuple[list[Gpu], list[str]]:
    """First fit, the largest shares first. The main process, its engines and its embedder, is on the first GPU."""
    gpus: list[Gpu] = []
    short: dict[str, int] = {}
    main = [process for process in needed if process.kind in ("engine", "embedder")]
    others = sorted((process for process in needed if process not in main), key=lambda process: -process.gpus)
    for process in main + others:
        if process.gpus == 0:
            continue
        for _ in range(process.count):
            whole = max(1, math.ceil(process.gpus - _ALMOST))
            share = min(process.gpus, 1.0)
            free = [gpu for gpu in gpus if gpu.given + share <= 1 + _ALMOST]
            if process in main:
                free = gpus[:1]
            while len(free) < whole and (limit is None or len(gpus) < limit):
                gpus.append(Gpu(len(gpus)))
                free.append(gpus[-1])
            if len(free) < whole:
                short[process.name] = short.get(process.name, 0) + 1
                continue
            for gpu in free[:whole]:
                gpu.given += 0.0 if process in main else share
                gpu.holds.append(process)
    problems = []
    if short:
        wanted = math.ceil(sum(process.count * process.gpus for process in needed if process not in main) - _ALMOST)
        who = ", ".join(f"{count} of {name}" for name, count in short.items())
        problems.append(
            f"there are {limit} GPUs, and the processes ask for {wanted}: no room for {who}; give more with --gpus, ask for fewer "
            "processes in [cluster], or let some share a GPU with fractions in train_gpus and sample_gpus"
        )
    return gpus, problems


def _too_much(gpu: Gpu, planned: list[Role], capacity: int) -> str:
    whole = ", ".join(f"{process.name} {process.bytes / GIB:.1f}" for process in gpu.holds)
    largest = max(gpu.holds, key=lambda process: process.bytes)
    part = max(largest.parts, key=lambda name: largest.parts[name])
    told = (
        f"GPU {gpu.index} would hold {gpu.bytes / GIB:.1f} GiB ({whole}) and has {capacity / GIB:.1f} to use; most of it is "
        f"{part}: {largest.parts[part] / GIB:.1f}"
    )
    role = next((role for role in planned if largest.name.startswith(role.name)), None)
    room = capacity - (gpu.bytes - largest.bytes)
    return told if role is None else f"{told}. {_remedy(role, largest, part, room)}"


def _remedy(role: Role, process: Process, part: str, room: int) -> str:
    name = role.name
    if part.startswith("KV"):
        ways = [f"lower {name}.model.max_context (now {role.context:,})", f"set {name}.sampler = 'vllm', which lets sequences wait"]
        if process.kind == "sampler":
            ways.insert(0, f"raise cluster.{name}.sample (now {process.count})")
        return _either(ways)
    ways = []
    if part.startswith("activations"):
        if not role.model.gradient_checkpointing:
            ways.append(f"set {name}.model.gradient_checkpointing = true")
        tokens = max(role.context, role.settings.optim.max_tokens_per_microbatch)
        longest = "max_context" if role.context == tokens else "optim.max_tokens_per_microbatch"
        ways.append(f"lower {name}.{'model.' if longest == 'max_context' else ''}{longest} (now {tokens:,})")
    if role.model.lora is None:
        ways.append(f"train adapters ({name}.model.lora.rank = 16)")
    if process.kind == "trainer":
        ranks = next((n for n in range(process.count + 1, _MOST_RANKS) if sum(trainer_parts(role, n).values()) <= room), None)
        if ranks is not None:
            ways.insert(0, f"set cluster.{name}.train = {ranks} (now {process.count})")
    elif process.kind == "engine":
        ways.append(f"spread it with {name}.engine = 'ray' and cluster.{name}.train")
    return _either([*ways, "take a smaller model or larger GPUs"])


def _either(ways: list[str]) -> str:
    text = ", or ".join(ways)
    return text[0].upper() + text[1:]


def _waiting(process: Process, gpu_bytes: int) -> str:
    room = int(gpu_bytes * VLLM_SHARE) - process.parts["weights"]
    tokens = max(0, room) // process.spare_per_token
    return (
        f"each {process.name} holds {tokens:,} tokens: {tokens / process.tokens:.1f} sequences of {process.tokens:,}, or "
        f"{process.sequences} at once (its part of a batch) of {tokens // process.sequences:,} on average; more wait"
    )
