"""Every line shape seen in real logs, and look-alikes that must stay what they are."""

import timeit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rca.ingest.line import Line, parse, pieces
from rca.ingest.times import iso


def told(text):
    """What the parser read, without the fields that the line did not state; the time as text."""
    fields = {k: v for k, v in parse(text)._asdict().items() if v is not None and v is not False and v != ""}
    if "stamp" in fields:
        fields["stamp"] = iso(fields["stamp"]).rstrip("0").rstrip(".").replace("1972-", "")
    return fields


def said(**fields):
    """The expected fields, written like the call that would build them."""
    return fields


#: line -> everything that is read from it
HEADERS = [
    # levels of three letters behind a time: `INF` is no infinity
    ("2026-04-01 09:37:16.390052 INF gen5 weights @18", said(text="gen5 weights @18", stamp="2026-04-01T09:37:16.390052", level="info", shape="header", prefixed=True)),
    ("2026-04-01 09:37:16 INF detected in the gradient", said(text="INF detected in the gradient", stamp="2026-04-01T09:37:16", shape="header", prefixed=True)),
    # torchrun workers with loggers of users
    ("[2026-11-20 11:32:06] [INFO] [train.py:120] [Rank 0] host=h100-042 pid=30166",
     said(text="host=h100-042 pid=30166", stamp="2026-11-20T11:32:06", level="info", rank=0, shape="header", prefixed=True)),
    ("[2026-11-20 11:32:20] [CRITICAL] [logutil.py:77] [Rank 0] uncaught exception in stage=train step=18",
     said(text="uncaught exception in stage=train step=18", stamp="2026-11-20T11:32:20", level="critical", rank=0, stage="train", step=18, shape="header",
          prefixed=True)),
    ("[2026-11-20 11:50:48] [INFO] [train.py:194] [Rank 3] iteration       12/      60 | elapsed time",
     said(text="iteration       12/      60 | elapsed time", stamp="2026-11-20T11:50:48", level="info", rank=3, step=12, shape="header", prefixed=True)),
    ("2026-11-20 11:32:10,216 [rank0] INFO train: step=1 stage=train loss=7.0559",
     said(text="step=1 stage=train loss=7.0559", stamp="2026-11-20T11:32:10.216", level="info", rank=0, stage="train", step=1, logger="train",
          shape="header", prefixed=True)),
    ("2026-11-20 11:35:43.510 | INFO     | train:main:120 - [h100-042:3] stage=save saving",
     said(text="stage=save saving", stamp="2026-11-20T11:35:43.51", level="info", rank=3, host="h100-042", stage="save", logger="train", shape="header",
          prefixed=True)),
    ("2025-09-29 00:54:11.075 | INFO     | __main__:log_dist:54 - [Rank 0] Creating DeepSpeed engine",
     said(text="Creating DeepSpeed engine", stamp="2025-09-29T00:54:11.075", level="info", rank=0, logger="__main__", shape="header", prefixed=True)),
    ("11/20/2026 11:35:37 - INFO - train - (global_rank=1)   step 3: {'loss': 7.0}",
     said(text="step 3: {'loss': 7.0}", stamp="2026-11-20T11:35:37", level="info", rank=1, step=3, logger="train", shape="header", prefixed=True)),
    ("W1120 11:42:01.224054  4100 train.py:75] [r0] could not import flash_attn",
     said(text="could not import flash_attn", stamp="11-20T11:42:01.224054", level="warning", rank=0, pid=4100, logger="train.py", shape="klog",
          prefixed=True)),
    ('{"ts": "2026-11-20T11:51:19.371583Z", "level": "INFO", "host": "dgx-17", "rank": 0, "stage": "load", "step": 0, "logger": "train", "msg": "x"}',
     said(text="x", stamp="2026-11-20T11:51:19.371583", level="info", rank=0, host="dgx-17", stage="load", step=0, logger="train", shape="json",
          prefixed=True)),
    # single-controller jobs
    ("2026-11-20 11:48:34,828 [controller] INFO asystem: all 4 workers are up",
     said(text="all 4 workers are up", stamp="2026-11-20T11:48:34.828", level="info", actor="controller", logger="asystem", shape="header", prefixed=True)),
    ("20261120-11:49:29.471 engine_train-0 13427 ERROR common.py:42] request /train failed",
     said(text="request /train failed", stamp="2026-11-20T11:49:29.471", level="error", pid=13427, actor="engine_train-0", shape="header", prefixed=True)),
    ("[ERROR] [11-20 11:49:08] [meta_server] [_run] request /v1/get_binary?version=2 failed",
     said(text="request /v1/get_binary?version=2 failed", stamp="11-20T11:49:08", level="error", actor="meta_server", shape="header", prefixed=True)),
    ("[INFO] [11-20 11:48:58] [controller] [set_stage] step=1 stage=weights_update begin",
     said(text="step=1 stage=weights_update begin", stamp="11-20T11:48:58", level="info", actor="controller", stage="weights_update", step=1,
          shape="header", prefixed=True)),
    ("2026-09-04 18:22:02,865 INFO [driver] [step 1] weight-sync: start",
     said(text="[step 1] weight-sync: start", stamp="2026-09-04T18:22:02.865", level="info", actor="driver", step=1, shape="header", prefixed=True)),
    ("2026-09-04 18:22:16,249 INFO [httpx] HTTP Request: POST http://10.0.0.4:30004/x",
     said(text="HTTP Request: POST http://10.0.0.4:30004/x", stamp="2026-09-04T18:22:16.249", level="info", logger="httpx", shape="header", prefixed=True)),
    ("2026-09-19 11:28:59,099\tINFO meta_server.py:131 -- 23790 -- [23790] Created meta server",
     said(text="[23790] Created meta server", stamp="2026-09-19T11:28:59.099", level="info", pid=23790, shape="header", prefixed=True)),
    ('ts=1792720333.514 level=info src=driver msg="[step 1] weight-sync: start"',
     said(text="[step 1] weight-sync: start", stamp="2026-10-23T01:52:13.514", level="info", actor="driver", step=1, shape="logfmt", prefixed=True)),
    ("(AReaL) 20260821-21:02:57.375 [RemoteHybridTrainWorker Rank 2] INFO: reference worker 0 pid=45242",
     said(text="reference worker 0 pid=45242", stamp="2026-08-21T21:02:57.375", level="info", rank=2, actor="RemoteHybridTrainWorker", shape="areal",
          prefixed=True)),
    ("(AReaL) 20260821-21:11:09.831 StatsLogger INFO: Epoch 1/3 Step 1/512 Train step 513/1536 done.",
     said(text="Epoch 1/3 Step 1/512 Train step 513/1536 done.", stamp="2026-08-21T21:11:09.831", level="info", step=513, logger="StatsLogger",
          shape="areal", prefixed=True)),
    ("(AReaL) 20260919-13:32:33.913 [RemoteHybridTrainWorker Rank 0] ERROR: error_type: TrainEngineError, sub_error: UploadWeightsError,",
     said(text="error_type: TrainEngineError, sub_error: UploadWeightsError,", stamp="2026-09-19T13:32:33.913", level="error", rank=0,
          actor="RemoteHybridTrainWorker", shape="areal", prefixed=True)),
    # frameworks
    ("INFO:2026-11-13 12:22:03,545:resume_memory_occupation done, step 118",
     said(text="resume_memory_occupation done, step 118", stamp="2026-11-13T12:22:03.545", level="info", step=118, shape="header", prefixed=True)),
    ("ERROR:2026-09-29 06:42:59,426:update_weights_from_distributed: torch.distributed.DistBackendError: x",
     said(text="update_weights_from_distributed: torch.distributed.DistBackendError: x", stamp="2026-09-29T06:42:59.426", level="error", shape="header",
          prefixed=True)),
    ("WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 812914 closing signal SIGTERM",
     said(text="Sending process 812914 closing signal SIGTERM", level="warning", logger="torch.distributed.elastic.multiprocessing.api", shape="header",
          prefixed=True)),
    ("[2024-02-09 09:09:15,164] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1)",
     said(text="failed (exitcode: 1)", stamp="2024-02-09T09:09:15.164", level="error", logger="torch.distributed.elastic.multiprocessing.api",
          shape="header", prefixed=True)),
    ("E1120 11:32:21.985000 30106 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 2",
     said(text="failed (exitcode: 1) local_rank: 2", stamp="11-20T11:32:21.985", level="error", pid=30106,
          logger="torch/distributed/elastic/multiprocessing/api.py", shape="klog", prefixed=True)),
    ("INFO 02-05 09:11:53 model_runner.py:1118] Loading model weights ...",
     said(text="Loading model weights ...", stamp="02-05T09:11:53", level="info", shape="header", prefixed=True)),
    ("ERROR 05-02 21:36:34 [core.py:464] Invocation of collective_rpc method failed",
     said(text="Invocation of collective_rpc method failed", stamp="05-02T21:36:34", level="error", shape="header", prefixed=True)),
    ("[2025-06-26 07:25:31 DP4 TP4] Watchdog timeout (self.watchdog_timeout=300)",
     said(text="Watchdog timeout (self.watchdog_timeout=300)", stamp="2025-06-26T07:25:31", shape="header", prefixed=True)),
    ("[2026-08-20 10:00:00.123 actor_cell0_rank3] timer.py:34 - Timer train start",
     said(text="Timer train start", stamp="2026-08-20T10:00:00.123", rank=3, actor="actor_cell0_rank3", shape="header", prefixed=True)),
    ("[titan] 2025-01-01 00:00:00,123 - root - INFO - step:  7  loss: 12.1234",
     said(text="step:  7  loss: 12.1234", stamp="2025-01-01T00:00:00.123", level="info", step=7, logger="root", shape="header", prefixed=True)),
    ("[WARNING|trainer.py:123] 2025-01-01 00:00:00,000 >> msg",
     said(text="msg", stamp="2025-01-01T00:00:00", level="warning", shape="header", prefixed=True)),
    ("[NeMo E 2026-04-11 14:46:18 nemo_logging:393] Checkpoint not found",
     said(text="Checkpoint not found", stamp="2026-04-11T14:46:18", level="error", logger="nemo_logging:393", shape="nemo", prefixed=True)),
    (" [2026-04-11 14:46:18.123456] iteration       10/     100 | consumed samples:         2560",
     said(text="iteration       10/     100 | consumed samples:         2560", stamp="2026-04-11T14:46:18.123456", step=10, shape="header", prefixed=True)),
    ("INFO:     10.0.0.1:52504 - \"POST /init_communicator/ HTTP/1.1\" 200 OK",
     said(text='10.0.0.1:52504 - "POST /init_communicator/ HTTP/1.1" 200 OK', level="info", shape="header", prefixed=True)),
    ("2026-04-18 12:19:16,551 INFO    MainThread:4105 [wandb_setup.py:_flush():81] msg",
     said(text="msg", stamp="2026-04-18T12:19:16.551", level="info", pid=4105, shape="header", prefixed=True)),
    ("[01:41:58] step 1920/2000 | loss 0.00074",
     said(text="step 1920/2000 | loss 0.00074", step=1920, shape="header", prefixed=True)),
    ("2023-06-12 13:00:10.999771: F external/org_tensorflow/compiler/nvptx_compiler.cc:458] ptxas returned an error",
     said(text="ptxas returned an error", stamp="2023-06-12T13:00:10.999771", level="critical", shape="header", prefixed=True)),
    # loggers nobody has seen
    ("2026-11-20 11:32:06.123 UTC [12345] ERROR x", said(text="x", stamp="2026-11-20T11:32:06.123", level="error", pid=12345, shape="header", prefixed=True)),
    ("[2026-11-20 11:32:06,123][__main__][INFO] - msg",
     said(text="msg", stamp="2026-11-20T11:32:06.123", level="info", logger="__main__", shape="header", prefixed=True)),
    ("rank=3 | 2026-11-20 11:32:06 | INFO | msg", said(text="msg", stamp="2026-11-20T11:32:06", level="info", rank=3, shape="header", prefixed=True)),
    ("2026-11-20 11:32:06 | rank3 | ERROR | msg", said(text="msg", stamp="2026-11-20T11:32:06", level="error", rank=3, shape="header", prefixed=True)),
    ("2026-11-20 11:32:06,123 - trainer - ERROR - boom",
     said(text="boom", stamp="2026-11-20T11:32:06.123", level="error", actor="trainer", shape="header", prefixed=True)),
    ("[trainer][rank=3][INFO] msg", said(text="msg", level="info", rank=3, actor="trainer", shape="header", prefixed=True)),
    ("2026-11-20T11:32:06.123456Z [info     ] done step=3",
     said(text="done step=3", stamp="2026-11-20T11:32:06.123456", level="info", step=3, shape="header", prefixed=True)),
    ("2026-11-20 11:32:06 INFO [gpt2:55] x", said(text="[gpt2:55] x", stamp="2026-11-20T11:32:06", level="info", shape="header", prefixed=True)),
    ("2026-11-20 11:32:06 INFO [local_rank=1][rank=9] loading: x",
     said(text="loading: x", stamp="2026-11-20T11:32:06", level="info", rank=9, local_rank=1, shape="header", prefixed=True)),
    ("2026-11-20 11:32:06 INFO [local_rank=3] x", said(text="x", stamp="2026-11-20T11:32:06", level="info", local_rank=3, shape="header", prefixed=True)),
]  # fmt: skip

