"""Look-alikes of HTCondor's Python modules: `htcondor2`, the older `htcondor`, and `classad2` with its older name.

They have the names, arguments and results of the real ones for jobs, machines and logs. A method that the pool cannot
do is there and raises `HTCondorException` with the way out. Programs see them through `poolnode compat` only.
"""
