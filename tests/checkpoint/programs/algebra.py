"""Products and factors of matrices by as many threads as OPENBLAS_NUM_THREADS says."""

import hashlib

import numpy as np

chance = np.random.default_rng(7)
a = chance.standard_normal((160, 160))
for step in range(40):
    q, r = np.linalg.qr(a)
    a = q @ r.T / 20 + chance.standard_normal(a.shape)
    x = np.linalg.solve(a, r[0])
    print(step, hashlib.sha256(a.tobytes() + x.tobytes()).hexdigest(), flush=True)
