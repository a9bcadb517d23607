#!/bin/sh
# The program's command line as a user meets it: answers, messages and exit codes, alone and as two
# ranks. TAP output.

vittrain=$TEST_BUILD/vittrain
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
number=0

result() { # STATUS NAME
    number=$((number + 1))
    if [ "$1" = 0 ]; then echo "ok $number - $2"; else
        echo "not ok $number - $2"
        sed 's/^/# out: /' out
        sed 's/^/# err: /' err
    fi
}

# answers NAME CODE PATTERN COMMAND...: the exit code, and a line of stdout.
answers() {
    name=$1 code=$2 pattern=$3
    shift 3
    "$@" >out 2>err </dev/null
    [ $? = "$code" ] && grep -q -- "$pattern" out && [ ! -s err ]
    result $? "$name"
}

# refuses NAME CODE MESSAGE COMMAND...: the exit code, and the one line on stderr (mpirun adds its
# own) that begins with the program's name.
refuses() {
    name=$1 code=$2 message=$3
    shift 3
    "$@" >out 2>err </dev/null
    [ $? = "$code" ] && [ "$(grep -c '^vittrain: error: ' err)" = 1 ] &&
        grep -qF -- "vittrain: error: $message" err
    result $? "$name"
}

two() { $MPIRUN -np 2 "$vittrain" "$@"; }

cat >bad.ini <<'END'
[train]
# comment
bacth = 64
END

answers "version" 0 '^vittrain [0-9]' "$vittrain" --version
answers "help lists the options" 0 '^  train.batch = 64$' "$vittrain" --help
answers "help lists the commands" 0 '^  predict ' "$vittrain" help
answers "help for a key" 0 'a whole number from 1 to' "$vittrain" --help train.batch
answers "help for a section" 0 '^  optim.lr = 0.0003$' "$vittrain" help optim
answers "help for a command" 0 '^vittrain eval ' "$vittrain" eval --help
answers "manual page" 0 '^\.It Cm train.batch$' "$vittrain" --manual
answers "one answer from two ranks" 0 '^vittrain [0-9]' two --version
[ "$(wc -l <out)" = 1 ]
result $? "two ranks answer once"
refuses "help for what is not there" 2 'trian: neither a command nor' "$vittrain" help trian
refuses "unknown command" 2 'tarin: no such command; did you mean train?' "$vittrain" tarin
refuses "unknown flag" 2 '--batch: no such flag' "$vittrain" --batch
refuses "unknown key" 2 'no option train.bacth; did you mean train.batch?' \
    "$vittrain" train.bacth=1
refuses "bad value" 2 'train.batch=x: must be a whole number' "$vittrain" train.batch=x
refuses "bad deck" 2 'bad.ini:3: no option train.bacth; did you mean train.batch?' \
    "$vittrain" bad.ini
refuses "missing deck" 2 'none.ini: cannot read the deck: No such file' "$vittrain" none.ini
refuses "two ranks complain once" 2 'rank 0 on ' two bad.ini
refuses "bad combination" 2 'optim.nesterov=on needs' "$vittrain" optim.nesterov=on
two plan mesh.silence=9 mesh.silence=8 plan.machine=none >out 2>err
[ $? = 0 ] && [ "$(grep -c '^warning: option mesh.silence is now called mesh.heartbeat_timeout' err)" = 1 ]
result $? "an old name works and is warned about once"
cp bad.ini vittrain.ini
refuses "vittrain.ini is read" 2 'vittrain.ini:3: no option train.bacth' "$vittrain"
rm vittrain.ini
"$vittrain" --help >/dev/full 2>err
[ $? = 5 ] && grep -q 'cannot write' err
result $? "full disk under the help"

echo "1..$number"
