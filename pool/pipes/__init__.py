"""The pipes of a job that lead to other machines: senders, receivers, and their part of a checkpoint (VS 5.2, 5.3).

Pipes within one machine are the kernel's own, and files mapped to pipes are the keeper's (`pool/checkpoint`). The
description of a job's pipes, as plain data, is in `pool.jobs.pipes`; the syntax in `pool.jobs.description.pipes`.
"""
