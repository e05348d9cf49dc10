#!/bin/bash
# Runs a suite on a machine with Python, torch and a GPU: bash target/gpu/run.sh captures [pytest's options]
# It ends in at most eight minutes, with pytest's summary and a table; the table and the output are left in $OUT, too.
set -u
here=$(cd "$(dirname "$0")" && pwd)
suite=${1:?which suite: captures}
shift
python=${PYTHON:-python3}
out=${OUT:-$here/out}
mkdir -p "$out"
# In memory, if there is enough of it: a disk would be what is measured.
place=/tmp
[ -w /dev/shm ] && [ "$(df --output=avail -k /dev/shm | tail -1)" -gt $((24 << 20)) ] && place=/dev/shm
work=$(mktemp -d "$place/cairn-gpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
[ "$suite" = captures ] || { echo "there is no suite $suite" >&2; exit 2; }

gunzip -c "$here/cairn.gz" > "$work/cairn" && chmod +x "$work/cairn"
if ! "$work/cairn" --version > /dev/null; then
  echo "the command does not run here, so what needs it is left out"
else
  export CAIRN_BIN=$work/cairn
fi
export PYTHONPATH=$here/package:$here/tools:$here/tests PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
export CAIRN_SUITE_UNTIL=$(($(date +%s) + 420)) CAIRN_SUITE_TABLE=$out/$suite
cores=$(nproc)
workers=${WORKERS:-$((cores < 8 ? cores : 8))}
# A case that hangs ends its process, and only that: pytest starts another.
timeout --kill-after=10 470 "$python" -m pytest -p xdist -p no:cacheprovider --config-file "$here/pyproject.toml" \
  --rootdir "$here" --basetemp "$work/runs" -o tmp_path_retention_policy=none -o faulthandler_timeout=${CASE_SECONDS:-60} \
  -n "$workers" --dist load --max-worker-restart 60 -q -rfEs --tb=short --show-capture=no "$@" "$here/tests" 2>&1 | tee "$out/$suite.log"
ended=${PIPESTATUS[0]}
# Where there is no GPU nothing is collected, which is no failure.
[ "$ended" = 5 ] && ended=0
exit "$ended"
