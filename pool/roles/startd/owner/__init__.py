"""The owner's wishes: the policy is evaluated on fresh facts of the machine, and a drained machine takes no job.

Needs the room `slots`.
"""