NATIVE = [
    ("[rank1]:[E1118 20:32:23.955028747 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught",
     said(text="[Rank 0] Watchdog caught", stamp="11-18T20:32:23.955028747", level="error", rank=1, stream="rank1", logger="ProcessGroupNCCL.cpp",
          shape="c10d", prefixed=True)),
    ("[rank0]:[E ProcessGroupNCCL.cpp:523] [Rank 0] Watchdog caught",
     said(text="[Rank 0] Watchdog caught", level="error", rank=0, stream="rank0", logger="ProcessGroupNCCL.cpp", shape="c10d", prefixed=True)),
    ("[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught",
     said(text="[Rank 1] Watchdog caught", level="error", rank=1, logger="ProcessGroupNCCL.cpp", shape="c10d", prefixed=True)),
    ("[W1120 11:32:04.637501799 socket.cpp:207] [c10d] The hostname",
     said(text="[c10d] The hostname", stamp="11-20T11:32:04.637501799", level="warning", logger="socket.cpp", shape="c10d", prefixed=True)),
    ("[rank0]:I0106 09:00:00.123456 811 torch/csrc/x.cpp:2311] [PG ID 0 PG GUID 0 Rank 0] last",
     said(text="[PG ID 0 PG GUID 0 Rank 0] last", stamp="01-06T09:00:00.123456", level="info", rank=0, pid=811, stream="rank0",
          logger="torch/csrc/x.cpp", shape="klog", prefixed=True)),
    ("vale-39:84069:10010 [0] transport/net_ib.cc:1304 NCCL WARN NET/IB : Got completion",
     said(text="NCCL WARN NET/IB : Got completion", level="warning", host="vale-39", pid=84069, shape="nccl", prefixed=True)),
    ("[2026-08-04 15:04:08] cn048-g:24923:25113 [3] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: x",
     said(text="NCCL WARN NET/IB: x", stamp="2026-08-04T15:04:08", level="warning", host="cn048-g", pid=24923, shape="nccl", prefixed=True)),
    ("h1:1:2 [0] NCCL INFO comm 0x5 rank 3 nranks 8 cudaDev 0",
     said(text="NCCL INFO comm 0x5 rank 3 nranks 8 cudaDev 0", level="info", host="h1", pid=1, shape="nccl", prefixed=True)),
    ("[2023-05-19 12:35:18,347 E 4259 68399276] (raylet) io_service_pool.cc:35: x",
     said(text="x", stamp="2023-05-19T12:35:18.347", level="error", pid=4259, actor="raylet", shape="ray_core", prefixed=True)),
    ("slurmstepd: error: *** JOB 1 ON r6 CANCELLED AT 2022-03-03T21:42:11 DUE TO TIME LIMIT ***",
     said(text="slurmstepd: error: *** JOB 1 ON r6 CANCELLED AT 2022-03-03T21:42:11 DUE TO TIME LIMIT ***", stamp="2022-03-03T21:42:11", level="error",
          actor="slurmstepd", shape="slurm", prefixed=True)),
    ("[2026-01-15T08:52:15.650] error: Detected 3 oom_kill events", said(text="Detected 3 oom_kill events", stamp="2026-01-15T08:52:15.65", level="error",
                                                                        shape="slurm", prefixed=True)),
    ("[Fri Nov 20 11:24:10 2026] EXT4-fs error", said(text="EXT4-fs error", stamp="2026-11-20T11:24:10", shape="kernel", prefixed=True)),
    ("Aug  1 06:23:51 ip-10-4 kernel: [988509.924056] NVRM: Xid 79", said(text="NVRM: Xid 79", stamp="08-01T06:23:51", host="ip-10-4", shape="kernel",
                                                                          prefixed=True)),
    ("2026-10-10T12:44:53+0000 pod-45 kernel: IPv6: x", said(text="IPv6: x", stamp="2026-10-10T12:44:53", host="pod-45", shape="kernel", prefixed=True)),
    ("2026-11-20T11:24:10,907925+00:00 loop0: detected", said(text="loop0: detected", stamp="2026-11-20T11:24:10.907925", shape="kernel", prefixed=True)),
    ("2026-11-20T11:55:58 gn41 nodemon: eth0 carrier=1", said(text="eth0 carrier=1", stamp="2026-11-20T11:55:58", host="gn41", actor="nodemon",
                                                              shape="syslog", prefixed=True)),
    ("2026-11-20T11:50:30.908Z worker-0 cgroup-exporter: pod=p67 pids=15155",
     said(text="pod=p67 pids=15155", stamp="2026-11-20T11:50:30.908", host="worker-0", actor="cgroup-exporter", shape="syslog", prefixed=True)),
    ('{"__REALTIME_TIMESTAMP": "1790505250972227", "_HOSTNAME": "dgx-a15", "_TRANSPORT": "kernel", "PRIORITY": "3", "MESSAGE": "NVRM: Xid"}',
     said(text="NVRM: Xid", stamp="2026-09-27T10:34:10.972227", level="error", host="dgx-a15", shape="journal", prefixed=True)),
    ("*** Aborted at 1756211645 (unix time) try \"date -d @1756211645\" if you are using GNU date ***",
     said(text="*** Aborted at 1756211645 (unix time) try \"date -d @1756211645\" if you are using GNU date ***", stamp="2025-08-26T12:34:05",
          level="critical", shape="abort", prefixed=True)),
    ("# Tue, 08 Sep 2026 08:40:26 +0000", said(text="# Tue, 08 Sep 2026 08:40:26 +0000", stamp="2026-09-08T08:40:26", shape="heading", prefixed=True)),
]  # fmt: skip

