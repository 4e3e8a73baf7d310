"""The closed vocabularies: cause classes, event kinds, stages, roles, actions.

Growing one of them is a decision and its own commit. An event kind names what happened, not who said it, and never
looks like a cause class.
"""

from __future__ import annotations

from enum import StrEnum

CAUSES: dict[str, str] = {
    "gpu.ecc": "uncorrectable ECC error or failed row remap",
    "gpu.off_bus": "GPU lost from the bus",
    "gpu.nvlink": "NVLink, NVSwitch or fabric manager fault",
    "gpu.hang": "GSP, firmware or driver hang",
    "gpu.thermal": "thermal or power throttling",
    "gpu.sdc": "wrong results without an error",
    "net.rdma": "RDMA NIC or InfiniBand port fault",
    "net.link_flap": "link or switch down",
    "net.loss": "packet loss, congestion or latency surge",
    "net.partition": "hosts cannot reach each other",
    "net.rendezvous": "store, master address, DNS or port in use",
    "net.config": "interface selection, firewall or InfiniBand environment misconfigured",
    "fs.full": "no space left, quota or inodes exhausted",
    "fs.readonly": "file system went read-only, or stale handle",
    "fs.hang": "I/O hang",
    "fs.corrupt": "truncated or corrupt file",
    "fs.lock": "lock contention on a shared cache",
    "fs.permission": "permission denied",
    "host.oom": "host or container memory exhausted",
    "host.cpu": "CPU contention or throttling",
    "host.shm": "/dev/shm exhausted",
    "host.preempt": "preempted, evicted, cancelled or terminated from outside",
    "host.crash": "node down, reboot or kernel panic",
    "host.limits": "file descriptors, file size, processes or another resource limit",
    "host.driver": "driver, CUDA or library version mismatch",
    "sw.cuda_oom": "device memory exhausted by the job itself",
    "sw.device_assert": "device-side assert",
    "sw.illegal_access": "illegal memory access from software",
    "sw.cuda_ipc": "CUDA IPC handle on unsupported memory",
    "sw.collective_mismatch": "ranks issued different collectives, shapes or orders",
    "sw.rank_skew": "one rank slow or in another branch while the rest time out",
    "sw.rank_exception": "a Python exception on one rank",
    "sw.segfault": "crash in native code",
    "sw.dataloader": "DataLoader worker crash, hang or deadlock",
    "sw.deadlock": "deadlock in locks, fork, GIL or collective order",
    "sw.ckpt_format": "checkpoint keys, shapes or version do not match",
    "sw.nan": "NaN or Inf, loss divergence",
    "sw.shape": "shape or dtype mismatch in user code",
    "sw.config": "wrong configuration or argument",
    "sw.dependency": "missing or incompatible package",
    "sw.serialization": "pickling, object store or message size",
    "sw.bug": "another framework bug",
    "sw.false_alarm": "nothing failed",
    "coord.meta_server": "coordinator or metadata server died or ran out of memory",
    "coord.event_lost": "stage switch event not delivered",
    "coord.rpc": "RPC time-out or connection loss between controller and worker",
    "coord.partial_batch": "part of the batch missing after a worker fell short",
    "coord.weight_sync": "weights out of step between train and rollout",
    "coord.actor_died": "remote worker died for a reason the logs do not hold",
}

STAGES = (
    "init", "load", "weights_update", "rollout", "reference", "train", "eval", "save",
    "latest_recover_save", "periodic_recover_save", "recover", "cleanup",
)  # fmt: skip

ROLES = (
    "controller", "train", "rollout", "reference", "reward", "critic", "meta_server", "dataloader",
    "launcher", "scheduler", "other",
)  # fmt: skip

ACTIONS = ("retry", "replace-node", "fix-config", "fix-code", "free-resource", "fix-data", "upgrade", "none")

SEVERITIES = ("info", "warning", "error", "fatal")


