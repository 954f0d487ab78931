"""Starts PostgreSQL with a directory of its own, lets pgbench's clients change a table in rounds, prints what the table
holds after each round, and ends the server.
"""

import glob
import os
import shutil
import subprocess
import sys

rounds = int(sys.argv[1])
(programs,) = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
where = {"PGHOST": "127.0.0.1", "PGPORT": "5432", "PGUSER": "bench", "PGDATABASE": "postgres"}
#: Each client adds to a row of its own and moves between two that all have, so the sums do not depend on the order.
CHANGES = r"""
\set row random(1, 50)
\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET balance = balance + :delta, changes = changes + 1 WHERE id = 100 + :client_id;
UPDATE accounts SET balance = balance - :delta WHERE id = :row;
INSERT INTO history VALUES (:client_id, :row, :delta, repeat('x', 200 + :row));
SELECT sum(balance) FROM accounts;
END;
"""
TABLES = """
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL, changes int NOT NULL DEFAULT 0);
INSERT INTO accounts SELECT number, 0 FROM generate_series(1, 110) AS number;
CREATE TABLE history (client int, of int, delta bigint, filler text);
"""
HELD = """
SELECT sum(balance), sum(changes), md5(string_agg(id || ' ' || balance, ',' ORDER BY id)) FROM accounts
UNION ALL SELECT sum(delta), count(*), md5(sum(length(filler))::text) FROM history
"""


def run(*command: str, text: str = "") -> str:
    done = subprocess.run(command, input=text, env={**os.environ, **where}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


run(
    f"{programs}/initdb",
    "-D",
    "data",
    "-U",
    "bench",
    "-A",
    "trust",
    "--no-sync",
    "--wal-segsize=1",
    "--locale=C",
    "-E",
    "UTF8",
)
options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "4MB", "fsync": "off"}
server = subprocess.Popen(
    [f"{programs}/postgres", "-D", "data", *(f"--{name}={value}" for name, value in options.items())],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
while subprocess.run([f"{programs}/pg_isready", "-q", "-t", "30"], env={**os.environ, **where}).returncode:
    assert server.poll() is None, "the server has ended"
run("psql", "-q", "-v", "ON_ERROR_STOP=1", text=TABLES)
with open("changes.sql", "w") as file:
    file.write(CHANGES)
for turn in range(rounds):
    given = ["-n", "-f", "changes.sql", "-c", "4", "-j", "2", "-t", "10", f"--random-seed={turn}"]
    said = run("pgbench", *given)
    assert "actually processed: 40/40" in said, said
    print(turn, run("psql", "-At", "-c", HELD).replace("\n", " "), flush=True)
server.terminate()
assert server.wait() == 0
shutil.rmtree("data")
