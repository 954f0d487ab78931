"""A rank that speaks PMI by itself: `rank.py SCENARIO [ARGUMENT...]`. Well-behaved ones, and others."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

RANK, SIZE = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
LINK = socket.socket(fileno=int(os.environ["PMI_FD"]))
READ = LINK.makefile("rb")


def send(text: str) -> None:
    LINK.sendall(text.encode())


def ask(text: str) -> dict[str, str]:
    """A request of PMI-1 and its answer."""
    send(f"cmd={text}\n")
    line = READ.readline().decode().rstrip("\n")
    if not line:
        sys.exit(77)  # hung up
    words, _, value = line.partition(" value=")
    found = dict(word.split("=", 1) for word in words.split(" ") if "=" in word)
    return found | ({"value": value} if value else {})


def ask2(command: str, **words: str) -> dict[str, str]:
    """A request of PMI-2 and its answer."""
    doubled = {key: value.replace(";", ";;") for key, value in words.items()}
    text = f"cmd={command};thrid=7;" + "".join(f"{key}={value};" for key, value in doubled.items())
    send(f"{len(text):6d}{text}")
    size = int(READ.read(6))
    answer = READ.read(size).decode().replace(";;", "\0")
    found = dict(word.split("=", 1) for word in answer.rstrip(";").split(";"))
    assert found.pop("thrid") == "7", answer
    return {key: value.replace("\0", ";") for key, value in found.items()}


def init() -> None:
    assert ask("init pmi_version=1 pmi_subversion=1")["cmd"] == "response_to_init"


def finalize() -> None:
    assert ask("finalize")["cmd"] == "finalize_ack"


def barrier() -> None:
    assert ask("barrier_in")["cmd"] == "barrier_out"


def exchange(rounds: str = "1") -> None:
    """Each puts a key in each round; after the barrier all have all."""
    init()
    most = ask("get_maxes")
    assert (most["keylen_max"], most["vallen_max"]) == ("64", "1024"), most
    name = ask("get_my_kvsname")["kvsname"]
    assert ask("get_universe_size")["size"] == str(SIZE)
    long = "x" * 1000
    for turn in range(int(rounds)):
        assert ask(f"put kvsname={name} key=k{turn}-{RANK} value=a b={RANK} {long}")["rc"] == "0"
        assert ask(f"put kvsname={name} key=k{turn}-{RANK} value=again")["rc"] == "-1"
        barrier()
        for other in range(SIZE):
            found = ask(f"get kvsname={name} key=k{turn}-{other}")
            assert found["value"] == f"a b={other} {long}", found
    assert ask(f"get kvsname={name} key=nothing")["rc"] == "-1"
    assert ask("get kvsname=another key=k0-0")["rc"] == "-1"
    mapping = ask(f"get kvsname={name} key=PMI_process_mapping")["value"]
    assert ask("publish_name service=a port=b")["rc"] == "-1"
    finalize()
    print(f"{RANK} of {SIZE} {mapping} local {os.environ['MPI_LOCALRANKID']} of {os.environ['MPI_LOCALNRANKS']}")


def exchange2() -> None:
    """The same with PMI-2, and an attribute of the node that others wait for."""
    assert ask("init pmi_version=2 pmi_subversion=0")["pmi_version"] == "2"
    started = ask2("fullinit", pmirank=str(RANK))
    assert (started["rank"], started["size"], started["appnum"]) == (str(RANK), str(SIZE), "0"), started
    name = ask2("job-getid")["jobid"]
    assert ask2("kvs-put", key=f"k{RANK}", value=f"v;{RANK};;")["rc"] == "0"
    assert ask2("kvs-fence")["rc"] == "0"
    for other in range(SIZE):
        assert ask2("kvs-get", jobid=name, srcid="-1", key=f"k{other}")["value"] == f"v;{other};;"
    assert ask2("kvs-get", jobid=name, srcid="-1", key="nothing")["found"] == "FALSE"
    if os.environ["MPI_LOCALRANKID"] == "0":
        assert ask2("info-putnodeattr", key="port", value=f"of {RANK}")["rc"] == "0"
    port = ask2("info-getnodeattr", key="port", wait="TRUE")
    mapping = ask2("info-getjobattr", key="PMI_process_mapping")["value"]
    assert ask2("spawn", ncmds="1", subcmd="a")["rc"] == "-1"
    assert ask2("finalize")["rc"] == "0"
    print(f"{RANK} {mapping} port {port['value']}")


def number() -> None:
    """Which of the job's programs it is."""
    init()
    print(f"{RANK} is of {ask('get_appnum')['appnum']}")
    finalize()


def number2() -> None:
    """The same with PMI-2."""
    ask("init pmi_version=2 pmi_subversion=0")
    print(f"{RANK} is of {ask2('fullinit', pmirank=str(RANK))['appnum']}")
    ask2("finalize")


def look() -> None:
    """The data of a rank."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    told = [name for name in os.environ if name.startswith("POOLNODE_MPI")]
    given = sys.stdin.read()
    mine = [fd for fd in fds if fd > 2 and fd != LINK.fileno() and os.path.exists(f"/proc/self/fd/{fd}")]
    print(f"{RANK} cpus {cpus} gpus {os.environ.get('CUDA_VISIBLE_DEVICES')} fds {mine} told {told} stdin {given!r}")


def ends(how: str, at: str, init_too: str = "yes") -> None:
    """One rank ends in this way while the others wait."""
    if init_too == "yes":
        init()
    if int(at) != RANK:
        if init_too == "yes":
            barrier()
        time.sleep(600)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how.startswith("abort"):
        send(f"cmd=abort exitcode={how.removeprefix('abort')} message=a bad day\n")
        time.sleep(600)
    os._exit(int(how))


def spawn() -> None:
    """Asks for more ranks, as RFC 13 has it."""
    init()
    for number in (1, 2):
        send(f"mcmd=spawn\nnprocs=2\nexecname=/bin/true\ntotspawns=2\nspawnssofar={number}\narg1={'x' * 5000}\n")
        send("argcnt=1\npreput_num=0\ninfo_num=0\nendcmd\n")
    line = READ.readline().decode()
    assert line.startswith("cmd=spawn_result rc=-1"), line
    finalize()


def silent() -> None:
    """Never speaks, and ends well."""


def waits_for_signal() -> None:
    """Ends with 9 when it is asked to end."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    init()
    print(f"{RANK} ready", flush=True)
    time.sleep(600)


def crash() -> None:
    """Crashes as soon as all are there; its core holds its number."""
    mark = "".join(["rank ", "of ", str(RANK), " "])
    init()
    barrier()
    os.environ["MARK"] = mark
    os.kill(os.getpid(), signal.SIGSEGV)


def raw(*sent: str) -> None:
    """Rank 0 sends these bytes, escaped, each by itself, and reads nothing; the others sleep."""
    if RANK:
        init()
        time.sleep(600)
    for piece in sent:
        times, _, text = piece.partition("*") if "*" in piece else ("1", "", piece)
        data = text.encode().decode("unicode_escape").encode("latin-1")
        for _ in range(int(times)):
            try:
                LINK.sendall(data)
            except OSError:
                sys.exit(78)
    time.sleep(600)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
