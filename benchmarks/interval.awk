# The ratio of two times that were measured in pairs, and what it may as well be: lines "A B" (seconds) to one line
# "RATIO LOW HIGH PAIRS COVERAGE VERDICT", ratios being B over A. -v threshold=0.03: what counts as a regression.
#
# The ratio is the Hodges-Lehmann estimate of log(B / A): the median of the means of all pairs of log ratios (Walsh
# averages). Its interval is that of Wilcoxon's signed ranks: the k-th smallest to the k-th largest of those means, where k is
# such that the interval holds the true value with a probability of at least 95 % ("COVERAGE"). Why that and not a t interval:
# times have long tails, for a machine that does something else makes runs longer, never shorter, and one such run would
# widen t's interval tenfold. Each pair runs in random order, so under no difference its two times can be exchanged and log
# ratios are symmetric about 0: all that the interval needs, at any number of pairs. A bootstrap of the median is only right
# for many, and has another result each time.

NF >= 2 && $1 > 0 && $2 > 0 { difference[++count] = log($2 / $1) }

# Of 2^n equally likely signs of the ranks 1 to n, for how many is the sum of the positive ones s? In ways[s].
function count_sums(n, rank, s, most) {
    ways[0] = 1
    for (rank = 1; rank <= n; rank++) {
        most += rank
        for (s = most; s >= rank; s--) ways[s] += ways[s - rank]
    }
}

# The largest k with P(sum < k) <= 2.5 %, and the coverage of k; 0 where there are too few pairs (below six).
function place_of_limit(n, k, below) {
    count_sums(n)
    k = 0
    while (below + ways[k] / 2 ^ n <= 0.025) below += ways[k++] / 2 ^ n
    coverage = 1 - 2 * below
    return k
}

# Shell sort.
function sort_numbers(list, n, gap, i, j, held) {
    for (gap = int(n / 2); gap > 0; gap = int(gap / 2))
        for (i = gap + 1; i <= n; i++) {
            held = list[i]
            for (j = i; j > gap && list[j - gap] > held; j -= gap) list[j] = list[j - gap]
            list[j] = held
        }
}

function verdict_of(ratio, low, high, most) {
    if (low > 1 && ratio >= 1 + most) return "regression"
    if (high < 1) return "faster"
    if (high < 1 + most) return low > 1 ? "slower by less than the threshold" : low < 1 - most ? "not slower" : "no difference"
    return "inconclusive"
}

END {
    for (i = 1; i <= count; i++)
        for (j = i; j <= count; j++) mean[++means] = (difference[i] + difference[j]) / 2
    sort_numbers(mean, means)
    limit = place_of_limit(count)
    if (count == 0 || limit == 0) {
        print "- - -", count + 0, 0, "inconclusive"
        exit
    }
    middle = means % 2 ? mean[(means + 1) / 2] : (mean[means / 2] + mean[means / 2 + 1]) / 2
    low = exp(mean[limit]); high = exp(mean[means + 1 - limit])
    printf "%.4f %.4f %.4f %d %.4f %s\n", exp(middle), low, high, count, coverage, verdict_of(exp(middle), low, high, threshold)
}