class Kind(StrEnum):
    """What happened. Grouped by subject; the comment is the one line of meaning."""

    # A process of the job
    EXCEPTION = "process.exception"  # an uncaught Python exception that no signature knows better
    THREAD_EXCEPTION = "process.thread_exception"  # a helper thread died; the process lives on
    ASSERTION = "process.assertion"  # a Python or C++ assertion failed
    FATAL_SIGNAL = "process.fatal_signal"  # a native crash, as the process itself reports it
    NATIVE_ABORT = "process.native_abort"  # terminate called, glibc abort, a failed enforce
    EXITED = "process.exited"  # the agent or shell saw it end; attrs: exitcode, signal, by_agent
    KILLED = "process.killed"  # ended by a signal nobody in the logs sent
    KILLED_BY_KERNEL = "process.killed_by_kernel"  # the kernel's OOM killer
    UNINTERRUPTIBLE = "process.uninterruptible"  # stuck in the kernel (state D)
    STACK_DUMP = "process.stack_dump"  # a scheduled or requested dump of thread stacks
    LOGGED_ERROR = "log.error"  # an error-level line that no signature knows
    LEAK_WARNING = "process.teardown_noise"  # what a dying process says about its own clean-up
    # The launcher
    AGENT_SIGNALLED = "agent.signalled"  # the launcher itself was told to stop
    AGENT_STOPS_SIBLING = "agent.stops_sibling"  # the launcher ends a healthy sibling
    AGENT_REPORT = "agent.report"  # wrapper: the launcher repeats that a child failed
    AGENT_RESTART = "agent.restart"  # the launcher starts another attempt
    STOP_FAILED = "agent.stop_failed"  # a request to stop a job or worker was not answered
    SCHEDULER_STOP = "scheduler.stop"  # preemption, eviction, cancellation by the scheduler
    SCHEDULER_TIME_LIMIT = "scheduler.time_limit"  # wall-clock limit of the job
    # The run
    STARTED = "run.started"  # the process says who it is
    FINISHED = "run.finished"  # the process says that it is done
    RETRIED = "run.retried"  # something failed, was retried or fell back, and went on
    # Collectives, peers, the store
    COLLECTIVE_TIMEOUT = "collective.timeout"  # waited for peers in vain
    COLLECTIVE_MISMATCH = "collective.mismatch"  # peers issued something else
    WATCHDOG_STUCK = "collective.watchdog_stuck"  # the heartbeat monitor saw no progress
    PEER_LOST = "peer.lost"  # a peer process ended or reset its connection
    STORE_LOST = "store.lost"  # the key-value store's host is gone
    STORE_TIMEOUT = "store.timeout"  # waited for a key that a peer never wrote
    RENDEZVOUS_TIMEOUT = "rendezvous.timeout"  # not all nodes came
    RENDEZVOUS_UNREACHABLE = "rendezvous.unreachable"  # cannot connect to the store's address
    RENDEZVOUS_REFUSED = "rendezvous.refused"  # the store's address refuses connections
    ADDRESS_IN_USE = "address.in_use"  # a port is taken
    ADDRESS_UNRESOLVED = "address.unresolved"  # a host name does not resolve
    ADDRESS_LOOPBACK = "address.loopback"  # a process bound or advertised the wrong interface
    NET_MISCONFIGURED = "net.misconfigured"  # no such interface, device, GID or provider as the settings ask for
    MESH_FAILED = "mesh.failed"  # the full mesh of connections could not be built
    # Network hardware
    LINK_DOWN = "link.down"
    LINK_UP = "link.up"
    NIC_FAULT = "nic.fault"  # RDMA completion error, firmware or port fault
    PACKET_LOSS = "net.retransmits"  # retransmissions or drops rose
    LATENCY_ROSE = "net.latency_rose"  # derived: round trips or requests of one host take many times as long as before
    NIC_ERRORS_ROSE = "nic.errors_rose"  # derived: error counters of one port rose inside the run
    UNREACHABLE = "net.unreachable"  # no route, host unreachable
    # Device
    DEVICE_MEMORY_ERROR = "device.memory_error"  # uncorrectable ECC
    DEVICE_LOST = "device.lost"
    DEVICE_LINK_ERROR = "device.link_error"
    DEVICE_HANG = "device.hang"
    DEVICE_THROTTLED = "device.throttled"
    DEVICE_FAULT_ECHO = "device.fault_echo"  # Xid 43/45 and the like: consequence of a dying process
    DEVICE_NOTICE = "device.notice"  # corrected or handled: no failure
    DEVICE_OOM = "device.out_of_memory"
    DEVICE_HELD = "device.memory_held"  # another process holds the memory that a stage needs
    DEVICE_ASSERT = "device.assert"
    DEVICE_ILLEGAL_ACCESS = "device.illegal_access"
    DEVICE_IPC = "device.ipc_failed"
    WRONG_RESULT = "device.wrong_result"  # a computation, run again or on a replica, gave something else
    DEVICE_ERROR = "device.error"  # an asynchronous CUDA error without more detail
    DRIVER_MISMATCH = "driver.mismatch"
    # Storage
    NO_SPACE = "storage.no_space"
    READ_ONLY = "storage.read_only"
    PERMISSION = "storage.permission"
    IO_ERROR = "storage.io_error"
    STORAGE_HANG = "storage.hang"
    STORAGE_SLOW = "storage.slow"
    LOCKED = "storage.locked"
    MISSING_FILE = "storage.missing"
    DAMAGED = "storage.damaged"  # a file whose container is cut off or overwritten
    CORRUPT_DATA = "data.corrupt"  # a record that does not parse
    # Checkpoints
    SAVE_STARTED = "checkpoint.save_started"
    SAVED = "checkpoint.saved"
    SAVE_FAILED = "checkpoint.save_failed"  # a save failed or was given up, as its caller says; the loop may go on
    SAVE_OPEN = "checkpoint.save_open"  # derived: started, never finished
    WRITE_FAILED = "checkpoint.write_failed"  # the writer's stream broke; errno unknown
    LOAD_STARTED = "checkpoint.load_started"
    LOADED = "checkpoint.loaded"
    CHECKPOINT_INVALID = "checkpoint.invalid"  # truncated or corrupt
    CHECKPOINT_MISMATCH = "checkpoint.mismatch"  # keys, shapes, version differ
    # Host
    SHM_EXHAUSTED = "memory.shm_exhausted"
    SHM_ROOM = "memory.shm_room"  # a table that shows /dev/shm far from full
    HOST_OOM = "memory.exhausted"  # MemoryError, cannot allocate, memory monitor
    MEMORY_GREW = "memory.grew"  # derived: memory of a process, service or host rises step after step
    CPU_THROTTLED = "cpu.throttled"
    CPU_STARVED = "cpu.starved"  # soft lockup, or far more runnable threads than cores
    LIMIT_REACHED = "limit.reached"  # open files, file size, processes
    CLOCK_OFF = "host.clock_off"  # how far a time service says the clock is off; attrs: seconds, way (fast or slow)
    HOST_DOWN = "host.down"  # reboot, panic, node failure
    SWAPS = "host.swaps"  # a task stood still for memory to come back from swap
    HUNG_TASK = "host.hung_task"
    # Software
    FRAMEWORK_ERROR = "framework.internal_error"  # a framework's own state is broken, as it says itself
    NON_FINITE = "numeric.non_finite"
    LOSS_ROSE = "numeric.loss_rose"  # derived: the loss rose and stayed
    LOSS_SPIKE = "numeric.loss_spike"  # derived: the loss jumped and came back by itself
    SHAPE_MISMATCH = "data.shape_mismatch"
    IMPORT_FAILED = "import.failed"
    BAD_ARGUMENT = "argument.invalid"
    BAD_CONFIG = "config.invalid"
    PICKLE_FAILED = "serialization.failed"
    LOADER_WORKER_EXCEPTION = "loader.worker_exception"
    LOADER_WORKER_DIED = "loader.worker_died"
    LOADER_TIMEOUT = "loader.timeout"
    FORK_HAZARD = "loader.fork_hazard"  # CUDA or JAX initialised in a forked worker
    # Requests between processes
    RPC_FAILED = "rpc.failed"
    RPC_TIMEOUT = "rpc.timeout"
    RPC_REFUSED = "rpc.refused"
    RPC_ERROR_REPLY = "rpc.error_reply"  # the callee answered with an error: look at the callee
    ACTOR_DIED = "actor.died"
    SERVICE_LOST = "service.lost"  # a service that several roles use is dead or does not answer
    REQUEST_OPEN = "request.open"  # a request or span that began and has no end
    ENDS_INSIDE = "trace.ends_inside"  # derived: the last that a process wrote is the start of this span; it died in it, or still is
    PARTIAL_RESULT = "batch.partial"
    PAYLOAD_DIFFERS = "payload.differs"  # count, shape or checksum differ between sender and receiver
    BATCH_MISMATCH = "batch.mismatch"
    WEIGHTS_SKIPPED = "weights.update_skipped"
    WEIGHTS_STALE = "weights.stale"
    WEIGHTS_FAILED = "weights.update_failed"
    EVENT_LOST = "event.unacknowledged"
    EVENT_ACKNOWLEDGED = "event.acknowledged"  # a hand-over between stages that every receiver confirmed
    # Derived by detectors: no line states them
    RANK_SILENT = "rank.silent"  # alive, and the others waited for it
    RANK_OUTLIER = "rank.outlier_stack"  # its stack differs from the waiting majority
    RANK_LOG_MISSING = "rank.log_missing"  # a rank of the world left no log
    ACTOR_SILENT = "actor.silent"  # an RPC callee that stopped writing before its caller gave up
    ALL_WAITED = "collective.all_waited"  # every rank timed out: nobody is missing
    CUT_SHORT = "run.cut_short"  # every log ends in the middle at once
    STEPS_SLOWED = "steps.slowed"
    RANK_SLOW = "rank.slow"  # one rank needs longer than the others
    # Said by a replay, which was made after the run: a recorded request was run again, in a fresh process with the recorded input and state
    REPLAY_REPRODUCED = "replay.reproduced"  # it failed again
    REPLAY_NOT_REPRODUCED = "replay.not_reproduced"  # it did not fail again
    REPLAY_DIVERGED = "replay.diverged"  # it gave other numbers
    REPLAY_UNDECIDED = "replay.undecided"  # it cannot tell
    REPLAY_COMPARED = "replay.compared"  # how many of the requests that had not failed came out the same
    REPLAY_HAND_OVER_BROKEN = "replay.hand_over_broken"  # what arrived is not what was sent, as both ends were recorded


