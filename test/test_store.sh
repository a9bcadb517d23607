#!/bin/sh
# Object stores: what a run leaves goes there while it runs, through failures, and comes back from there.
# The store is on this machine (s3_endpoint.py) and verifies what it gets.

if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP no python3'
    exit 0
fi
. "$TEST_SOURCE/test/program.sh"
trap 'stop_store; rm -rf "$work"' EXIT
store=$work/store
bucket=$store/bucket
mkdir -p "$bucket"
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=sec/ret+1 AWS_EC2_METADATA_DISABLED=true
AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE
unset AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL_S3 http_proxy all_proxy ALL_PROXY
port=0

# start_store [OPTION...]: again at the same port.
start_store() {
    rm -f "$work/store-input" "$work/port"
    mkfifo "$work/store-input"
    python3 "$TEST_SOURCE/test/s3_endpoint.py" "$store" --port $port "$@" <"$work/store-input" >"$work/port" &
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

# object KEY: the file in which the store keeps it.
object() {
    echo "$bucket/$(echo "$1" | sed 's|/|%2F|g')"
}

# differs FOLDER PREFIX: what of a run's folder is not, or otherwise, in the store; nothing when all is.
differs() {
    for file in "$1"/*; do
        [ -f "$file" ] || continue
        kept=$(object "$2/$(basename "$file")")
        case $file in
        */train.log) # what is said of the end of the upload is not in it
            head -c "$(wc -c <"$kept")" "$file" | cmp -s - "$kept" || echo "$file;" ;;
        *) cmp -s "$file" "$kept" || echo "$file;" ;;
        esac
    done
    for name in last best; do
        step=$(readlink "$1/checkpoints/$name.h5")
        [ "$step" = "$(cat "$(object "$2/checkpoints/$name.txt")")" ] || echo "$name is not $step;"
        cmp -s "$1/checkpoints/$step" "$(object "$2/checkpoints/$step")" || echo "$step;"
    done
    ls "$store/.uploads" | sed 's/$/ is left of an upload;/'
}

# has FILE PATTERN: what is missing in it.
has() {
    grep -q -- "$2" "$1" || echo "not said: $2;"
}

# A run that never was, with a checkpoint of three parts.
make_big() {
    mkdir -p "$1/checkpoints"
    head -c 40000000 /dev/urandom >"$1/checkpoints/step-00000005.h5"
    ln -s step-00000005.h5 "$1/checkpoints/last.h5"
    ln -s step-00000005.h5 "$1/checkpoints/best.h5"
    echo step,loss >"$1/metrics.csv"
    echo begun >"$1/train.log"
}

# send_killed NAME PATTERN FILE: an upload of $work/NAME that is killed when the file has the pattern.
send_killed() {
    "$vittrain" upload "$work/$1" "s3://bucket/$1" >"$work/killed.log" 2>&1 </dev/null &
    job=$!
    until grep -q "$2" "$3" || ! kill -0 $job 2>/dev/null; do
        sleep 0.05
    done
    kill -9 $job
    wait $job 2>/dev/null
}

send() {
    timeout 60 "$vittrain" upload "$@" >"$work/upload.log" 2>&1 </dev/null
    status=$?
}

runs="$small train.epochs=1 debug.batches=12 checkpoint.every=0.25 checkpoint.keep=9 output.upload_every=0"

echo 1..29
start_store

run 1 whole $runs run.dir="$work/whole" output.upload=s3://bucket/runs/
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(differs "$work/whole" runs/whole)$(has "$run_log" 'all of the run is in s3://bucket/runs/whole')"
bad="$bad$(has "$work/runs/logbook/whole.md" '^\* uploaded: s3://bucket/runs/whole/checkpoints/step-0*12.h5')"
result 'a run is in the store at its end' "$bad" "$run_log"

faults '{"share": 0.15}'
run 2 faulty $runs run.dir="$work/faulty" output.upload=s3://bucket/faulty
faults '{}'
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(differs "$work/faulty" faulty)"
[ "$(grep -cE ' (500|503|cut)$' "$store/requests")" -gt 3 ] || bad="$bad nothing failed"
result 'whatever fails of the requests' "$bad" "$run_log"

