# A file that grows, followed line by line. Its writer has it open: what it appends after a checkpoint is undone.
exec 3>> log
for n in $(seq 150); do
    sleep 0.005
    echo "$n $(($n * $n))" >&3
done &
tail -n +1 -s 0.1 --pid=$! -f log
