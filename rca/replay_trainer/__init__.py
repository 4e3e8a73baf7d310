"""A small but true GRPO job: a controller, SPMD train and reference workers, rollout workers, a MetaServer; breakable on purpose.

One step, in order: weights_update, rollout, reference, train, latest_recover_save, periodic_recover_save. `config` holds every setting; `task`, `model`, `sampling`
and `grpo` are the learning; `wire`, `rpc` and `serve` the calls; `train`, `reference`, `rollout` and `meta_server` the workers; `controller` the loop;
`launch` starts it all on `hosts`, and `tied` ends it with the launcher; `faults/` break it. See docs/decisions/0008.
"""
