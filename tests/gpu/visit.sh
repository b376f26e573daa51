#!/usr/bin/env bash
# A visit of minutes to a machine with one GPU whose own Python has torch: tests/README.md.
#
#   bash tests/gpu/visit.sh [OPTION...] [PART...]
#
# It makes an environment from that Python and the wheels in $WHEELS, and starts
#   python -m tests.gpu --budget $BUDGET --short --keep-going --results $OUT/gpu.json \
#     --cells $OUT/cells.tar
# OUT: folder of the results (gpu-visit). BUDGET: seconds in all (520). WHEELS: the packages that the
# Python lacks (wheelhouse). PYTHON: the Python that has torch (python3). The environment stays in /tmp.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${OUT:-$PWD/gpu-visit} budget=${BUDGET:-520} wheels=${WHEELS:-wheelhouse} python=${PYTHON:-python3}
fail() { echo "visit.sh: $*" >&2; exit 2; }
[[ $budget =~ ^[1-9][0-9]*$ ]] || fail "BUDGET=$budget is no number of seconds, for example 520"
"$python" -c "import torch" 2>/dev/null || fail "$python has no torch: name one that has by PYTHON="
compgen -G "$wheels/*.whl" >/dev/null || fail "no wheels in $wheels: name their folder by WHEELS="
mkdir -p "$out" || fail "name another folder by OUT="
work=$(mktemp -d)
"$python" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile \
    --target "$work/site" "$wheels"/*.whl || fail "the wheels in $wheels are not for $python"
"$python" -m venv --without-pip "$work/env"
packages=("$work"/env/lib/python*/site-packages)
# one path a line, then the packages of $python, which may be an environment's
{
    printf '%s\n' "$work/site" "$PWD"
    PYTHONPATH=locks${PYTHONPATH:+:$PYTHONPATH} "$python" -c \
        'import wheelhouse; print(wheelhouse.packages_of_this_python())'
} >"${packages[0]}/machine.pth"
exec "$work/env/bin/python" -m tests.gpu --budget $((budget - SECONDS)) --short --keep-going \
    --results "$out/gpu.json" --cells "$out/cells.tar" "$@"
