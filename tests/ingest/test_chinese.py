"""Chinese log texts: levels and names in full-width brackets, and technical terms as plain words."""

from __future__ import annotations

import pytest

from rca.ingest.generic import meaning
from rca.ingest.generic.text import words
from rca.ingest.line import parse


def test_header():
    """The level and the process are read, the message is what is left."""
    line = parse("2026/06/04 10:59:47,954 【错误】[主控0] 任务失败")
    assert (line.level, line.actor, line.text) == ("error", "主控0", "任务失败")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("断点写入失败 /mnt/a.pt：磁盘空间不足", "storage.no_space"),
        ("张量形状错误: 期望 1024 行，实际 512 行", "data.shape_mismatch"),
        ("等待推理进程的结果超时，900 秒", "rpc.timeout"),
        ("显存溢出，无法分配 2 GiB 显存", "device.out_of_memory"),
    ],
)
def test_meaning(text, kind):
    """An error line means what its terms mean."""
    assert meaning(text, "error").kind == kind


@pytest.mark.parametrize("text", ["训练正常运行，第 12 步", "正在加载模型权重", "保存断点完成，用时 3.1 秒"])
def test_ordinary_lines_stay_silent(text):
    """Nothing failed in these."""
    assert meaning(text, "info") is None


def test_a_character_inside_another_word_is_not_that_term():
    """`运行` is running and no row."""
    assert "rows" not in [w for w, _ in words("任务运行中，执行完成")]
