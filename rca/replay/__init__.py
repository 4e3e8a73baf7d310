"""Prove the cause by running it again: recording -> gangs -> fresh workers -> outcomes -> verdict -> a file that `rca analyze` reads.

    recording.py     what a run left: requests, calls, blobs
    gangs.py         which requests must be played together
    bed.py           fresh workers of the reference trainer, without their controller
    compare.py       the recorded outcome and the new one: the same, and if not, the first number that differs
    files.py         which request saved the file that another one read
    handovers.py     both ends of every hand-over: the first one whose ends differ
    verdict.py       what all that says of the run's failure
    result.py        the file
    replay.py        the order of it all
    own.py           the same for a trainer of somebody's own, in its own process
"""
