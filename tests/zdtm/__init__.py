"""CRIU's own test suite (ZDTM), run as jobs of a pool: `python -m tests.zdtm`.

Nothing of CRIU is part of this project: its licence is another one. CRIU_SOURCE names a checkout whose
`test/zdtm/lib` and `test/zdtm/static` were built (`make -k -C lib`, `make -k -C static`).
"""