stop_store
(sleep 1.5; touch "$work/back") &
waiter=$!
timeout 120 "$vittrain" $runs run.dir="$work/outage" output.upload=s3://bucket/outage output.upload_wait=1m \
    >"$work/outage.log" 2>&1 </dev/null &
job=$!
wait $waiter
start_store
wait $job
status=$?
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(has "$work/outage.log" 'the run begins, it will be tried again')$(differs "$work/outage" outage)"
result 'a store that is down at the start and comes back' "$bad" "$work/outage.log"

stop_store
run 1 down $runs run.dir="$work/down" output.upload=s3://bucket/down output.upload_wait=0.5
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(has "$run_log" "send them by .vittrain upload $work/down s3://bucket/down.")"
result 'one that stays down: the run ends well and says how to send what is missing' "$bad" "$run_log"

start_store
send "$work/down" s3://bucket/down
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(differs "$work/down" down)"
result 'which then can be sent' "$bad" "$work/upload.log"

AWS_SECRET_ACCESS_KEY=wrong
fails 2 'a wrong secret is told at the start' 8 'SignatureDoesNotMatch.*check access key and secret key' \
    $runs run.dir="$work/never" output.upload=s3://bucket/x
AWS_SECRET_ACCESS_KEY=sec/ret+1
fails 1 'a bucket that is not there, too' 8 'NoSuchBucket.*make the bucket' \
    $runs run.dir="$work/never" output.upload=s3://nowhere/x
AWS_ACCESS_KEY_ID=AKREADER AWS_SECRET_ACCESS_KEY=reader
fails 1 'one that we may not write to' 8 'AccessDenied.*allow these credentials' \
    $runs run.dir="$work/never" output.upload=s3://bucket/x
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
fails 1 'no credentials' 8 'no credentials for the object store: set AWS_ACCESS_KEY_ID' \
    $runs run.dir="$work/never" output.upload=s3://bucket/x
AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=sec/ret+1
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
fails 1 'what is no address' 2 'give s3://BUCKET/PREFIX' $runs run.dir="$work/never" output.upload=bucket/x

make_big "$work/big"
faults '{"next": [{"kind": "slow", "seconds": 20, "match": "partNumber=3"}]}'
send_killed big '32.0 of 38.1' "$work/killed.log"
faults '{}'
send "$work/big" s3://bucket/big
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(has "$work/upload.log" 'going on after 2 of 3 parts')$(differs "$work/big" big)"
[ "$(grep -c 'PUT.*partNumber=[12]&' "$store/requests")" = 2 ] || bad="$bad parts were sent twice"
result 'an upload in parts goes on after kill -9' "$bad" "$work/upload.log"

send "$work/big" s3://bucket/big
bad=$([ $status -eq 0 ] || echo "exit status $status;")
[ "$(grep -c 'PUT.*partNumber' "$store/requests")" = 3 ] || bad="$bad it was sent again"
result 'what is there is not sent again' "$bad" "$work/upload.log"

