#!/usr/bin/env python3
"""Sums 1/n^2 up to a number of terms, a block at a time, and keeps what it has in a file between two blocks.

After each block it ends with 85: "this is my checkpoint, start me again". Started again, here or on another machine, it
goes on from the file.
"""

import json
import sys
from pathlib import Path

TERMS, BLOCK = int(sys.argv[1]), int(sys.argv[2])
STATE = Path("state.json")

state = json.loads(STATE.read_text()) if STATE.exists() else {"next": 1, "sum": 0.0, "starts": 0}
state["starts"] += 1
end = min(state["next"] + BLOCK, TERMS + 1)
for n in range(state["next"], end):
    state["sum"] += 1.0 / (n * n)
state["next"] = end
if end <= TERMS:
    STATE.write_text(json.dumps(state))
    sys.exit(85)
Path("zeta.txt").write_text(f"{state['sum']:.12f} from {TERMS} terms, in {state['starts']} parts\n")
