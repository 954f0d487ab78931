"""The checkpoints of jobs: received from execute machines, stored, given to the next machine. Depends on `core`.

images.py               the checkpoints of each job, and those that `rm --checkpoint` has kept
place.py                the store that they are in, which can be away
checkpoint_server.py    reaches CHECKPOINT_SERVER, and waits for it while it is away
pending_checkpoints.py  checkpoints that wait for the server
"""
