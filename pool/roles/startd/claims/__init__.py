"""Claims on slots: matches, claims made with them, leases, preemption, and urgent claims on top of others.

Needs the rooms `slots`, `owner` and `running`.
"""
