#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# long
# Uploads and downloads through rclone: a run's files reach an S3 server (s3_endpoint.py) through failures, and a run
# continues from there.

. "$TEST_SOURCE/test/support/program.sh"
needs python3 rclone
tidy() { stop_store; }
store=$work/store
bucket=$store/bucket
mkdir -p "$bucket"
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=sec/ret+1 AWS_EC2_METADATA_DISABLED=true
AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null RCLONE_CONFIG=/dev/null
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE
export RCLONE_CONFIG
unset AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3 http_proxy all_proxy ALL_PROXY
port=0

# start_store [OPTION...]: on the same port each time.
start_store() {
    rm -f "$work/store-input" "$work/port"
    mkfifo "$work/store-input"
    python3 "$TEST_SOURCE/test/support/s3_endpoint.py" "$store" --port $port "$@" <"$work/store-input" >"$work/port" &
    server=$!
    exec 8>"$work/store-input"
    until [ -s "$work/port" ] || ! kill -0 $server 2>/dev/null; do
        sleep 0.05
    done
    port=$(cat "$work/port")
    AWS_ENDPOINT_URL=http://127.0.0.1:$port
    export AWS_ENDPOINT_URL
}

stop_store() {
    exec 8>&-
    [ -z "$server" ] || wait "$server"
    server=
}

# faults JSON: from now on.
faults() {
    echo "$1" >"$store/faults.new"
    mv "$store/faults.new" "$store/faults"
}

# object KEY: the file in which the server keeps it.
object() {
    echo "$bucket/$(echo "$1" | sed 's|/|%2F|g')"
}

# differs FOLDER PREFIX: lists the files of a run's folder that are missing in the bucket, or differ.
differs() {
    for file in "$1"/*; do
        [ -f "$file" ] || continue
        kept=$(object "$2/$(basename "$file")")
        case $file in
        */train.log) # lines about the end of the upload are not in it
            head -c "$(wc -c <"$kept")" "$file" | cmp -s - "$kept" || echo "$file;" ;;
        *) cmp -s "$file" "$kept" || echo "$file;" ;;
        esac
    done
    for name in last best; do
        step=$(readlink "$1/checkpoints/$name.h5")
        [ "$step" = "$(cat "$(object "$2/checkpoints/$name.txt")")" ] || echo "$name is not $step;"
        cmp -s "$1/checkpoints/$step" "$(object "$2/checkpoints/$step")" || echo "$step;"
    done
}

# left: rclone processes of this test.
left() {
    for file in /proc/[0-9]*/cmdline; do
        tr '\0' ' ' <"$file" 2>/dev/null | grep "^rclone .*$work"
    done
}

# gone: wait for the end of all rclone processes; print those that are left.
gone() { wait_until none_left || left; }
none_left() { [ -z "$(left)" ]; }

# A folder of a run with a checkpoint of 40 MB.
make_big() {
    mkdir -p "$1/checkpoints"
    head -c 40000000 /dev/urandom >"$1/checkpoints/step-00000005.h5"
    ln -s step-00000005.h5 "$1/checkpoints/last.h5"
    ln -s step-00000005.h5 "$1/checkpoints/best.h5"
    echo step,loss >"$1/metrics.csv"
    echo begun >"$1/train.log"
}

send() {
    timeout $time_limit "$vittrain" upload "$@" >"$work/upload.log" 2>&1 </dev/null
    status=$?
}

runs="$small train.epochs=1 debug.batches=12 checkpoint.every=0.25 checkpoint.keep=9 output.upload_every=0"
never="$runs run.dir=$work/never"

start_store

run 1 whole $runs run.dir="$work/whole" output.upload=s3://bucket/runs/
bad="$(ended)$(differs "$work/whole" runs/whole)$(has "$run_log" 'all of the run is in s3://bucket/runs/whole')"
result 'a run is in the bucket at its end' "$bad" "$run_log"

