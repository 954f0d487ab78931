# A tour through points, made shorter by simulated annealing; then a model of its progress.
set.seed(19)
n <- 60
x <- runif(n)
y <- runif(n)
span <- function(tour) sum(sqrt(diff(x[c(tour, tour[1])])^2 + diff(y[c(tour, tour[1])])^2))
tour <- sample(n)
best <- span(tour)
seen <- numeric(0)
for (step in 1:120) {
  heat <- 0.3 * 0.96^step
  for (try in 1:100) {
    ends <- sort(sample(n, 2))
    other <- tour
    other[ends[1]:ends[2]] <- rev(tour[ends[1]:ends[2]])
    long <- span(other)
    if (long < best || runif(1) < exp((best - long) / heat)) {
      tour <- other
      best <- long
    }
  }
  seen <- c(seen, best)
  cat(step, format(best, digits = 17), "\n")
  flush(stdout())
}
fit <- lm(seen ~ log(seq_along(seen)))
cat(format(coef(fit), digits = 17), "\n")
cat(tour, "\n")
