"""Levels and process names that Chinese loggers put in brackets before the message.

>>> peel("【错误】[主控0] 任务失败")
('error', '主控0', '任务失败')
>>> peel("[警告] 显存不足"), peel("（信息）就绪"), peel("没有级别")
(('warning', None, '显存不足'), ('info', None, '就绪'), (None, None, '没有级别'))

Source: loggers of Chinese trainers; full-width brackets are usual beside ASCII ones.
"""

from __future__ import annotations

import re

WORDS = {
    "错误": "error", "异常": "error", "严重": "critical", "致命": "critical", "警告": "warning", "告警": "warning", "注意": "warning",
    "信息": "info", "提示": "info", "通知": "info", "调试": "debug",
}  # fmt: skip
LEVEL = re.compile(rf"[\[【（(<《]?({'|'.join(WORDS)})[\]】）)>》:：]\s?")
NAME = re.compile(r"[\[【]([\u4e00-\u9fff][\w\u4e00-\u9fff.-]{0,30}?\d{0,5})[\]】]\s?")


def may_open(message: str) -> bool:
    """Whether a message may begin with such a bracket: to be asked first, because it costs nothing."""
    return message[:1] > "\x7f" or message[1:2] > "\x7f"


def peel(message: str) -> tuple[str | None, str | None, str]:
    """The level, the process and the message behind them."""
    level = actor = None
    for _ in range(2):
        if level is None and (match := LEVEL.match(message)):
            level, message = WORDS[match[1]], message[match.end() :]
        elif actor is None and (match := NAME.match(message)):
            actor, message = match[1], message[match.end() :]
    return level, actor, message