WRAPPED = [
    ("[default1]:  File \"/venv/x.py\", line 367, in wrapper",
     said(text='  File "/venv/x.py", line 367, in wrapper', local_rank=1, stream="default1", shape="tee")),
    ("[default2]:2026-11-20 11:42:29,750 [rank10] INFO train: step=1",
     said(text="step=1", stamp="2026-11-20T11:42:29.75", level="info", rank=10, local_rank=2, step=1, stream="default2", logger="train", shape="header",
          prefixed=True)),
    ("[default7]: iteration    31214/  115311 | consumed samples:     47768496",
     said(text=" iteration    31214/  115311 | consumed samples:     47768496", local_rank=7, step=31214, stream="default7", shape="tee")),
    ("[rank3]:   File \"train.py\", line 10, in <module>",
     said(text='  File "train.py", line 10, in <module>', rank=3, stream="rank3", shape="rank")),
    ("704.7s\t1388\t[rank1]:[E325 17:13:23.163175227 ProcessGroupGloo.cpp:153] Rank 1 reached",
     said(text="Rank 1 reached", stamp="03-25T17:13:23.163175227", level="error", rank=1, stream="rank1", logger="ProcessGroupGloo.cpp", shape="c10d",
          prefixed=True)),
    ("0: [rank0]:[W305 03:55:35.235035264 socket.cpp:469] [c10d]",
     said(text="[c10d]", stamp="03-05T03:55:35.235035264", level="warning", rank=0, stream="0/rank0", logger="socket.cpp", shape="c10d", prefixed=True)),
    ("(WorkerDict pid=47791, ip=10.34.156.81) [rank1]:[E929 06:42:58.922410870 ProcessGroupNCCL.cpp:629] [Rank 1] x",
     said(text="[Rank 1] x", stamp="09-29T06:42:58.92241087", level="error", rank=1, host="10.34.156.81", pid=47791, actor="WorkerDict",
          stream="WorkerDict 47791 10.34.156.81/rank1", logger="ProcessGroupNCCL.cpp", shape="c10d", prefixed=True)),
    ("(TaskRunner pid=28333) step:118 - global_seqlen/mean:258048.0 - actor/entropy:0.3300",
     said(text="step:118 - global_seqlen/mean:258048.0 - actor/entropy:0.3300", pid=28333, actor="TaskRunner", step=118, stream="TaskRunner 28333",
          shape="ray")),
    ("(RayWorker pid=17913)     @     0x163ecc7fc573       3200  (unknown) [repeated 3x across cluster]",
     said(text="    @     0x163ecc7fc573       3200  (unknown)", pid=17913, actor="RayWorker", stream="RayWorker 17913", shape="ray",
          extra={"repeated": 3})),
    ("(AsyncEngine pid=7) (EngineCore_DP2 pid=72251) ERROR 03-26 20:21:53 [core.py:1301] Traceback (most recent call last):",
     said(text="Traceback (most recent call last):", stamp="03-26T20:21:53", level="error", pid=72251, actor="EngineCore_DP2",
          stream="AsyncEngine 7/EngineCore_DP2 72251", shape="header")),
    ("\x1b[36m(WorkerDict pid=10)\x1b[0m \x1b[32mINFO\x1b[0m:2026-11-13 12:22:03,545:x",
     said(text="x", stamp="2026-11-13T12:22:03.545", level="info", pid=10, actor="WorkerDict", stream="WorkerDict 10", shape="header", prefixed=True)),
    ("[actor]   (AReaL) 20260301-16:31:00.425 [FSDPEngine Rank 3] INFO: x",
     said(text="x", stamp="2026-03-01T16:31:00.425", level="info", rank=3, actor="actor", stream="actor", shape="areal", prefixed=True)),
    ("[ATinker Server] (RayWorker pid=1) 20260413-15:07:21.776 SyncRPCServer ERROR: Engine method 'save' failed:",
     said(text="Engine method 'save' failed:", stamp="2026-04-13T15:07:21.776", level="error", pid=1, actor="RayWorker", logger="SyncRPCServer",
          stream="ATinker Server/RayWorker 1", shape="header", prefixed=True)),
    ("Dec 03 10:22:16 [rank0]:   File \"/app/x.py\", line 439",
     said(text='  File "/app/x.py", line 439', stamp="12-03T10:22:16", rank=0, stream="rank0", shape="rank")),
    ("Dec 03 10:22:16 2026-12-23 10:22:12,989 [INFO][rank=1] Initialized",
     said(text="Initialized", stamp="2026-12-23T10:22:12.989", level="info", rank=1, shape="header", prefixed=True)),
    ("2025-07-03T14:20:51.565839352Z stdout F   File \"x.py\"", said(text='  File "x.py"', stamp="2025-07-03T14:20:51.565839352", shape="cri")),
    ("node-7: [rank3]: KeyError: 3", said(text="KeyError: 3", rank=3, host="node-7", stream="node-7/rank3", shape="rank")),
    ('{"log":"[rank0]: KeyError\\n","stream":"stderr","time":"2025-07-03T14:20:51.565839352Z"}',
     said(text="KeyError", stamp="2025-07-03T14:20:51.565839352", rank=0, stream="rank0", shape="rank")),
    ("stderr: [rank0]: KeyError", said(text="KeyError", rank=0, stream="rank0", shape="rank")),
]  # fmt: skip

