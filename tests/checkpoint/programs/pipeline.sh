# Programs one after another and side by side, joined by pipes; a line for every round.
round=0
while [ $round -lt 25 ]; do
    round=$((round + 1))
    seq 1 4000 | awk -v r=$round '{ print ($1 * 7919 * r) % 100003, $1 }' | sort -n | tee sorted | gzip -9 -n >"$round.gz"
    gzip -dc "$round.gz" | sort -k2,2n -S 64k | awk '{ s = (s * 31 + $1) % 1000003 } END { print s }' >sum
    echo "$round $(cat sum) $(cksum <sorted)"
done
rm sorted sum
