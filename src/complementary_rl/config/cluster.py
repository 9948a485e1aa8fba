"""Section of what runs on Ray: how many processes train and sample each model, and what becomes of those that fail."""

from pydantic import Field

from complementary_rl.config.section import Section


class WorkersConfig(Section):
    """The processes of one model whose `engine` is `ray`."""

    train: int = Field(1, ge=1)
    """Trainer ranks: each keeps its part of weights, gradients and optimiser (FSDP2) and computes its part of every batch."""
    sample: int = Field(1, ge=1)
    """Samplers: each serves the whole model to its part of the episodes."""
    train_gpus: float = Field(0.0, ge=0)
    """GPUs reserved for each trainer rank; a fraction shares one with samplers, 0 trains on CPUs."""
    sample_gpus: float = Field(0.0, ge=0)
    """GPUs reserved for each sampler; a fraction puts several on one, 0 samples on CPUs."""


class ClusterConfig(Section):
    """Ray, where `actor.engine` or `extractor.engine` asks for it. Nothing here changes what is computed beyond rounding: a run may be
    resumed with other values."""

    address: str | None = None
    """A running Ray cluster, such as `auto` or `ray://head:10001`; None starts Ray on this machine and stops it at the end."""
    actor: WorkersConfig = WorkersConfig()
    """Processes of the actor."""
    extractor: WorkersConfig = WorkersConfig()
    """Processes of the extractor."""
    timeout: float = Field(1800.0, gt=0)
    """Seconds one update, sampling call, publication or checkpoint may take before its processes count as hung."""
    heartbeat: float = Field(20.0, gt=0)
    """Seconds in which a process must answer that it lives, whatever it computes; longer silence counts as hung."""
    fault_budget: int = Field(8, ge=0)
    """Restarts after dead or hung processes, of each model, before the run stops. Faults in data are never retried."""
    snapshot_interval: int = Field(4, ge=1)
    """Updates between copies of weights and optimiser in Ray's object store. A restarted group begins at the last one and repeats the
    updates since."""
