"""A home-grown Chinese trainer: Chinese texts, its own logger shape, one file per role and machine, times with milliseconds after a comma."""

from __future__ import annotations

from coupling.simulate.dialects import Dialect
from coupling.simulate.world import Fact

LEVELS = {"I": "信息", "W": "警告", "E": "错误", "D": "调试", "raw": ""}


class Spoken(Dialect):
    name = "cn_trainer"
    per_host = True
    package = "lingxi"
    stages = {"weights_update": "权重同步", "rollout": "采样生成", "reference": "参考模型打分", "train": "策略训练", "latest_recover_save": "保存最新断点", "periodic_recover_save": "保存周期断点", "recover": "断点恢复", "init": "初始化"}
    methods = {"upload_weights": "上传权重", "update_weights": "更新权重", "generate": "生成", "compute_logp": "计算参考概率", "train_batch": "训练一步", "save": "保存断点", "load": "加载断点", "switch": "显存切换", "wake": "恢复显存", "rollout_start": "切到生成", "rollout_end": "生成结束", "train_start": "切到训练"}
    roles = {"train": "训练进程", "rollout": "推理进程", "reference": "参考进程", "controller": "主控", "meta_server": "参数服务"}
    files = {"train": "trainer", "rollout": "infer", "reference": "ref", "controller": "master", "meta_server": "param_server"}
    worker_name = "{role}{i}"
    words = {
        "job_begin": "任务 {job} 启动，从第 {first} 步开始",
        "conf": "配置: 权重同步方式={mode} 每步样本数={batch} 请求超时={limit}秒 断点目录={mount}/{job}",
        "worker_up": {"": "{me} 就绪 主机={host} 地址={ip}:{port} 进程号={pid} 显卡={gpu}", "train": "{me} 就绪 全局rank={rank} 主机={host} 地址={ip} 进程号={pid} 显卡={gpu}"},
        "ready": "全部 {workers} 个进程就绪",
        "step_begin": "===== 第 {step} 步 =====",
        "stage_begin": "[第{step}步] 开始{stage}",
        "stage_end": "[第{step}步] {stage}完成，用时 {secs:.1f} 秒",
        "switch_ask": "发送事件“{event}” -> {peer}",
        "switch_got": "收到事件“{event}”",
        "switch_ok": "{peer} 已确认“{event}”",
        "switch_failed": ["E|事件“{event}”发送给 {peer}（{peer_ip}）失败：{why}，{secs} 秒内无确认，跳过", "W|{peer}（{peer_ip}）没有应答“{event}”（{why}，{secs}s），当作已切换"],
        "mem_free": "释放显存 {before:.1f}GB -> {after:.1f}GB",
        "mem_take": "占用显存 {gb:.1f}GB",
        "wu_send": "权重 v{version} 已发送，{secs:.1f} 秒",
        "wu_recv": "权重 v{version} 已生效",
        "gen_begin": "接到 {n} 条请求",
        "gen_beat": "生成中：运行 {run} 排队 {queue} 吞吐 {toks:.0f} token/s",
        "gen_end": "完成 {n} 条，用时 {secs:.1f} 秒",
        "part_in": "收到 {peer} 返回 {n} 条，累计 {got}/{want}",
        "send_retry": "W|结果回传失败（{why}），第 {n} 次重试",
        "call_timeout": ["W|等待 {peer}（{peer_host}）的“{method}”结果超时，{secs} 秒", "W|{peer}（{peer_host}）{secs}s 没有响应（{method}）"],
        "go_on_partial": ["W|缺少 {missing} 个推理进程的结果，按已收到的 {got}/{want} 条继续", "W|采样到达截止时间，丢弃未返回部分，本步样本数 {got}", "W|有 {missing} 个推理进程没回来，先用 {got} 条训练"],
        "merged": "批次合并完成，共 {got} 条",
        "engine_lost": "W|{peer}（{peer_host}）{quiet} 秒无心跳，已摘除",
        "rerouted": "{peer} 的请求转给其他进程",
        "logp_begin": "开始打分 {rows} 条",
        "logp_end": "打分完成 {rows} 条，{secs:.1f} 秒",
        "logp_in": "收到 {peer} 的参考概率 {rows} 条，{bytes} 字节",
        "train_iter": "损失={loss:.4f} 梯度范数={gnorm:.3f} 显存={gb:.1f}GB",
        "oom_retried": "W|显存不足（已用 {gb:.1f}GB），减半微批后重试成功",
        "save_begin": "写断点 {path}",
        "save_end": "断点写入成功 {path}（{gb:.1f}GB）",
        "save_failed": "E|断点写入失败 {path}：{why}",
        "save_warn": ["W|{peer} 保存断点未成功，忽略并继续：{why}", "W|断点没存全（{peer}：{why}），下一步会重新保存，先不管"],
        "save_slow": ["W|保存断点超时：{peer}（{peer_host}）{secs} 秒未返回，不再等待，继续训练", "W|存断点太慢，{peer}（{peer_host}）{secs}s 还没写完，跳过等待"],
        "recover_begin": "从断点恢复：{path}",
        "store_put": "写入 {blob} 共 {mb:.0f}MB",
        "store_size": "当前占用内存 {gb:.1f}GB，键数 {keys}",
        "store_down": "E|参数服务退出",
        "call_error": "E|调用 {peer}（{peer_host}）“{method}”失败，状态码 {status}：{body}",
        "call_retry": "W|调用 {peer}“{method}”失败：{why}，第 {n} 次重试",
        "call_recovered": "调用 {peer}“{method}”重试成功（第 {n} 次）",
        "exc": "E|未捕获异常\n{trace}",
        "sigterm": "W|收到 SIGTERM 信号",
        "stage_failed": "E|第 {step} 步{stage}失败：{failure}",
        "cleanup_begin": "开始清理，停止所有进程",
        "stop_ask": "停止 {peer}",
        "stop_ok": "{peer} 已停止",
        "stop_timeout": "E|停止 {peer} 超时（{secs} 秒）",
        "job_failed": "E|任务失败：{failure}",
        "step_end": "[第{step}步] 总用时 {secs:.1f} 秒 奖励 {reward:.3f} 损失 {loss:.4f}",
        "job_end": "任务完成，共训练到第 {steps} 步，模型已保存",
        "upgraded": "框架版本 {old} 升级为 {new}",
        "stopped_by_user": "用户手动停止任务",
    }  # fmt: skip
    errors = {
        "ref_shape": ["张量形状错误|期望 {want} 行，实际 {got} 行", "RuntimeError|shape '[{want}, -1]' is invalid for input of size {got}"],
        "ckpt_format": ["断点格式错误|{path} 文件头不完整，无法解析", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "batch": ["批次数量错误|期望 {want} 条，实际 {got} 条", "AssertionError|每卡应有 {full} 条，实际 {half} 条"],
        "kl_shape": ["RuntimeError|The size of tensor a ({full}) must match the size of tensor b ({half}) at non-singleton dimension 0", "ValueError|KL 计算失败：策略概率 {want} 条，参考概率 {got} 条"],
        "stop": "停止超时|{peer} 在 {secs} 秒内未退出",
        "recover": ["断点损坏|{path} 校验失败", "EOFError|Ran out of input", "RuntimeError|PytorchStreamReader failed reading zip archive: failed finding central directory"],
        "store_timeout": "TimeoutError|上传权重到 {url} 超时（{secs} 秒）",
        "store_refused": "ConnectionRefusedError|[Errno 111] Connection refused（{url}）",
        "store_silent": "TimeoutError|从 {url} 拉取权重超时（{secs} 秒）",
        "update": "权重更新失败|{text}",
        "upload": "权重上传失败|{text}",
        "generate": "生成失败|{text}",
        "train": "训练失败|{text}",
        "wake": "显存恢复失败|{text}",
        "sigterm": "SystemExit|收到退出信号 15",
    }  # fmt: skip
    frames = {
        "": [("/data/lingxi/worker/base.py", 131, "handle", "result = fn(*args, **kwargs)")],
        "upload_weights": [("/data/lingxi/worker/base.py", 131, "handle", "result = fn(*args, **kwargs)"), ("/data/lingxi/sync/sender.py", 77, "upload", "torch.cuda.synchronize()")],
        "share_cuda": [("/data/lingxi/sync/ipc.py", 41, "pack", "ForkingPickler(buf).dump(tensor)"), ("/usr/local/lib/python3.10/dist-packages/torch/multiprocessing/reductions.py", 357, "reduce_tensor", ") = storage._share_cuda_()")],
        "update_weights": [("/data/lingxi/worker/base.py", 131, "handle", "result = fn(*args, **kwargs)"), ("/data/lingxi/sync/receiver.py", 102, "update", "self.model.load_weights(it)")],
        "generate": [("/data/lingxi/infer/engine.py", 240, "generate", "out = self.llm.generate(batch)")],
        "compute_logp": [("/data/lingxi/ref/scorer.py", 66, "score", "logits = self.model(input_ids=ids)")],
        "train_batch": [("/data/lingxi/train/ppo.py", 318, "step", "loss = self.compute_loss(mb)")],
        "load": [("/data/lingxi/train/ckpt.py", 58, "load", "state = torch.load(path)")],
    }  # fmt: skip

    def line(self, f: Fact, level: str, text: str) -> list[tuple[str, str]]:
        role = self.files[f.who.role]
        path = f"logs_{self.w.run}/{role}.log" if role in ("master", "param_server") else f"logs_{self.w.run}/{f.who.host.name.split('.')[0]}/{role}_{f.who.index}.log"
        if level == "raw":
            return [(path, text)]
        stamp = self.local(f, "%Y/%m/%d %H:%M:%S,") + self.ms(f)
        return [(path, f"{stamp} 【{LEVELS[level]}】[{self.called(f.who)}] {text}")]
