"""Jobs on several machines at once. Depends on `core` and `checkpoints`.

gathering.py             gathers a claim for each part of a job
gangs.py                 starts all parts with one step, lets them meet, makes one end of their ends
part_events.py           writes beginnings and ends of parts together
parallel_checkpoints.py  saves all parts together
between_pools.py         carries pipes and links between parts in different pools
third_node.py            carries links between machines of a job that do not reach each other
"""