#: Lines of messages and tracebacks, and look-alikes of headers: nothing may be read from them but what stands here.
PLAIN = [
    ("", {}),
    ('  File "train.py", line 234, in <module>', {}),
    ("    loss = model(batch, step=3, rank=2)", {}),
    ("    [rank3 for rank3 in x]", {}),
    ("    ^^^^^^^^^^^^", {}),
    ("RuntimeError: rank 3 timed out at step=12", {}),
    ("waiting for rank 3", {}),
    ("x = y[10:200]", {}),
    ("[10:200] of the tensor", {}),
    ("[1]:", {}),
    ("  rank      : 1 (local_rank: 1)", {}),
    ("iterations:  0 | samples per second: 19.474", {}),
    ("step by step", {}),
    ("Round 1: The node status are {1: False}", {}),
    ("0, vendor err 129 (Recv)", {}),
    ("[...]", {}),
    ("[slime-pp_0] Update weights: 8it [00:01,  5.46it/s]", {}),
    ("{'loss': 0.0, 'grad_norm': nan}", {}),
    ('{"resourceSpans":[{"resource":{}}]}', {}),
    ('{"a": 1', {}),
    ("2026-10-27 18:51:46", {}),
    ("17  0      0 1484973334 812344 192000000    0    0   150  2501", {}),
    ("NVRM: Xid (PCI:0000:06:00): 79, pid=..., GPU has fallen off the bus.", {}),
    ("wandb: Run data is saved locally", {}),
    ("No ERROR found in 3 files", {}),
    ("the INFO level is used", {}),
    ("   0: rust_begin_unwind", {}),
    ("terminate called after throwing an instance of 'c10::DistBackendError'", {}),
    ("  what():  [PG ID 0 PG GUID 0(default_pg) Rank 5] Process group watchdog", {}),
    ("Timeout (0:30:00)!", {}),
    (" iteration     7000/  159576 | consumed samples:       260912", {"step": 7000}),
    ("========================= Step 3/100 =========================", {"step": 3}),
    ("[step 12] loss 3", {"step": 12}),
    ("{'loss': 0.1, 'step': 12}", {"step": 12}),
]  # fmt: skip

