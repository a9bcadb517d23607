# SPDX-License-Identifier: BSD-3-Clause
# Extract the code blocks of a Markdown page for test_book.sh. Block N of the page becomes the files FOLDER/N.text,
# FOLDER/N.line (its line number) and FOLDER/N.marks (the comments `<!-- ... -->` directly before it, one per line,
# without the arrows).
#   awk -v folder=FOLDER -f book_blocks.awk PAGE.md

function begin() {
    name = sprintf("%s/%03d", folder, ++count)
    print NR > (name ".line")
    printf "%s", marks > (name ".marks")
    printf "" > (name ".text")
    marks = blank = ""
}

function end() {
    close(name ".text")
    inside = ""
}

inside == "fence" && /^```/ { end(); next }
inside == "fence" { print > (name ".text"); next }

inside == "indent" && /^    / { printf "%s%s\n", blank, substr($0, 5) > (name ".text"); blank = ""; next }
inside == "indent" && /^ *$/ { blank = blank "\n"; next }
inside == "indent" { end(); after_blank = blank != "" }

/^```/ { begin(); inside = "fence"; next }
/^    / && after_blank { begin(); inside = "indent"; print substr($0, 5) > (name ".text"); next }

/^<!-- .* -->$/ { marks = marks substr($0, 6, length($0) - 9) "\n"; after_blank = 1; next }
/^ *$/ { after_blank = 1; next }
{ after_blank = 0; marks = "" }
