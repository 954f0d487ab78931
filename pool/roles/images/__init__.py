"""The checkpoint server: a node's directory in which other nodes' schedds keep their images (C5).

`server.py` is served by any node that has CHECKPOINT_DIR; `remote.py` is the place that a schedd writes to then.
"""