faults '{"share": 0.15}'
run 2 faulty $runs run.dir="$work/faulty" output.upload=s3://bucket/faulty
faults '{}'
bad="$(ended)$(differs "$work/faulty" faulty)"
[ "$(grep -cE ' (500|503|cut)$' "$store/requests")" -gt 3 ] || bad="$bad nothing failed"
result 'also if requests fail' "$bad" "$run_log"

stop_store
timeout $time_limit "$vittrain" $runs run.dir="$work/outage" output.upload=s3://bucket/outage output.upload_wait=1m \
    >"$work/outage.log" 2>&1 </dev/null &
job=$!
wait_job=$job wait_for 'continuing, the upload is tried again' "$work/outage.log"
start_store
wait $job
status=$?
bad="$(ended)$(has "$work/outage.log" 'continuing, the upload is tried again')$(differs "$work/outage" outage)"
result 'also if the server is down at the start' "$bad" "$work/outage.log"

stop_store
run 1 down $runs run.dir="$work/down" output.upload=s3://bucket/down output.upload_wait=0.5
bad="$(ended)$(has "$run_log" "not all files .* are in .*send them with .vittrain upload $work/down s3://bucket/down.")"
result 'if it stays down, the run names the command that sends its files' "$bad$(gone)" "$run_log"

start_store
send "$work/down" s3://bucket/down
result 'which vittrain upload sends' "$(ended)$(differs "$work/down" down)" "$work/upload.log"

faults '{"next": [{"kind": "slow", "seconds": 9999, "count": 99, "method": "PUT", "match": "step-"}]}'
run 1 slow $runs run.dir="$work/slow" output.upload=s3://bucket/slow output.upload_wait=2
faults '{}'
bad="$(ended)$(has "$run_log" 'are in s3://bucket/slow: out of time; send them with')"
result 'a slow server does not delay the end of a run' "$bad$(gone)" "$run_log"
faults '{"next": [{"kind": "slow", "seconds": 90, "count": 99, "method": "PUT", "match": "last.txt"}]}'
run 1 links $runs run.dir="$work/links" output.upload=s3://bucket/links output.upload_wait=25
faults '{}'
result 'a run whose links are not sent is incomplete' \
    "$(ended)$(has "$run_log" 'are in s3://bucket/links: out of time')" "$run_log"

AWS_SECRET_ACCESS_KEY=wrong
fails 2 'a wrong secret fails before the first step' 8 SignatureDoesNotMatch $never output.upload=s3://bucket/x
AWS_SECRET_ACCESS_KEY=sec/ret+1
fails 1 'so does a missing bucket' 8 NoSuchBucket $never output.upload=s3://nowhere/x
AWS_ACCESS_KEY_ID=AKREADER AWS_SECRET_ACCESS_KEY=reader
fails 1 'missing permission' 8 AccessDenied $never output.upload=s3://bucket/x
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
fails 1 'missing credentials' 8 NoCredentialProviders $never output.upload=s3://bucket/x
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=sec/ret+1
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
fails 1 'a path that is no remote' 2 'give s3://BUCKET/PATH, or REMOTE:PATH' $never output.upload=bucket/x
fails 1 'a connection string, with its password masked' 2 'pass=[*]:y is not a remote path: give s3://BUCKET/PATH' $never output.upload=:sftp,pass=x:y
fails 1 'an unknown remote' 8 'section in config' $never output.upload=nobody:x

mkdir "$work/none"
path=$PATH
for program in $(echo "$mpirun" | cut -d' ' -f1) timeout env sh; do # what the test itself needs
    ln -sf "$(command -v "$program")" "$work/none/"
done
PATH=$work/none
fails 1 'no rclone' 8 'cannot start rclone: No such file.*install it' $never checkpoint.resume=s3://bucket/x
"$vittrain" doctor $never output.upload=s3://bucket/x >"$work/doctor.log" 2>&1
PATH=$path
result 'doctor reports it' "$(has "$work/doctor.log" 'fail  rclone ')" "$work/doctor.log"

