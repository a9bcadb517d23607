# SPDX-License-Identifier: BSD-3-Clause
# Shared by the benchmarks' scripts: the table that all write and read (README.md lists its columns), and short training
# runs. Sourced by sh and bash after `here` is set to this folder; bench_common.py calls `row`. C programs write the same
# rows by src/commands/bench.c. Environment: VITTRAIN, MPIRUN, IMAGE (height and width of a model's images),
# VITTRAIN_BENCH_GPU (name of the GPU that computes). The variable `launcher` is a command that starts the program, or
# empty.

LC_ALL=C # awk, sort and printf read and write numbers with a point
export LC_ALL

vittrain=$(readlink -f "${VITTRAIN:-$here/../vittrain}" || true)
start_count=$(readlink -f "${START_COUNT_PROGRAM:-$here/../test/commands/start_count}" || true)
# Open MPI binds each rank to one core, even if it has several threads.
mpirun=${MPIRUN:-mpirun --oversubscribe --bind-to none}
bench_header=date,host_cpu,commit,framework,version,work,model,batch,precision,strategy,ranks,threads,metric,value,unit,nodes,host,cores,memory_gib,gpu,load

# ---- Writing.

# The machine, read once: "Intel(R) Xeon(R) Processor (2 cores)", cores and GiB.
cpu_name=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1 | tr ',"' '  ')
host_cores=$(getconf _NPROCESSORS_ONLN)
host_cpu="${cpu_name:-$(uname -m)} ($host_cores cores)"
host_memory=$(awk '$1 == "MemTotal:" { printf "%.0f", $2 / 1048576 }' /proc/meminfo)

# program_look: sets `program_version` and `program_commit`.
program_look() {
    program_version=$(${launcher:-} "$vittrain" --version | sed -n '1s/^vittrain \([^ ]*\).*/\1/p')
    program_commit=$(${launcher:-} "$vittrain" --version | sed -n '1s/.*(commit \([^)]*\)).*/\1/p')
}

# row WORK MODEL BATCH PRECISION STRATEGY RANKS THREADS METRIC VALUE UNIT: prints a row. The variables framework, version,
# commit and nodes replace the defaults: vittrain, its version and commit, one node.
row() {
    [ -n "${version:-}" ] && [ -n "${commit:-}" ] || [ -n "${program_version:-}" ] || program_look
    read -r row_load _ </proc/loadavg
    printf '%s,' "$(date +%FT%T)" "$host_cpu" "${commit:-$program_commit}" "${framework:-vittrain}" \
        "${version:-$program_version}" "$@" "${nodes:-1}" "$(uname -n)" "$host_cores" "$host_memory" "${VITTRAIN_BENCH_GPU:-}"
    printf '%s\n' "$row_load"
}

# table_open FILE: prepares a table for more rows: writes the header, removes a torn last line, adds empty cells for missing
# columns. A table with other columns is refused.
table_open() {
    if [ ! -s "$1" ]; then
        mkdir -p "$(dirname "$1")" && echo "$bench_header" >"$1"
        return
    fi
    [ -n "$(tail -c 1 "$1")" ] && torn=1 || torn=0
    [ "$torn" = 1 ] || [ "$(head -n 1 "$1")" != "$bench_header" ] || return 0
    { if [ "$torn" = 1 ]; then sed '$d' "$1"; else cat "$1"; fi; } | awk -v header="$bench_header" '
        NR == 1 {
            if (header != $0 && index(header, $0 ",") != 1) exit 1
            lacking = substr(header, length($0) + 1)
            gsub(/[^,]/, "", lacking)
            print header
            next
        }
        { print $0 lacking }
        END { if (NR == 0) print header }' >"$1.new" ||
        { rm -f "$1.new"; echo "$1 has other columns than benchmarks/README.md: name another file" >&2; return 2; }
    mv "$1.new" "$1"
}

# ---- Reading.

# table_rows FILE...: prints the rows of tables of this or another version in the columns of this one, separated by tabs.
# Unreadable tables are named on standard error and left out.
table_rows() {
    for table in "$@"; do
        if [ ! -r "$table" ]; then
            echo "$table: cannot be read: left out" >&2
        elif [ ! -s "$table" ]; then
            echo "$table: empty: left out" >&2
        elif [ -n "$(tail -c 1 "$table")" ]; then
            echo "$table: its last line is torn: left out" >&2
            sed '$d' "$table" | table_columns "$table"
        else
            table_columns "$table" <"$table"
        fi
    done
}

# table_columns NAME: prints standard input, header first, in the columns of this version.
table_columns() {
    awk -F, -v OFS='\t' -v name="$1" -v header="$bench_header" '
        BEGIN { columns = split(header, wanted, ",") }
        NR == 1 {
            given = NF
            for (i = 1; i <= NF; i++) at[$i] = i
            if (!("work" in at && "metric" in at && "value" in at)) { other = 1; exit }
            for (i = 1; i <= columns; i++) delete known[wanted[i]]
            for (i = 1; i <= columns; i++) known[wanted[i]] = 1
            for (i = 1; i <= NF; i++) if (!($i in known)) unknown = unknown " " $i
            next
        }
        NF != given { bad++; next }
        {
            line = ""
            for (i = 1; i <= columns; i++) line = line (i > 1 ? OFS : "") (wanted[i] in at ? $(at[wanted[i]]) : "")
            print line
        }
        END {
            if (other) print name ": not the columns of benchmarks: left out" >"/dev/stderr"
            if (unknown != "") print name ": unknown columns, not looked at:" unknown >"/dev/stderr"
            if (bad > 0) print name ": " bad " lines with too many or too few cells: left out" >"/dev/stderr"
            if (!other && NR < 2) print name ": no rows" >"/dev/stderr"
        }'
}

