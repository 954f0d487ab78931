"""A process with threads that has files of /proc about itself open: half read before the checkpoint, and the rest
after it."""

import os
import threading
import time

end = threading.Event()
others = [threading.Thread(target=end.wait) for _ in range(30)]
for other in others:
    other.start()
maps = os.open("/proc/self/maps", os.O_RDONLY)
again = os.dup(maps)
status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
thread = os.open(f"/proc/self/task/{threading.get_native_id()}/stat", os.O_RDONLY)
tasks = os.open("/proc/self/task", os.O_RDONLY)
read = os.read(maps, 700)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
end.set()
for other in others:
    other.join()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.001)  # a thread that has been joined may still be on its way out of the kernel
while more := os.read(again, 1000):
    read += more
assert not os.read(maps, 1)
starts = [int(line.split("-")[0], 16) for line in read.decode().splitlines()]
print(starts == sorted(set(starts)), b"[stack]" in read)
print(b"Name:\t" in os.read(status, 100), os.get_inheritable(maps) == os.get_inheritable(status))
print(os.read(thread, 1000).split()[0].decode() == str(os.getpid()), os.listdir(tasks) == [str(os.getpid())])
if os.fork() == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