make_big "$work/big"
send "$work/big" s3://bucket/big
bad="$(ended)$(differs "$work/big" big)"
puts=$(grep -c 'PUT /bucket/big/checkpoints/step' "$store/requests")
send "$work/big" s3://bucket/big
[ "$(grep -c 'PUT /bucket/big/checkpoints/step' "$store/requests")" = "$puts" ] || bad="$bad it was sent again"
result 'a file that is there is not sent again' "$bad$(ended)" "$work/upload.log"

faults '{"next": [{"kind": "403", "count": 99, "match": "best.txt"}]}'
send "$work/big" s3://bucket/refused
faults '{}'
bad="$(ended 8)$(has "$work/upload.log" 'AccessDenied')"
! grep -q Signature= "$work/upload.log" || bad="$bad a signature is in the message"
result 'a refused file fails the command' "$bad" "$work/upload.log"

run 2 wrong $runs run.dir="$work/wrong" output.upload=s3://bucket/wrong optim.lr=1e38 optim.name=sgd
result 'a run that fails does not wait' "$(ended 7)$(has "$run_log" 'are in s3://bucket/wrong: .*vittrain upload')" \
    "$run_log"

is_sending() { left | grep -q step-; }
for signal in KILL TERM; do
    make_big "$work/$signal"
    faults '{"next": [{"kind": "slow", "seconds": 60, "count": 9, "method": "PUT", "match": "step-"}]}'
    "$vittrain" upload "$work/$signal" s3://bucket/$signal >"$work/upload.log" 2>&1 </dev/null &
    job=$!
    wait_job=$job wait_until is_sending
    kill -$signal $job
    wait $job 2>/dev/null
    faults '{}'
    result "SIG$signal leaves no rclone process" "$(gone)" "$work/upload.log"
done

echo other >"$work/big/checkpoints/step-00000015.h5"
ln -sf step-00000015.h5 "$work/big/checkpoints/last.h5"
send "$work/big" s3://bucket/big
bad="$(ended)$(differs "$work/big" big)"
ln -sf step-00000015.h5 "$work/big/checkpoints/best.h5"
: >"$(object big/checkpoints/step-00000001.h5)"
send "$work/big" s3://bucket/big
bad="$bad$(ended)$(differs "$work/big" big)"
[ -e "$(object big/checkpoints/step-00000001.h5)" ] || bad="$bad another program's file was deleted"
[ ! -e "$(object big/checkpoints/step-00000005.h5)" ] || bad="$bad step 5 is still there"
result 'superseded checkpoints of the run are deleted, other files are not' "$bad" "$work/upload.log"

# keep FILE KEY: an object as another program stored it.
keep() {
    mkdir -p "$bucket/.meta"
    cp "$1" "$(object "$2")"
    echo "{\"etag\": \"$(md5sum <"$1" | cut -d' ' -f1)\", \"meta\": []}" \
        >"$bucket/.meta/$(basename "$(object "$2")")"
}

