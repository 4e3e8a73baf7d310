"""A driver with two rollout actors and one trainer in Ray, with the evidence that explains its next failure.

python examples/ray_actors/main.py --steps 3
"""

import argparse
import logging
import time

import ray

from rca import trace_inject as rt

log = logging.getLogger("driver")
ROWS = 16


@ray.remote(num_cpus=0)
@rt.traced_actor(role="rollout")
class Rollout:
    def __init__(self, rank):
        self.rank = rank

    def ready(self):
        return self.rank

    def generate(self, step):
        time.sleep(0.3)
        batch = [[self.rank * 1000 + step * 100 + i] * 8 for i in range(ROWS)]
        rt.handoff("rollout_batch", batch, key=f"rollout-{self.rank}-{step}", to="train/0")
        return batch


@ray.remote(num_cpus=0)
@rt.traced_actor(role="train")
class Trainer:
    def __init__(self, rank):
        self.rank = rank

    def ready(self):
        return self.rank

    def train(self, step, *batches):
        for source, batch in enumerate(batches):
            rt.handoff("rollout_batch", batch, key=f"rollout-{source}-{step}", received=True)
        time.sleep(0.2)
        return 1.0 / (step + 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=30, help="of a call, in seconds")
    args = parser.parse_args()

    rt.install(role="controller")  # records to RCA_TRACE_DIR
    logging.basicConfig(level=logging.INFO)
    rt.stamp_logs()
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=True,
        runtime_env={"env_vars": rt.ray_environment()},  # the actors record, too
    )  # fmt: skip
    rt.trace_ray()  # what `ray.get` waits for
    rollouts = [rt.traced_handle(Rollout.remote(rank=i), f"rollout/{i}") for i in range(2)]
    trainer = rt.traced_handle(Trainer.remote(rank=0), "train/0")
    ray.get([worker.ready.remote() for worker in (*rollouts, trainer)])  # starting takes its time
    for step in range(args.steps):
        with rt.step(step):
            with rt.stage("rollout"), rt.request():
                batches = [worker.generate.remote(step) for worker in rollouts]
                for batch in batches:
                    ray.get(batch, timeout=args.timeout)
            with rt.stage("train"), rt.request():
                loss = ray.get(trainer.train.remote(step, *batches), timeout=args.timeout)
            log.info("step %d loss %.3f", step, loss)
    log.info("finished")
    ray.shutdown()


if __name__ == "__main__":
    main()
