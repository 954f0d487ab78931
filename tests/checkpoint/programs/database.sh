# Transactions by the shell of SQLite, some rolled back, with a line for each.
{
round=0
echo 'pragma synchronous = off; create table t (n integer primary key, word text, round integer); create index w on t (word);'
while [ $round -lt 300 ]; do
    round=$((round + 1))
    echo 'begin;'
    echo "with recursive c(n) as (values(1) union all select n + 1 from c where n < 60)
        insert into t (word, round) select hex(n * 7919 * $round), $round from c;"
    [ $((round % 5)) = 0 ] && echo 'rollback;' || echo 'commit;'
    echo "select $round, count(*), sum(n), max(word) from t;"
done
} | sqlite3 -batch data.db