#: Behind a header: what of the message is no rank, no step and no stage.
MESSAGES = [
    ("waiting for rank 3", {}),
    ("rank 3 did not answer", {}),
    ("[10:200] slice", {}),
    ("[utils:55] x", {}),
    ("loading: rank=3 done", {}),
    ("[node_rank=1] x", {}),
    ("[tp_rank=1] x", {}),
    ("[Rank -1] x", {}),
    ("Resuming from /ckpt/global_step_200", {}),
    ("max_steps=500 warmup_steps=10 epoch_step=3", {}),
    ("rolled back to step 20", {}),
    ("stages=4 backstage=3 p.stage=x", {}),
    ("start step 0", {}),
    ("optimizer.step(step_size=3)", {}),
    ("epoch: 0, epoch_step: 1, global_step:13", {"step": 13}),
    ("start to update weight, step: 1, epoch: 0", {"step": 1}),
    ("loss is inf at step 27; aborting", {"step": 27}),
    ("saving checkpoint at iteration      10 to /ckpt", {"step": 10}),
    ('stage="save" step=3', {"stage": "save", "step": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), HEADERS + NATIVE + WRAPPED, ids=lambda v: v[:50] if isinstance(v, str) else "")
def test_shape(text, expected):
    """Each real shape gives exactly what it states."""
    assert told(text) == expected


@pytest.mark.parametrize(("text", "expected"), PLAIN, ids=lambda v: v[:40] if isinstance(v, str) else "")
def test_plain(text, expected):
    """A line without a header keeps its text and states nothing."""
    assert told(text) == ({"text": text} if text else {}) | {"shape": "plain"} | expected


@pytest.mark.parametrize(("message", "expected"), MESSAGES, ids=[m[0][:40] for m in MESSAGES])
def test_message(message, expected):
    """Ranks, steps and stages that a message only mentions are not taken."""
    fields = told(f"2026-11-20 11:32:06,123 ERROR x.py:3] {message}")
    assert {k: v for k, v in fields.items() if k in ("rank", "local_rank", "host", "stage", "step")} == expected


@pytest.mark.parametrize("body", ['  File "core.py", line 461, in run', "    output = method(", "Traceback (most recent call last):"])
@pytest.mark.parametrize("head", ["ERROR 05-02 21:36:34 [core.py:464] ", "E1120 11:32:21.985000 30106 torch/run.py:1] ", "Dec 03 10:22:16 ",
                                  "(EngineCore pid=3) ERROR 05-02 21:36:34 [core.py:464] "])  # fmt: skip
def test_repeated_header(head, body):
    """A header that is repeated on the lines of a traceback does not end it, and the indentation stays."""
    found = parse(head + body)
    assert (found.text, found.prefixed, found.stamp is not None) == (body, False, True)


def test_end_of_repeated_traceback():
    """vLLM and torch also repeat the header on the line that names the exception; other loggers begin anew there."""
    assert not parse("ERROR 05-02 21:36:34 [core.py:464] RuntimeError: NCCL error").prefixed
    assert parse("2026-11-20 11:32:06,123 ERROR RuntimeError: NCCL error").prefixed


def test_times_of_carrier_and_line():
    """The line's own time wins, in the zone that the container runtime's shows it to be of; that one is kept beside it."""
    found = parse("2025-07-03T14:20:51.565839352Z stdout F [default3]:2025-07-03 22:20:50,123 INFO step=3")
    assert (iso(found.stamp)[:23], iso(found.extra["carrier"])[:19], found.stream) == ("2025-07-03T14:20:50.123", "2025-07-03T14:20:51", "default3")
    assert found.stamp.has_zone


def test_traceback_inside_json():
    """A traceback in a record comes as `extra`, not as text."""
    trace = "Traceback (most recent call last):\\n  File \\\"x.py\\\", line 3\\nKeyError: 3"
    found = parse(f'{{"time": "2026-11-20T11:51:19Z", "level": "error", "rank": 2, "msg": "failed", "exc_info": "{trace}"}}')
    assert (found.text, found.rank, found.extra["exc"].splitlines()[-1]) == ("failed", 2, "KeyError: 3")
    found = parse(f'{{"time": "2026-11-20T11:51:19Z", "level": "error", "message": "run aborted\\n{trace}"}}')
    assert (found.text, found.extra["exc"].splitlines()[-1]) == ("run aborted", "KeyError: 3")


def test_error_file():
    """torchelastic's error file nests message, traceback and time."""
    found = parse('{"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1757221378"}}}')
    assert (found.text, found.extra["exc"], iso(found.stamp)[:19]) == ("RuntimeError: x", "Traceback ...", "2025-09-07T05:02:58")


FRAGMENTS = st.sampled_from(
    ["[", "]", "(", ")", "{", "}", ":", " ", "  ", "\t", "\r", "\x1b[36m", "\x1b", "[rank3]: ", "[default1]:", "[E1118 20:32:23.955028747 x.cpp:6] ", "INFO", "ERROR ",
     "2026-11-20 11:32:06,123", "11-20 11:32:06", "Nov 20 11:32:06", "1792197898.5", "h1:1:2 [0] NCCL WARN ", "(W pid=3) ", "rank", "step=", "stage=", "step 3",
     '{"msg": "', '"}', "ts=3 ", 'msg="', "\\", "slurmstepd: ", "Traceback (most recent call last)", "[Rank 3] ", "[1,3]<stderr>:", "- ", "| ", "5月 27 11:11:11 a kernel: ",
     "999999999999999999999", "\ud800", "é", "kernel: ", "*** Aborted at 1756211645 ", "(AReaL) ", "[repeated 3x across cluster]"]
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.one_of(st.text(max_size=400), st.lists(FRAGMENTS, max_size=12).map("".join)))
@example("{" * 50_000)
@example('{"msg":' * 2000 + "}")
@example("12:00:00 (a pid=1) " * 3000)
@example("\x1b\x1b3/20 [00:01, 2it/s]slurmstepd: x slurmstepd: y")
@example('{"log":"{\\"log\\":1}","stream":"","time":""}')
@example('{"ts": 1e400, "level": {}, "msg": [], "rank": 1e400, "pid": {}, "host": {}, "exc": {"type": []}}')
@example('{"ts": NaN, "level": 30, "msg": null, "step": NaN, "rank": -1, "name": 3}')
def test_never_raises(text):
    """Any string at all gives a Line and at least one piece."""
    found = parse(text)
    assert isinstance(found, Line)
    assert isinstance(found.text, str) and isinstance(found.stream, str) and isinstance(found.shape, str)
    assert found.rank is None or found.rank >= 0
    assert pieces(text)
    for piece in pieces(text):
        parse(piece)


@pytest.mark.parametrize("unit", ["[", "a", "1", " ", "(a ", "[12:00:00] ", "\r", "[rank1]: ", "NCCL WARN ", "x - ", "a::", "k=\"", "step ", "\x1b["])
def test_linear_time(unit):
    """A hostile line of 64 KiB, the most that is ever parsed, costs no more than a fraction of a second."""
    text = unit * (65536 // len(unit))
    assert timeit.timeit(lambda: (parse(text), pieces(text)), number=1) < 1.0


@pytest.mark.parametrize(
    ("text", "budget_us"),
    [
        ("2026-11-20 11:32:10,216 [rank0] INFO train: stage=train step=12 loss=7.0559 grad_norm=0.620", 6),
        ("[2026-11-20 11:32:06] [INFO] [train.py:120] [Rank 0] step=12 loss=7.0559 grad_norm=0.620", 6),
        ('  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1759, in _wrapped_call_impl', 2),
        ('[default1]:  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1759, in x', 2),
    ],
)
def test_fast(text, budget_us):
    """The budget of one line, eightfold because test machines are shared and slow."""
    best = min(timeit.repeat(lambda: parse(text), number=200, repeat=50)) / 200 * 1e6
    assert best < 8 * budget_us
