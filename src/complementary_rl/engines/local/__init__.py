"""The in-process engine: PyTorch and transformers, one compute thread per model.

decoder    any Hugging Face causal LM as `hidden` states and `logits`, with masks for rows of unequal length
kv_arena   key and value tensors of all rows · slots: which sequence lives where
padding    which rows are computed together · prefill: what is read once for several · draw: logits → tokens and log-probs
copies     the trainer's and the sampler's copy of a model · ranks: one process trains, or several
sampler    requests → generations · trainer: loss terms → one optimiser step
recompute  activations computed twice instead of kept · scoring: log-probs without logits of everything
shared_base one frozen set of weights under the adapters of two models
checkpoint what `save` writes · worker: the compute thread
engine     the protocol on top of all that
"""
