"""Run recorded requests again: what was recorded, what comes of it in fresh processes, and what that proves."""
