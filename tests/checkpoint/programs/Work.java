import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;

/** Sieves and hashes in a pool of threads while garbage is made and collected and methods are compiled. */
public class Work {
    static long mix(long from, long to) {
        long sum = 0;
        List<String> words = new ArrayList<>();
        for (long n = from; n < to; n++) {
            sum = sum * 6364136223846793005L + Long.numberOfTrailingZeros(n * n + 1) + n;
            if (n % 3 == 0) {
                words.add(Long.toHexString(sum));
            }
        }
        for (String word : words) {
            sum ^= word.hashCode();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        long all = 0;
        for (int step = 0; step < 150; step++) {
            List<Callable<Long>> parts = new ArrayList<>();
            for (int part = 0; part < 4; part++) {
                long from = step * 400000L + part * 100000L;
                parts.add(() -> mix(from, from + 100000));
            }
            for (Future<Long> part : pool.invokeAll(parts)) {
                all = all * 31 + part.get();
            }
            all += LongStream.range(0, 1000).parallel().map(n -> n * n).sum();
            System.out.println(step + " " + all);
        }
        pool.shutdown();
    }
}