# The bucket of a run that was killed after step 6 and whose disk is lost; a later checkpoint is damaged.
mkdir -p "$work/cut/checkpoints"
cp "$work/whole"/*.csv "$work/whole"/events* "$work/cut"
echo 'the part before' >"$work/cut/train.log"
cp "$work/whole/checkpoints/step-00000006.h5" "$work/cut/checkpoints"
ln -s step-00000006.h5 "$work/cut/checkpoints/last.h5"
ln -s step-00000006.h5 "$work/cut/checkpoints/best.h5"
send "$work/cut" s3://bucket/cut
echo garbage >"$work/garbage"
keep "$work/garbage" cut/checkpoints/step-00000009.h5
faults '{"next": [{"kind": "damaged", "method": "GET", "match": "step-00000006.h5"},
    {"kind": "truncated", "method": "GET", "match": "step-00000006.h5"}], "share": 0.05}'
run 1 again $runs run.dir="$work/again" checkpoint.resume=s3://bucket/cut output.upload=s3://bucket/cut \
    output.upload_wait=100
faults '{}'
bad="$(ended)$(has "$run_log" 'ignored: .*step-00000009.h5')"
cmp -s "$work/again/weights.safetensors" "$work/whole/weights.safetensors" || bad="$bad other weights;"
column "$work/whole/metrics.csv" train loss >"$work/whole.loss"
column "$work/again/metrics.csv" train loss | cmp -s - "$work/whole.loss" || bad="$bad other rows;"
bad="$bad$(has "$work/again/train.log" 'the part before')$(differs "$work/again" cut)"
result 'a run continues from the bucket with its tables, although answers are damaged' "$bad" "$run_log"

run 2 twice $runs run.dir="$work/again" checkpoint.resume=s3://bucket/cut train.global_batch=24
result 'or from its own folder if that is as new' \
    "$(ended)$(has "$run_log" 'nothing to do: the run ended at step 12')" "$run_log"

fresh="$small train.steps=1 output.weights=off"
run 2 none $fresh run.dir="$work/empty" checkpoint.resume=s3://bucket/nothing
result 'an empty prefix starts from step 0' \
    "$(ended)$(has "$run_log" 'no checkpoint in s3://bucket/nothing yet: starting from step 0')" "$run_log"
fails 2 'a missing object' 8 'no such file' $fresh run.dir="$work/missing" checkpoint.resume=s3://bucket/nothing/step-1.h5

faults '{"next": [{"kind": "endless", "method": "GET", "match": "prefix"}]}'
fails 1 'a listing that never ends' 8 'no result within 30 s' $fresh run.dir="$work/endless" \
    checkpoint.resume=s3://bucket/cut
faults '{}'

run 1 local $fresh run.dir="$work/local" model.init="$work/whole/checkpoints/best.h5"
column "$work/local/metrics.csv" train loss >"$work/local.loss"
for from in whole whole/checkpoints/best.h5; do
    run 2 init $fresh run.dir="$work/init-$(basename $from)" model.init=s3://bucket/runs/$from
    column "$work/init-$(basename $from)/metrics.csv" train loss >"$work/init.loss"
    bad=$([ $from != whole ] || has "$run_log" 'copying .*/whole/best.safetensors')
    result "weights from runs/$from" "$(ended)$bad$(differ "$work/local.loss" "$work/init.loss" 1e-5)" "$run_log"
done

# Another remote: a folder, as rclone's backend "local". The password of the endpoint stays out of all messages.
export RCLONE_CONFIG_DISK_TYPE=local
run 1 disk $runs run.dir="$work/disk" output.upload=disk:$work/remote/
bad="$(ended)$(has "$run_log" "all of the run is in disk:$work/remote/disk")"
cmp -s "$work/remote/disk/checkpoints/step-00000012.h5" "$work/disk/checkpoints/step-00000012.h5" || bad="$bad step 12;"
rm -r "$work/disk"
run 1 disk $runs run.dir="$work/disk" checkpoint.resume=disk:$work/remote/disk
bad="$bad$(ended)$(has "$run_log" 'resuming from .*step-00000012.h5')"
result 'a remote of another type' "$bad" "$run_log"

# credentials NAME WORD...: a folder is sent with the credentials that the words set.
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
mkdir "$work/few"
echo a >"$work/few/metrics.csv"
credentials() {
    timeout $time_limit env "$@" "$vittrain" upload "$work/few" "s3://bucket/$title" >"$work/upload.log" 2>&1 </dev/null
    status=$?
    bad=$(ended)
    cmp -s "$work/few/metrics.csv" "$(object "$title/metrics.csv")" || bad="$bad it is not there"
    result "credentials of $title" "$bad" "$work/upload.log"
}
printf '[lab]\naws_access_key_id = AKTEST\naws_secret_access_key=sec/ret+1\n' >"$work/credentials"
title=profile
credentials AWS_PROFILE=lab AWS_SHARED_CREDENTIALS_FILE="$work/credentials"
title=container
credentials AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/container" \
    AWS_CONTAINER_AUTHORIZATION_TOKEN=container
title=instance
credentials AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="$AWS_ENDPOINT_URL/"
stop_store
start_store --region eu-north-1
title=region
credentials AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=sec/ret+1 AWS_DEFAULT_REGION=eu-north-1