#: Shapes of the logs that hosts keep: what stands in one is said of a host, whatever the file is called. In a syslog ranks may have their lines too.
KERNEL_SHAPES = ("kernel", "journal")
HOST_SHAPES = (*KERNEL_SHAPES, "syslog")

#: What a healthy process says because another one died: never a cause by itself.
VICTIM_KINDS = frozenset({
    Kind.PEER_LOST, Kind.COLLECTIVE_TIMEOUT, Kind.STORE_LOST, Kind.STORE_TIMEOUT, Kind.WATCHDOG_STUCK,
    Kind.AGENT_REPORT, Kind.AGENT_STOPS_SIBLING, Kind.DEVICE_FAULT_ECHO, Kind.LEAK_WARNING,
    Kind.RENDEZVOUS_TIMEOUT, Kind.MESH_FAILED, Kind.RPC_FAILED, Kind.RPC_TIMEOUT, Kind.RPC_REFUSED,
    Kind.RPC_ERROR_REPLY, Kind.WEIGHTS_FAILED, Kind.STOP_FAILED,
})  # fmt: skip

#: Kinds that say nothing went wrong; they mark progress and are never evidence of failure.
QUIET_KINDS = frozenset({
    Kind.STARTED, Kind.FINISHED, Kind.RETRIED, Kind.STACK_DUMP, Kind.SAVE_STARTED, Kind.SAVED, Kind.LOAD_STARTED,
    Kind.LOADED, Kind.LINK_UP, Kind.AGENT_RESTART, Kind.DEVICE_NOTICE, Kind.SHM_ROOM, Kind.LOSS_SPIKE, Kind.EVENT_ACKNOWLEDGED, Kind.CLOCK_OFF,
    Kind.ENDS_INSIDE,
})  # fmt: skip

#: Of a replay, and no part of the run: they have no place in its order.
REPLAY_KINDS = frozenset({Kind.REPLAY_REPRODUCED, Kind.REPLAY_NOT_REPRODUCED, Kind.REPLAY_DIVERGED, Kind.REPLAY_UNDECIDED, Kind.REPLAY_COMPARED, Kind.REPLAY_HAND_OVER_BROKEN})