# ---- Training runs.

# Prints the median of the numbers on standard input; for an even count, the mean of the two middle ones.
median() {
    sort -g | awk '{ value[NR] = $1 }
        END { middle = int(NR / 2); if (NR % 2) print value[middle + 1]; else if (NR > 0) printf "%.9g\n", (value[middle] + value[middle + 1]) / 2 }'
}

# Prints the image size that a model is measured with: IMAGE, or that of its architecture.
image_of() { # MODEL
    [ -z "${IMAGE:-}" ] || { echo "$IMAGE"; return; }
    case $1 in
    vit_cifar | cnn_*) echo 32 ;;
    *) echo 224 ;;
    esac
}

# column_of FILE COLUMN FIRST: prints a column of metrics.csv for the training steps after step FIRST.
column_of() {
    awk -F, -v name="$2" -v first="$3" 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        $column["split"] == "train" && $column["step"] > first { print $column[name] }' "$1"
}

# The first two steps take longer, because memory is touched for the first time.
median_step() { column_of "$1/metrics.csv" step_seconds 2 | median; } # RUN_FOLDER

# Prints the last lines of a log.
explain() { grep -v '^ *$' "$1" | tail -n "${2:-3}" | sed 's/^/    /'; } # FILE [LINES]

# Prints the precision that train.precision=auto chose.
precision_used() { sed -n 's/.*computing in \(fp32\|bf16\|fp16\).*/\1/p' "$1" | head -n 1; } # LOG

# train_steps NAME RANKS THREADS MODEL BATCH STEPS [SETTING...]: trains STEPS + 2 steps on synthetic images with the global
# batch BATCH, in the folder $scratch/NAME, with its output in $scratch/NAME.log. Uses only settings that old versions have.
train_steps() {
    train_name=$1 train_ranks=$2 train_threads=$3 train_model=$4 train_batch=$5 train_count=$(($6 + 2))
    shift 6
    set -- train "run.dir=$scratch/$train_name" "run.threads=$train_threads" "model.name=$train_model" model.classes=10 \
        data.format=synthetic "data.image=$(image_of "$train_model")" data.val=none \
        "data.samples=$((train_batch * train_count))" augment.flip=0 augment.rotate=0 augment.translate=0 augment.erase=0 \
        "train.global_batch=$train_batch" "train.steps=$train_count" train.clip_norm=1 optim.weight_decay=0.05 \
        checkpoint.every=0 output.weights=off output.tensorboard=off output.log_every=1 \
        ${IMAGE:+"model.image=$IMAGE"} "$@"
    [ "$train_ranks" = 1 ] || set -- -np "$train_ranks" "$vittrain" "$@"
    rm -rf "${scratch:?}/$train_name" && mkdir -p "$scratch/home" # for files outside of the run folder
    train_status=0
    # MPIRUN may be several words. One rank needs none.
    # shellcheck disable=SC2086
    if [ "$train_ranks" = 1 ]; then
        (cd "$scratch/home" && exec ${launcher:-} timeout -k 5 "${RUN_LIMIT:-300}" "$vittrain" "$@")
    else
        (cd "$scratch/home" && exec ${launcher:-} timeout -k 5 "${RUN_LIMIT:-300}" $mpirun "$@")
    fi >"$scratch/$train_name.log" 2>&1 </dev/null || train_status=$?
    [ $train_status != 0 ] || return 0
    if [ $train_status = 124 ]; then
        train_problem="no end within ${RUN_LIMIT:-300} s"
    else
        train_problem=$(grep -m 1 error "$scratch/$train_name.log" || grep -m 1 '[a-z]' "$scratch/$train_name.log")
    fi
    echo "$train_model on $train_ranks ranks: $train_problem" >&2
    return 1
}

# ---- Starts, counted by test/commands/start_count.

# start_counted RANKS OPTION...: trains cnn_a on this number of ranks, of which 8 consecutive ones count as a node.
# Writes what start_counts.awk prints to the file `counts`, and the output to the file `log`. The variable `tracer` is
# a command that starts each rank, or empty. Environment: START_COUNT_PROGRAM, test/commands/start_count of the build.
start_counted() {
    start_ranks=$1
    shift
    rm -rf counted && mkdir counted
    START_COUNT=$PWD/counted START_NODE_RANKS=8 $mpirun -np "$start_ranks" ${tracer:-} \
        "$start_count" train model.name=cnn_a data.format=synthetic data.val=none run.threads=1 train.global_batch=128 \
        train.precision=fp32 output.weights=off output.logbook= run.backend=cpu "$@" >log 2>&1 || { tail -n 3 log >&2; exit 1; }
    awk -f "$here/../test/commands/start_counts.awk" counted/rank.* >counts
}
# counted_cell NAME COLUMN: prints a cell of the table `counts`.
counted_cell() { awk -F '\t' -v name="$1" -v column="$2" '$2 == name { print $column }' counts; }
# counted_sum EXPRESSION: prints the sum over the collectives in `counts`.
counted_sum() { awk -F '\t' '$1 == "collective" { n += '"$1"' } END { print n + 0 }' counts; }
