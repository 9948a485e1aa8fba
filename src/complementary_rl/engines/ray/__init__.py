"""The distributed engine: the local trainer and the local sampler as Ray actors. Needs the extra `ray`.

connection      Ray started here or joined, and whether it has room
calls           waiting for actors: answers, faults of data, dead and hung processes
recovery        how many of the latter a run survives, and what is told about them
arrays          tensors on their way through Ray's object store
sharding        parameters over several ranks by FSDP2 · trainer_rank: one process of a group
trainer_group   all ranks of a model as one trainer that outlives its processes
sampler_worker  one process that serves the model · sampler_pool: all of them, and which keeps whose cache
engine          the protocol on top of all that
"""
