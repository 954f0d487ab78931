"""Trees boosted one after another by scikit-learn, in several threads."""

import hashlib
import warnings

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

warnings.simplefilter("ignore")
chance = np.random.default_rng(11)
points = chance.standard_normal((1000, 8))
kinds = (points[:, :3].prod(axis=1) + chance.standard_normal(1000) / 4 > 0).astype(int)
print("begin", flush=True)
model = HistGradientBoostingClassifier(max_iter=1, warm_start=True, early_stopping=False, random_state=5)
for trees in range(1, 31):
    model.set_params(max_iter=trees).fit(points, kinds)
    chances = model.predict_proba(points)
    print(trees, model.score(points, kinds), hashlib.sha256(chances.tobytes()).hexdigest(), flush=True)
