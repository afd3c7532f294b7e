#!/bin/bash
# What of PlugIn-X is still to be measured, on one GPU: ablations, steps and batch sizes, XNLI and XQuAD, a second
# multilingual encoder. Every connector is trained on one text, then every task model is scored on all of them.
#
#     DATA=data TEXT=text-en.txt.xz PROBE=probe-x KEEP=kept bash on-a-gpu.sh [connectors|tables]
#
# Without a word: both. It ends after LIMIT seconds at the latest; the same command goes on from there, as long as WORK
# is where it was. `connectors` and `tables` do one half. DRY=1 is a trial of minutes on a CPU: three steps per arm, 16
# examples per language, otherwise the same commands. Exit code: 0 done, 1 something failed, 75 time is up.
set -u
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
: "${PYTHON:=python3}"
: "${DATA:?folder with mnli/ and massive/ (English), xnli/ (test), xquad/, sib200/ and the tests of massive/}"
: "${TEXT:?English text, one sentence a line: text-en.txt.xz}"
: "${PROBE:?folder of the second multilingual encoder}"
: "${WORK:=$repo/runs/plug-gpu}" # connectors, task models, rows: lies on a local disk, may be deleted afterwards
: "${KEEP:=$WORK/kept}"          # what is worth keeping: a few files, 16 MiB each at most
: "${KEEP_CONNECTORS:=}"         # connectors to keep too, 6.4 MB each: "plug/align-1 probe/mixed-1"
: "${LIMIT:=570}"                # seconds of this call
: "${SEEDS:=1,2,3}"
: "${STEPS:=1000}"
: "${ROWS:=256}" # per step, of 128 tokens
: "${DRY:=}"
: "${ARMS_AT_A_TIME:=5}"
: "${TABLE_WORKERS:=15}"
ends=$(($(date +%s) + LIMIT - 10)) # the last seconds are for packing
stage=${1:-all} failed=0
case $stage in all | connectors | tables) ;; *) echo "There is no stage $stage: connectors, tables, or nothing." && exit 2 ;; esac
dry=${DRY:+--dry} arms_at_a_time=$ARMS_AT_A_TIME

for path in "$DATA" "$TEXT" "$PROBE"; do [ -e "$path" ] || { echo "There is no $path." && exit 2; }; done
DATA=$(realpath "$DATA") TEXT=$(realpath "$TEXT") PROBE=$(realpath "$PROBE")
mkdir -p "$WORK" "$KEEP"
WORK=$(realpath "$WORK") KEEP=$(realpath "$KEEP")
export PYTHONPATH=$repo/src CROSSLIFT_DATA=$DATA HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
cd "$WORK" || exit 2

left() { echo $((ends - $(date +%s))); }
run() { # NAME COMMAND…: into NAME.log; interrupted in time, so that runs are saved and go on from where they were
    local name=$1 status=0 before
    shift
    [ "$(left)" -gt 5 ] || return 75
    touch "$name.log"
    before=$(wc -l < "$name.log")
    timeout -k 8 "$(left)" "$@" >> "$name.log" 2>&1 || status=$?
    # A job that fails does not end the others: it leaves a line.
    if [ $status = 0 ] && tail -n "+$((before + 1))" "$name.log" | grep -q "^failed"; then status=1; fi
    echo "$(date +%T) $name: $([ $status = 0 ] && echo done || echo "ended with $status"), $(left) s left"
    if [ $status != 0 ] && [ $status != 124 ]; then tail -n "+$((before + 1))" "$name.log" | grep "^failed" || tail -5 "$name.log"; fi
    return $status
}
train() { # NAME MULTI OUT, the rest: more options
    local name=$1 multi=$2 out=$3
    shift 3
    run "$name" "$PYTHON" "$here/train.py" --multi "$multi" --mono mini-en --text "$TEXT" --steps "$STEPS" --batch-size "$ROWS" \
        --max-tokens 16384 --evaluations 5 --out "$out" $dry "$@"
}
table() { # NAME, the rest: more options
    local name=$1
    shift
    # Nothing is begun in the last minute: a row takes seconds, a task model up to a minute.
    run "$name" "$PYTHON" "$here/table.py" --connectors plug "probe=$PROBE" --no-alignment --limit 1000 --workers "$TABLE_WORKERS" \
        --minutes "$(left | awk '{ print ($1 > 120 ? $1 - 60 : $1 / 2) / 60 }')" --scratch scratch --out plug-more.json $dry "$@"
}
connectors() {
    local status=0
    train probe-text "$PROBE" probe --prepare &
    train plug mini-x plug --workers "$arms_at_a_time" --seeds "$SEEDS" --arms hmlm,align,mixed,bottom,shallow,no-encoder || status=$?
    wait $! || status=$?
    [ $status = 0 ] || return $status
    train plug-batches mini-x plug --workers 2 --seeds 1 --arms batch-128,batch-32 &
    train probe "$PROBE" probe --workers 3 --seeds "$SEEDS" --arms hmlm,mixed || status=$?
    wait $! || status=$?
    return $status
}
tables() {
    local chosen="hmlm;align;mixed;bottom;shallow;no-encoder;batch-128;batch-32;probe: hmlm;probe: mixed" status=0
    # Fine-tuning on these two was measured with the same data, examples and seeds; it does not know connectors.
    mkdir -p plug-more
    [ -n "$dry" ] || cp -n "$repo"/benchmarks/results/plug-table/{sib200,massive-intent}{-finetune*,.ids.npz} plug-more/
    table sib200-massive --tasks sib200,massive-intent --seeds "$SEEDS" --systems "$chosen" || status=$?
    table xnli-xquad --tasks xnli,xquad --seeds "$SEEDS" || status=$?
    table steps --tasks xnli,sib200,massive-intent --seeds "$SEEDS" --steps --systems "hmlm;align;mixed;batch-128;batch-32" || status=$?
    return $status
}
keep() {
    [ -d plug-more ] && "$PYTHON" "$here/summary.py" plug-more.json > "$KEEP/plug-more.md" 2> summary.log || cat summary.log 2> /dev/null
    [ -d plug-more ] && tar -cJf "$KEEP/plug-more.tar.xz" plug-more plug-more.json
    # How each arm learnt: a few kilobytes, beside connectors of megabytes.
    tar -cJf "$KEEP/runs.tar.xz" -- *.log $(find plug probe -maxdepth 2 \( -name '*.log' -o -name '*.json*' \) 2> /dev/null)
    local name
    for name in $KEEP_CONNECTORS; do
        [ -d "$name/connector" ] && tar -cf "$KEEP/${name//\//-}.tar" "$name/connector"
    done
    ls -l "$KEEP"
}

if [ -z "$dry" ]; then nvidia-cuda-mps-control -d || true; fi # several small processes share the GPU
if [ "$stage" != tables ]; then connectors || failed=$?; fi
if [ "$stage" != connectors ] && [ $failed = 0 ]; then tables || failed=$?; fi
keep
case $failed in
    0) echo "$stage: all there" ;;
    75 | 124) echo "Time is up: the same command goes on." && exit 75 ;;
    *) exit 1 ;;
esac