said=$(flock "$work/big/.upload.lock" "$vittrain" upload "$work/big" s3://bucket/big 2>&1)
bad=$([ $? -eq 2 ] || echo "another exit status;")
echo "$said" >"$work/upload.log"
result 'a folder is sent by one process at a time' "$bad$(has "$work/upload.log" 'by another process')" "$work/upload.log"

run 2 wrong $runs run.dir="$work/wrong" output.upload=s3://bucket/wrong optim.lr=1e38 optim.name=sgd
bad=$([ $status -eq 7 ] || echo "exit status $status;")
bad="$bad$(has "$run_log" 'are not in s3://bucket/wrong: .*vittrain upload')"
result 'a run that fails does not wait' "$bad" "$run_log"

make_big "$work/lost"
faults '{"next": [{"kind": "lost", "method": "POST", "match": "checkpoints/step-00000005.h5?uploadId"}]}'
send "$work/lost" s3://bucket/lost
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(differs "$work/lost" lost)"
grep -q 'POST.*uploadId=.* 404' "$store/requests" || bad="$bad; the end was not lost"
result 'an end whose answer is lost is one' "$bad" "$work/upload.log"

make_big "$work/moved"
faults '{"next": [{"kind": "500", "count": 99, "match": "partNumber=2"}]}'
send_killed moved 'partNumber=2.* 500' "$store/requests"
faults '{}'
echo short >"$work/moved/checkpoints/step-00000010.h5"
rm "$work/moved/checkpoints/step-00000005.h5"
ln -sf step-00000010.h5 "$work/moved/checkpoints/last.h5"
ln -sf step-00000010.h5 "$work/moved/checkpoints/best.h5"
send "$work/moved" s3://bucket/moved
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(differs "$work/moved" moved)"
result 'an upload whose checkpoint is superseded is given up' "$bad" "$work/upload.log"

echo other >"$work/moved/checkpoints/step-00000015.h5"
ln -sf step-00000015.h5 "$work/moved/checkpoints/last.h5"
send "$work/moved" s3://bucket/moved
bad=$(differs "$work/moved" moved)
ln -sf step-00000015.h5 "$work/moved/checkpoints/best.h5"
: >"$(object moved/checkpoints/step-00000001.h5)"
send "$work/moved" s3://bucket/moved
bad="$bad$(differs "$work/moved" moved)"
[ "$(ls "$bucket" | grep -c moved.*step-.*[^0])" = 2 ] || bad="$bad not 15 and what is not ours"
[ ! -e "$(object moved/checkpoints/step-00000010.h5)" ] || bad="$bad 10 stays"
result 'superseded checkpoints that were sent from the folder are removed, others are not' "$bad" "$work/upload.log"

# keep FILE KEY: an object as another program put it there.
keep() {
    mkdir -p "$bucket/.meta"
    cp "$1" "$(object "$2")"
    echo "{\"etag\": \"$(md5sum <"$1" | cut -d' ' -f1)\", \"meta\": []}" \
        >"$bucket/.meta/$(basename "$(object "$2")")"
}

# The store of a run that was cut after step 6, whose disk is lost; a later checkpoint is no good.
mkdir -p "$work/cut/checkpoints"
cp "$work/whole"/*.csv "$work/whole"/events* "$work/cut"
echo 'the part before' >"$work/cut/train.log"
cp "$work/whole/checkpoints/step-00000006.h5" "$work/cut/checkpoints"
ln -s step-00000006.h5 "$work/cut/checkpoints/last.h5"
ln -s step-00000006.h5 "$work/cut/checkpoints/best.h5"
send "$work/cut" s3://bucket/cut
echo garbage >"$work/garbage"
keep "$work/garbage" cut/checkpoints/step-00000009.h5
faults '{"next": [{"kind": "damaged", "method": "GET", "match": "step-00000006.h5"}], "share": 0.1}'
run 1 again $runs run.dir="$work/again" checkpoint.resume=s3://bucket/cut output.upload=s3://bucket/cut
faults '{}'
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(has "$run_log" 'passed over: .*step-00000009.h5')$(has "$run_log" 'wrong content came')"
cmp -s "$work/again/weights.safetensors" "$work/whole/weights.safetensors" || bad="$bad other weights;"
column "$work/whole/metrics.csv" train loss >"$work/whole.loss"
column "$work/again/metrics.csv" train loss | cmp -s - "$work/whole.loss" || bad="$bad other rows;"
bad="$bad$(has "$work/again/train.log" 'the part before')$(differs "$work/again" cut)"
result 'a run goes on from the store as if nothing had been, its rows, too' "$bad" "$run_log"

run 2 twice $runs run.dir="$work/again" checkpoint.resume=s3://bucket/cut train.global_batch=24
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(has "$run_log" 'nothing to do: the run ended at step 12')"
result 'or from its own folder where that is as new' "$bad" "$run_log"

fresh="$small train.steps=1 output.weights=off"
run 2 none $fresh run.dir="$work/none" checkpoint.resume=s3://bucket/nothing
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(has "$run_log" 'nothing to go on from in s3://bucket/nothing yet: from the start')"
result 'nothing in the store yet: from the start' "$bad" "$run_log"
fails 2 'an object that is not there' 8 'HTTP 404' \
    $fresh run.dir="$work/missing" checkpoint.resume=s3://bucket/nothing/step-1.h5

run 1 local $fresh run.dir="$work/local" model.init="$work/whole/checkpoints/best.h5"
column "$work/local/metrics.csv" train loss >"$work/local.loss"
for from in whole whole/checkpoints/best.h5; do
    run 2 init $fresh run.dir="$work/init-$(basename $from)" model.init=s3://bucket/runs/$from
    column "$work/init-$(basename $from)/metrics.csv" train loss >"$work/init.loss"
    bad=$([ $status -eq 0 ] || echo "exit status $status;")
    bad="$bad$(differ "$work/local.loss" "$work/init.loss" 1e-5)"
    result "weights from runs/$from" "$bad" "$run_log"
done

head -c 40000000 /dev/urandom >"$work/large.safetensors"
keep "$work/large.safetensors" large.safetensors
faults '{"next": [{"kind": "none", "method": "GET", "count": 2}, {"kind": "slow", "seconds": 20, "method": "GET"}]}'
"$vittrain" $fresh run.dir="$work/large" model.init=s3://bucket/large.safetensors >"$work/killed.log" 2>&1 </dev/null &
job=$!
until grep -q '32.0 of 38.1' "$work/killed.log" || ! kill -0 $job 2>/dev/null; do
    sleep 0.05
done
kill -9 $job
wait $job 2>/dev/null
faults '{}'
run 1 large $fresh run.dir="$work/large" model.init=s3://bucket/large.safetensors
bad=$([ $status -eq 4 ] || echo "exit status $status;") # noise is no safetensors
bad="$bad$(has "$run_log" 'going on after 33554432 bytes')"
cmp -s "$work/large/retrieved/large.safetensors" "$work/large.safetensors" || bad="$bad it is another file"
result 'a download goes on after kill -9' "$bad" "$run_log"

stop_store
CLOCK_AHEAD=7200 start_store --no-checksums --region eu-north-1
make_big "$work/far"
send "$work/far" s3://bucket/far
bad=$([ $status -eq 0 ] || echo "exit status $status;")
bad="$bad$(differs "$work/far" far)"
result 'the store tells its region and its time, and MD5 where it knows no other sums' "$bad" "$work/upload.log"
stop_store

# credentials NAME WORD...: a folder is sent by what the words set.
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
start_store
mkdir "$work/small"
echo a >"$work/small/metrics.csv"
credentials() {
    timeout 60 env "$@" "$vittrain" upload "$work/small" "s3://bucket/$title" >"$work/upload.log" 2>&1 </dev/null
    status=$?
    bad=$([ $status -eq 0 ] || echo "exit status $status;")
    cmp -s "$work/small/metrics.csv" "$(object "$title/metrics.csv")" || bad="$bad it is not there"
    [ "$(grep -c "$asked" "$store/requests")" -ge "$times" ] || bad="$bad fewer than $times times $asked"
    result "credentials of $title" "$bad" "$work/upload.log"
}
cat >"$work/credentials" <<'END'
# others before and behind
[default]
aws_access_key_id = NOBODY
aws_secret_access_key = nothing

[lab]
aws_access_key_id = AKTEST
aws_secret_access_key=sec/ret+1
END
printf '[profile lab]\nregion = us-east-1\ns3 =\n    addressing_style = path\n' >"$work/config"
title=profile asked=profile/metrics times=1
credentials AWS_PROFILE=lab AWS_SHARED_CREDENTIALS_FILE="$work/credentials" AWS_CONFIG_FILE="$work/config"
sed -i 's/= path/= virtual/' "$work/config"
title=virtual asked='PUT /virtual/metrics' times=1
credentials AWS_PROFILE=lab AWS_SHARED_CREDENTIALS_FILE="$work/credentials" AWS_CONFIG_FILE="$work/config" \
    AWS_ENDPOINT_URL="http://localhost:$port"
title=container asked='GET /container' times=1
credentials AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/container" \
    AWS_CONTAINER_AUTHORIZATION_TOKEN=container
stop_store
ROLE_SECONDS=2 start_store # asked for again at each request
title=instance asked='GET .*/trainer 200' times=3
credentials AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT="$AWS_ENDPOINT_URL/"
