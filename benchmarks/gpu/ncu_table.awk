# SPDX-License-Identifier: BSD-3-Clause
# Rows of gpu-kernels.csv from what `ncu --csv --page raw --print-units base` writes. Set with -v: model.
# Lines before the header, which begins with "ID", are messages of ncu; the line after it has the units.

# cells_read LINE: the cells of a line of CSV to cell[1..]; quotes may contain commas.
function cells_read(line,    count, i, c, quoted, text) {
    count = 0
    text = ""
    quoted = 0
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (c == "\"") quoted = !quoted
        else if (c == "," && !quoted) { cell[++count] = text; text = "" }
        else text = text c
    }
    cell[++count] = text
    return count
}
function number(name,    text) {
    if (!(name in at)) return ""
    text = cell[at[name]]
    gsub(/,/, "", text)
    return text
}
function shape(name,    text) { # "(256, 1, 1)" as 256x1x1
    text = (name in at) ? cell[at[name]] : ""
    gsub(/[() ]/, "", text)
    gsub(/,/, "x", text)
    return text
}

{ sub(/\r$/, "") }
/^"ID"/ {
    count = cells_read($0)
    for (i = 1; i <= count; i++) at[cell[i]] = i
    columns = count
    next
}
columns && /^"[0-9]+"/ {
    if (cells_read($0) != columns) next # cut
    kernel = cell[at["Kernel Name"]]
    printf "%s,\"%s\",%d,%.0f,%.0f,%s,%s,%s\n", model, kernel, ++launch, number("gpu__time_duration.sum"),
        number("dram__bytes_read.sum") + number("dram__bytes_write.sum"),
        number("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"), shape("Grid Size"), shape("Block Size")
}
